"""Text that arrives token by token."""

from hypothesis import given
from hypothesis import strategies as st
from support.tiny_vocabularies import byte_level
from tinyllm_engine.tokenizer import StreamDecoder, Tokenizer


def feed(chunks):
    decoder = StreamDecoder(lambda id: chunks[id])
    return [decoder.feed(id) for id in range(len(chunks))], decoder.flush()


def test_a_character_comes_with_its_last_byte():
    assert feed([b"\xf0\x9f", b"\x99", b"\x82", b"!"]) == (["", "", "🙂", "!"], "")


def test_a_token_may_end_one_character_and_begin_another():
    assert feed(["é".encode()[:1], "é".encode()[1:] + "ü".encode()[:1], "ü".encode()[1:]]) == (["", "é", "ü"], "")


def test_what_cannot_become_a_character_is_replaced_at_once():
    assert feed([b"a\xff", b"b", b"\xc3", b"c"]) == (["a\ufffd", "b", "", "\ufffdc"], "")


def test_an_incomplete_character_at_the_end():
    assert feed([b"a", b"\xe4\xbd"]) == (["a", ""], "\ufffd")


def test_flushing_begins_anew():
    decoder = StreamDecoder({0: b"\xe4", 1: b"x"}.__getitem__)
    decoder.feed(0)
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""
    assert decoder.feed(1) == "x"


def test_hidden_tokens_say_nothing():
    tokenizer = Tokenizer.from_metadata(byte_level(special={"<|im_end|>": 3}))
    stream = tokenizer.stream()
    assert stream.feed(256) == ""


@given(st.lists(st.binary(max_size=5), max_size=12))
def test_any_bytes_come_out_as_if_decoded_together(chunks):
    texts, rest = feed(chunks)
    assert "".join(texts) + rest == b"".join(chunks).decode("utf-8", "replace")


@given(st.text(st.characters(codec="utf-8")))
def test_text_through_single_bytes(text):
    tokenizer = Tokenizer.from_metadata(byte_level(pre="smollm"))
    stream = tokenizer.stream()
    assert "".join(map(stream.feed, tokenizer.encode(text))) + stream.flush() == text
