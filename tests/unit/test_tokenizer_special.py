"""Special tokens: where they are found, what ends an answer, and what text from outside must not become."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_vocabularies import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, byte_level, sentence_piece
from tinyllm_engine.tokenizer import Tokenizer, TokenType

SPECIAL = {"<a>": CONTROL, "<a><b>": CONTROL, "<b>": USER_DEFINED, "<?>": UNKNOWN, "\n\n": USER_DEFINED}


def tokens(metadata, text, **options):
    tokenizer = Tokenizer.from_metadata(metadata)
    return [tokenizer.token_text(id) for id in tokenizer.encode(text, **options)]


def marked(metadata, text, content):
    """Texts of the ids, and the ids' marks; `content`: which characters are, as "..##.." """
    tokenizer = Tokenizer.from_metadata(metadata)
    ids, marks = tokenizer.encode_marked(text, content.replace(".", "\0").replace("#", "\2"))
    return [tokenizer.token_text(id) for id in ids], marks.replace("\0", ".").replace("\2", "#")


def test_control_and_unknown_tokens_on_request_user_defined_ones_always():
    metadata = byte_level(special=SPECIAL)
    assert tokens(metadata, "x<a><?><b>y", parse_special=True) == ["x", "<a>", "<?>", "<b>", "y"]
    assert tokens(metadata, "x<a><?><b>y") == ["x", *"<a><?>", "<b>", "y"]


def test_the_longest_is_found_first_wherever_it_stands():
    metadata = byte_level(special={"ab": USER_DEFINED, "bcd": USER_DEFINED})
    assert tokens(metadata, "abcd") == ["a", "bcd"]
    assert tokens(metadata, "ababcd") == ["ab", "a", "bcd"]


def test_an_occurrence_inside_the_one_before_does_not_count():
    assert tokens(byte_level(special={"aa": USER_DEFINED}), "aaaaa") == ["aa", "aa", "a"]


def test_words_end_at_special_tokens():
    assert tokens(byte_level(["Ġ Ġ"], SPECIAL, pre="gpt-2"), "x  <b>  x") == ["x", "ĠĠ", "<b>", "Ġ", "Ġ", "x"]


def test_some_models_take_white_space_along():
    metadata = sentence_piece({"▁": -1.0, "x": -1.0}, {"<|end|>": CONTROL}) | {"general.name": "Phi-3 mini"}
    assert tokens(metadata, "<|end|> \n x", parse_special=True, add_bos=False) == ["<|end|>", "▁", "x"]
    assert tokens(metadata, "<s> x", parse_special=True, add_bos=False) == ["<s>", "▁", "▁", "x"]
    metadata = byte_level(special={"[MASK]": CONTROL}) | {"general.name": "modern-bert"}
    assert tokens(metadata, "x \n[MASK] x", parse_special=True) == ["x", "[MASK]", "Ġ", "x"]


@given(st.text("<ab>\n x", max_size=20), st.booleans())
def test_nothing_of_the_text_is_lost(text, parse_special):
    tokenizer = Tokenizer.from_metadata(byte_level(special=SPECIAL, pre="smollm"))
    ids = tokenizer.encode(text, parse_special=parse_special)
    spelled = b"".join(tokenizer.piece(id) or tokenizer.token_text(id).encode() for id in ids)
    assert spelled.decode() == text


def test_special_tokens_are_found_in_free_characters_only():
    metadata = byte_level(special=SPECIAL)
    assert marked(metadata, "<a>x<a>", "...#...") == (["<a>", "x", "<a>"], ".#.")
    assert marked(metadata, "<a>", "###") == (list("<a>"), "###")
    assert marked(metadata, "<a>", "..#") == (list("<a>"), "..#")
    assert marked(metadata, "<b><b>", "###...") == ([*"<b>", "<b>"], "###.")


def test_a_free_occurrence_after_one_in_content_is_found():
    assert marked(byte_level(special={"aa": CONTROL}), "aaaa", "#...") == (["a", "aa", "a"], "#..")


def test_white_space_tokens_are_found_in_content_too():
    assert marked(byte_level(special=SPECIAL), "x\n\nx", "####") == (["x", "\n\n", "x"], "###")


def test_a_token_of_both_counts_as_content():
    metadata = byte_level(["a b", "Ġ x"])
    assert marked(metadata, "ab x", ".#..") == (["ab", "Ġx"], "#.")
    assert marked(sentence_piece({"▁": -1.0, "x": -1.0, "▁x": -1.0}), "x x", "..#") == (["▁x", "▁x"], ".#")


def test_marks_hold_for_characters_of_several_bytes():
    metadata = byte_level(["Ã ©"])
    assert marked(metadata, "éaéb", ".#.#") == (["Ã©", "a", "Ã©", "b"], ".#.#")


