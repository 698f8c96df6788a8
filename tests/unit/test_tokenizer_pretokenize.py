"""How each `pre` splits text into words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import GOLDEN
from tinyllm_engine.tokenizer.byte_symbols import BYTE_SYMBOLS, from_byte_symbols, to_byte_symbols
from tinyllm_engine.tokenizer.pretokenize import PRE_TOKENIZERS
from tinyllm_engine.tokenizer.unicode_15_1 import newer

RECORDED = json.loads((GOLDEN / "pre_tokenizers.json").read_text(encoding="utf-8"))
LENGTHS = {name: group["lengths"] for group in RECORDED["words"] for name in group["pre"]}
ADDS_A_SPACE = {"mmbert"}  # not known to the llama.cpp that the words were recorded with
NAMES = sorted(PRE_TOKENIZERS.keys() - ADDS_A_SPACE)


def test_every_name_is_recorded():
    assert sorted(LENGTHS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_recorded_words(name):
    words = [[len(word) for word in PRE_TOKENIZERS[name].split(text)] for text in RECORDED["texts"]]
    assert words == LENGTHS[name]


@given(st.text(st.characters(codec="utf-8")), st.sampled_from(NAMES))
def test_words_joined_are_the_text(text, name):
    words = PRE_TOKENIZERS[name].split(text)
    assert "".join(words) == text
    assert all(words)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "It's 12345  x\n", ["It", "'s", " 12345", " ", " x", "\n"]),
        ("smollm", "It's 123", ["It", "'s", " ", "1", "2", "3"]),
        ("llama-bpe", "IT'S 12345\n\n  x", ["IT", "'S", " ", "123", "45", "\n\n", " ", " x"]),
        ("qwen2", "(it) 12", ["(it", ")", " ", "1", "2"]),
        ("deepseek-coder", "def x():\n  12", ["def", " x", "():", "\n", "  ", "1", "2"]),
        ("default", "a+b 1234", ["a", "+", "b", " ", "123", "4"]),
        ("tekken", "camelCase", ["camel", "Case"]),
        ("afmoe", "a 1234567", ["a", " ", "1", "234", "567"]),
        ("superbpe", "x1234567", ["x", "1", "234", "567"]),
        ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
        ("mmbert", "a▁b▁▁c\n\n▁d", ["▁a", "▁b", "▁", "▁c", "\n\n", "▁d"]),
        ("mmbert", "\n", ["\n"]),
    ],
)
def test_by_hand(name, text, words):
    assert PRE_TOKENIZERS[name].split(text) == words


def test_characters_newer_than_unicode_15_1_are_no_letters():
    assert not newer()[ord("a")]
    assert not newer()[ord("漢")]
    assert newer()[0x1C89]  # a letter since Unicode 16
    assert PRE_TOKENIZERS["gpt-2"].split("a\u1c89b") == ["a", "\u1c89", "b"]
    assert PRE_TOKENIZERS["gpt-2"].split("a\u1c88b") == ["a\u1c88b"]  # a letter since Unicode 9


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", {PRE_TOKENIZERS[name].rules: name for name in NAMES}.values())
def test_long_runs_are_split_in_linear_time(name):
    """It takes a third of a second; what is quadratic takes minutes, and the time limit ends it."""
    for char in " a1!漢":
        text = char * 60_000 + "x"
        assert "".join(PRE_TOKENIZERS[name].split(text)) == text


@given(st.binary())
def test_bytes_and_their_symbols(data):
    symbols = "".join(BYTE_SYMBOLS[byte] for byte in data)
    assert from_byte_symbols(symbols) == data
    assert len(set(BYTE_SYMBOLS)) == 256
    assert all(symbol.isprintable() and not symbol.isspace() for symbol in BYTE_SYMBOLS)


@given(st.text(st.characters(codec="utf-8")))
def test_text_in_symbols(text):
    assert from_byte_symbols(to_byte_symbols(text)) == text.encode()
