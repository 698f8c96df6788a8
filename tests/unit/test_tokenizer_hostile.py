"""Metadata that is wrong in every way: one clear line, never another exception, never a wrong tokenizer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_vocabularies import BYTE, byte_level, sentence_piece
from tinyllm_engine.errors import EngineError, TokenizerError, UnsupportedModelError
from tinyllm_engine.tokenizer import Tokenizer

TOKENS = "tokenizer.ggml.tokens"


def refusal(metadata, error=TokenizerError):
    with pytest.raises(error) as caught:
        Tokenizer.from_metadata(metadata, "some/model.gguf")
    message = str(caught.value)
    assert message.startswith("some/model.gguf: ")
    assert message.isprintable()
    return message.removeprefix("some/model.gguf: ")


@pytest.mark.parametrize("model", ["whitespace", "hybriddna", "no such\nmodel"])
def test_a_tokenizer_that_is_not_known_is_named(model):
    message = refusal(byte_level() | {"tokenizer.ggml.model": model}, UnsupportedModelError)
    assert message.startswith("tokenizer.ggml.model: ")
    assert model.split()[0] in message


def test_a_file_without_a_tokenizer():
    assert refusal({}, UnsupportedModelError) == "the file has no tokenizer (tokenizer.ggml.model is missing)"


def test_a_pre_that_is_not_known_is_named():
    assert "'my-own-pre'" in refusal(byte_level(pre="my-own-pre"), UnsupportedModelError)


@pytest.mark.parametrize("pre", [None, ""])
def test_a_missing_pre_is_the_default_with_a_note(pre):
    tokenizer = Tokenizer.from_metadata(byte_level(pre=pre))
    assert "tokenizer.ggml.pre is missing" in tokenizer.notes[0]
    assert tokenizer.encode("1234") == Tokenizer.from_metadata(byte_level(pre="default")).encode("1234")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tokens", None, "expected an array of strings, found none"),
        ("tokens", [], "expected an array of strings, found an empty array"),
        ("tokens", "a", "expected an array of strings, found a string"),
        ("tokens", np.arange(3), "expected an array of strings, found an array of int64"),
        ("tokens", ["a", 1], "expected an array of strings, found an array of strings"),
        ("token_type", np.ones(5, np.int32), "expected 256 values, one for each token, found 5"),
        ("token_type", np.ones(256, np.float32), "expected an array of integers, found an array of float32"),
        ("token_type", ["a"] * 256, "expected an array of integers, found an array of strings"),
        ("token_type", 1, "expected an array of integers, found int"),
        ("scores", np.zeros(255, np.float32), "expected 256 values, one for each token, found 255"),
        ("scores", np.full(256, np.nan), "expected numbers, found NaN for token 0"),
        ("scores", np.zeros(256, np.bool_), "expected an array of numbers, found an array of bool"),
        ("merges", None, "expected an array of strings, found none"),
        ("merges", 5, "expected an array of strings, found int"),
        ("pre", 5, "expected a string, found int"),
        ("model", True, "expected a string, found a bool"),
        ("add_bos_token", "yes", "expected true or false, found a string"),
        ("add_space_prefix", 1, "expected true or false, found int"),
        ("bos_token_id", "1", "expected an integer, found a string"),
        ("eos_token_id", True, "expected an integer, found a bool"),
    ],
)
def test_wrong_types_and_lengths(key, value, said):
    metadata = byte_level()
    metadata.pop(f"tokenizer.ggml.{key}", None)
    if value is not None:
        metadata[f"tokenizer.ggml.{key}"] = value
    assert refusal(metadata) == f"tokenizer.ggml.{key}: {said}"


def test_arrays_may_be_longer_than_the_vocabulary():
    metadata = byte_level() | {"tokenizer.ggml.token_type": np.ones(300, np.int32)}
    assert Tokenizer.from_metadata(metadata).vocab_size == 256


@pytest.mark.parametrize("text", ["<0x-1>", "<0xGG>", "<0x1>", "<0x001>", "0x41", "<0x41> "])
def test_byte_tokens_are_two_digits(text):
    metadata = sentence_piece(special={text: BYTE})
    assert refusal(metadata).startswith(
        f"{TOKENS}: expected byte tokens of the form <0xFF>, found {text!r} as token 259"
    )


def test_texts_must_differ():
    metadata = byte_level()
    metadata[TOKENS][7] = metadata[TOKENS][3]
    assert refusal(metadata) == f"{TOKENS}: expected texts that differ, found {metadata[TOKENS][3]!r} as token 3 and 7"


def test_empty_texts_get_one():
    metadata = byte_level()
    metadata[TOKENS][7] = metadata[TOKENS][9] = ""
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.token_text(7) == "[EMPTY_7]"
    assert tokenizer.piece(9) == b"[EMPTY_9]"


def test_types_that_do_not_exist_mean_nothing():
    metadata = byte_level()
    metadata["tokenizer.ggml.token_type"][:3] = [-5, 77, 0]
    tokenizer = Tokenizer.from_metadata(metadata)
    assert [tokenizer.piece(id) for id in range(3)] == [b"", b"", b""]


def test_texts_that_are_no_utf_8():
    metadata = byte_level()
    metadata[TOKENS][0] = b"\xff<".decode("utf-8", "surrogateescape")
    metadata["tokenizer.ggml.token_type"][0] = 4
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.piece(0) == b"\xff<"
    assert tokenizer.encode("\udcff<") == tokenizer.encode("\ufffd<")


def test_default_ids_beyond_a_small_vocabulary():
    tokenizer = Tokenizer.from_metadata({"tokenizer.ggml.model": "llama", TOKENS: ["a"]})
    assert tokenizer.bos_id is None
    assert tokenizer.encode("aab") == [0, 0]  # what no token spells is left out
    assert tokenizer.notes


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.text(max_size=5),
    st.lists(st.text(max_size=3), max_size=8),
    st.lists(st.floats(width=32), max_size=8).map(lambda values: np.array(values, np.float32)),
    st.lists(st.integers(-9, 9), max_size=8).map(lambda values: np.array(values, np.int32)),
)
KEYS = ["tokens", "token_type", "scores", "merges", "bos_token_id", "eos_token_id", "add_bos_token", "add_space_prefix"]


@given(
    st.sampled_from(["llama", "gpt2", "gemma4"]),
    st.sampled_from(["default", "llama-bpe", "gemma4"]),
    st.dictionaries(st.sampled_from(KEYS), VALUES),
    st.text(max_size=8),
)
def test_any_metadata_gives_a_tokenizer_or_one_line(model, pre, keys, text):
    metadata = {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}
    metadata |= {"tokenizer.ggml.model": model, "tokenizer.ggml.pre": pre}
    try:
        tokenizer = Tokenizer.from_metadata(metadata)
    except EngineError as error:
        message = str(error)
    else:
        message = ""
        ids = tokenizer.encode(text, parse_special=True)
        assert all(0 <= id < tokenizer.vocab_size for id in ids)
        tokenizer.decode(ids)
    assert message.isprintable()
