"""Encoding and decoding with vocabularies that are small enough to follow by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_vocabularies import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED, byte_level, sentence_piece
from tinyllm_engine.errors import TokenizerError
from tinyllm_engine.tokenizer import Tokenizer, TokenType

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "Ã ©", "1 2"]
PIECES = {"▁": -1.0, "h": -2.0, "e": -3.0, "l": -4.0, "o": -5.0, "he": -6.0, "ll": -7.0, "hell": -8.0, "hello": -9.0}
PIECES |= {"▁hello": -10.0, "▁▁": -11.0, "▁h": -20.0}


def texts_of(tokenizer, ids):
    return [tokenizer.token_text(id) for id in ids]


def encoded(metadata, text, **options):
    tokenizer = Tokenizer.from_metadata(metadata)
    return texts_of(tokenizer, tokenizer.encode(text, **options))


def test_byte_level_joins_pairs_in_the_order_of_the_merges():
    assert encoded(byte_level(MERGES), "hello hello") == ["hello", "Ġhello"]
    assert encoded(byte_level(MERGES), "hellos ell") == ["hello", "s", "Ġ", "e", "ll"]


def test_of_equal_merges_the_first_counts():
    assert encoded(byte_level(["b c", "a b"]) | {"tokenizer.ggml.merges": ["b c", "a b", "b c"]}, "abc") == ["a", "bc"]


def test_equal_pairs_join_from_the_left():
    assert encoded(byte_level(["a a"]), "aaa") == ["aa", "a"]


def test_what_is_no_token_comes_as_bytes():
    assert encoded(byte_level(MERGES), "é🙂") == ["Ã©", "ð", "Ł", "Ļ", "Ĥ"]
    assert encoded(sentence_piece(PIECES), "é", add_bos=False) == ["▁", "<0xC3>", "<0xA9>"]


def test_a_whole_word_is_taken_before_its_merges_if_the_model_ignores_them():
    special = {"he": NORMAL, "hex": NORMAL}
    assert encoded(byte_level(["e x"], special, pre="gpt-2"), "hex") == ["h", "ex"]
    assert encoded(byte_level(["e x"], special, pre="llama-bpe", add_bos_token=False), "hex") == ["hex"]


def test_a_merge_whose_token_is_missing_leaves_bytes():
    metadata = byte_level(["a b"])
    metadata["tokenizer.ggml.tokens"][256] = "something else"
    assert encoded(metadata, "ab") == ["a", "b"]


def test_sentence_piece_joins_the_pair_of_the_best_token():
    assert encoded(sentence_piece(PIECES), "hello") == ["<s>", "▁hello"]
    assert encoded(sentence_piece(PIECES), "hello  hello", add_bos=False) == ["▁hello", "▁", "▁hello"]
    assert encoded(sentence_piece(PIECES | {"▁h": -0.5}), "hello", add_bos=False) == ["▁h", "e", "ll", "o"]


def test_sentence_piece_tokens_may_run_over_words():
    pieces = {"a": -1.0, "▁": -1.0, "b": -1.0, "a▁": -2.0, "a▁b": -3.0}
    assert encoded(sentence_piece(pieces), "a ba b", add_bos=False) == ["▁", "a▁b", "a▁b"]


def test_sentence_piece_puts_a_space_in_front_and_after_special_tokens():
    metadata = sentence_piece(PIECES)
    assert encoded(metadata, "hello</s>hello", parse_special=True) == ["<s>", "▁hello", "</s>", "▁hello"]
    metadata["tokenizer.ggml.add_space_prefix"] = False
    assert encoded(metadata, "hello</s>hello", parse_special=True) == ["<s>", "hello", "</s>", "hello"]


def test_empty_text_is_at_most_bos():
    assert encoded(sentence_piece(PIECES), "") == ["<s>"]
    assert encoded(byte_level(MERGES), "") == []


def test_bos_where_the_file_or_the_caller_wants_it():
    metadata = byte_level(MERGES, {"<s>": CONTROL}, bos_token_id=256 + len(MERGES))
    assert encoded(metadata, "hello") == ["hello"]
    assert encoded(metadata, "hello", add_bos=True) == ["<s>", "hello"]
    metadata["tokenizer.ggml.add_bos_token"] = True
    assert encoded(metadata, "hello") == ["<s>", "hello"]
    assert encoded(metadata, "hello", add_bos=False) == ["hello"]


def test_bos_that_the_vocabulary_lacks():
    with pytest.raises(TokenizerError, match="BOS"):
        Tokenizer.from_metadata(byte_level(MERGES)).encode("hello", add_bos=True)
    tokenizer = Tokenizer.from_metadata(byte_level(MERGES, add_bos_token=True))
    assert tokenizer.encode("hello") == tokenizer.encode("hello", add_bos=False)
    assert any("BOS" in note for note in tokenizer.notes)


def test_undecodable_bytes_become_one_replacement_character_each():
    text = b"h\xff\xfeh".decode("utf-8", "surrogateescape")
    for metadata in (byte_level(MERGES), sentence_piece(PIECES)):
        tokenizer = Tokenizer.from_metadata(metadata)
        assert tokenizer.encode(text) == tokenizer.encode("h\ufffd\ufffdh")


@given(st.text(st.characters(codec="utf-8")))
def test_byte_level_round_trip(text):
    tokenizer = Tokenizer.from_metadata(byte_level(MERGES, pre="smollm"))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="▁")))
def test_sentence_piece_round_trip(text):
    tokenizer = Tokenizer.from_metadata(sentence_piece(PIECES))
    assert tokenizer.decode(tokenizer.encode(text, add_bos=False)) == text


def test_pieces_of_each_type():
    special = {"<|x|>": CONTROL, "<b>": USER_DEFINED, "<pad>": UNUSED}
    tokenizer = Tokenizer.from_metadata(sentence_piece(PIECES, special))
    ids = {text: tokenizer.encode(text, parse_special=True, add_bos=False)[-1] for text in ("<|x|>", "<b>", "</s>")}
    assert tokenizer.piece(ids["<|x|>"]) == b""
    assert tokenizer.piece(ids["<b>"]) == b"<b>"
    assert tokenizer.piece(tokenizer.vocab_size - 1) == b""  # <pad>
    assert tokenizer.piece(3 + 0xC3) == b"\xc3"
    assert tokenizer.piece(0) == b""  # <unk>
    assert tokenizer.piece(259) == b" "
    assert tokenizer.token_type(3) == TokenType.BYTE == BYTE
    assert tokenizer.token_type(1) == TokenType.CONTROL


def test_a_byte_level_text_with_other_characters_stands_for_itself():
    tokenizer = Tokenizer.from_metadata(byte_level(special={"▁Ġx": NORMAL}))
    assert tokenizer.piece(256) == "▁ x".encode()


def test_decoding_drops_the_space_that_encoding_put_in_front():
    tokenizer = Tokenizer.from_metadata(sentence_piece(PIECES))
    hello = tokenizer.encode("hello", add_bos=False)
    assert tokenizer.decode(hello) == "hello"
    assert tokenizer.decode([*hello, *hello]) == "hello hello"
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Hi , you !", "Hi, you!"),
        ("it 's 'm n 't 're 've 'll", "it's'm n 't're've 'll"),
        ("a ' b", "a'b"),
        (" . x", ". x"),
        ("no ;change", "no ;change"),
    ],
)
def test_some_models_lose_spaces_before_punctuation(text, cleaned):
    polished = Tokenizer.from_metadata(byte_level(pre="gpt-2"))
    plain = Tokenizer.from_metadata(byte_level(pre="smollm"))
    assert polished.decode(polished.encode(text)) == cleaned
    assert plain.decode(plain.encode(text)) == text
    assert "".join(map(polished.stream().feed, polished.encode(text))) == text


@pytest.mark.parametrize("id", [-1, 263, 1 << 40])
def test_ids_outside_the_vocabulary(id):
    tokenizer = Tokenizer.from_metadata(byte_level(MERGES))
    assert tokenizer.vocab_size == 263
    for call in (tokenizer.piece, tokenizer.token_text, tokenizer.token_type, lambda id: tokenizer.decode([id])):
        with pytest.raises(TokenizerError, match=f"{id} lies outside the vocabulary of 263 tokens"):
            call(id)


def test_raw_bpe_spells_words_as_they_are():
    merges = ["a b", "▁ ab"]
    metadata = byte_level(pre="gemma4") | {
        "tokenizer.ggml.tokens": ["<bos>", *(f"<0x{byte:02X}>" for byte in range(256)), *"ab▁\n", "ab", "▁ab", "\n\n"],
        "tokenizer.ggml.merges": merges,
    }
    metadata["tokenizer.ggml.bos_token_id"] = 0
    del metadata["tokenizer.ggml.token_type"]
    assert encoded(metadata, "ab ab\n\né") == ["<bos>", "ab", "▁ab", "\n\n", "<0xC3>", "<0xA9>"]