def test_content_cannot_spell_out_a_marker_by_merges():
    metadata = sentence_piece({"<": -1.0, "s": -1.0, ">": -1.0, "▁": -1.0, "<s": -1.0}, add_space_prefix=False)
    assert tokens(metadata, "<s>", add_bos=False) == ["<s>"]  # as in llama.cpp: scores of control tokens are high
    assert marked(metadata, "<s>", "###") == (["<s", ">"], "##")
    assert marked(metadata, "x<s>", "...#")[0][-2:] == ["<s", ">"]

    metadata = byte_level(["< x"], special={"<x>": CONTROL}, pre="default")
    metadata["tokenizer.ggml.merges"] = ["x >", "< x>"]
    metadata["tokenizer.ggml.pre"] = "superbpe"  # punctuation and letters in one word
    assert tokens(metadata, "<x>") == ["<x>"]
    assert marked(metadata, "<x>", "###") == (["<", "x", ">"], "###")


def test_harmless_content_is_tokenized_as_one_text():
    metadata = byte_level(["h e", "he l", "Ġ he"], SPECIAL)
    tokenizer = Tokenizer.from_metadata(metadata)
    text = "<a> hehel\n\nhel <b>"
    ids, marks = tokenizer.encode_marked(text, "\0\0\0" + "\2" * 9 + "\0" * (len(text) - 12))
    assert ids == tokenizer.encode(text, parse_special=True)
    assert len(marks) == len(ids)


END_TEXTS = "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> "
END_TEXTS += "<|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> "
END_TEXTS += "<｜end▁of▁sentence｜> [e~["


@pytest.mark.parametrize("text", END_TEXTS.split())
def test_texts_that_end_an_answer_in_every_vocabulary(text):
    tokenizer = Tokenizer.from_metadata(byte_level(special={text: USER_DEFINED}))
    assert tokenizer.eog_ids == {256}
    assert tokenizer.token_type(256) == TokenType.CONTROL
    assert tokenizer.encode(text) != [256]


@pytest.mark.parametrize("role", ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"])
def test_roles_that_end_an_answer(role):
    tokenizer = Tokenizer.from_metadata(byte_level(special={"<x>": CONTROL}, **{f"{role}_token_id": 256}))
    assert tokenizer.eog_ids == {256}


def test_without_any_end_token_nothing_ends_an_answer():
    tokenizer = Tokenizer.from_metadata(byte_level(["a b"]))
    assert tokenizer.eog_ids == frozenset()
    assert tokenizer.bos_id is None
    assert tokenizer.eos_id is None


def test_an_end_of_turn_is_found_by_text():
    tokenizer = Tokenizer.from_metadata(byte_level(special={"<|endoftext|>": CONTROL, "<|im_end|>": CONTROL}))
    assert tokenizer.eog_ids == {256, 257}


@pytest.mark.parametrize("others", [("<|return|>", "<|call|>"), ("<|flush|>", "<|calls|>")])
def test_the_end_of_a_channel_does_not_end_the_answer(others):
    special = dict.fromkeys(("<|end|>", *others, "<|channel|>"), CONTROL)
    tokenizer = Tokenizer.from_metadata(byte_level(special=special, eos_token_id=257))
    assert 256 not in tokenizer.eog_ids
    assert tokenizer.token_type(256) == tokenizer.token_type(259) == TokenType.USER_DEFINED
    assert {257, 258} <= tokenizer.eog_ids


def test_a_normal_end_of_sequence_beside_another_end():
    tokenizer = Tokenizer.from_metadata(byte_level(special={"</s>": NORMAL, "<|tool_response>": CONTROL}))
    assert tokenizer.eog_ids == {257}
    assert tokenizer.token_type(256) == TokenType.NORMAL


def test_sentence_piece_has_default_ids():
    tokenizer = Tokenizer.from_metadata(sentence_piece())
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2)
    assert tokenizer.add_bos
    assert tokenizer.eog_ids == {2}


def test_an_id_out_of_range_is_noted_and_the_default_holds():
    tokenizer = Tokenizer.from_metadata(sentence_piece(bos_token_id=99999, eos_token_id=np.int32(2).item()))
    assert tokenizer.bos_id == 1
    assert tokenizer.notes == ("tokenizer.ggml.bos_token_id is 99999, but there are 259 tokens: ignored",)


def test_markers_are_special_tokens_that_are_not_white_space():
    tokenizer = Tokenizer.from_metadata(byte_level(special=SPECIAL | {"▁▁": USER_DEFINED}))
    texts = [tokenizer.token_text(id) for id in range(tokenizer.vocab_size) if tokenizer.is_marker(id)]
    assert texts == ["<a>", "<a><b>", "<b>", "<?>"]
