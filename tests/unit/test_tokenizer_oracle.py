"""The ids of llama.cpp itself, for random text: where llama-cpp-python is at hand."""

import random
from functools import cache

import pytest
from support import gguf_files, tiny_vocabularies
from support.llamacpp import WITHOUT_LLAMACPP, LlamaCpp, oracle_python
from support.vocabularies import shared_golden, without_golden
from tinyllm_engine.chat_template import ChatTemplate
from tinyllm_engine.chat_template.formats import format_names, format_source
from tinyllm_engine.gguf import open_gguf
from tinyllm_engine.tokenizer import Tokenizer
from tinyllm_engine.tokenizer.pretokenize import PRE_TOKENIZERS

PYTHON = oracle_python()
FOLDER = shared_golden("vocab")
pytestmark = pytest.mark.skipif(PYTHON is None, reason=WITHOUT_LLAMACPP)

CHARACTERS = [
    "abcdefghij ABC", " \n\t\r", "0123456789", ".,!?'\"-_/()[]{}<>|$", "äöüßéñçøå", "你好世界日本語한국어", "🙂👍🏽🇩🇪❤️",
    "абвгдЖЗИ", "\u200b\u200d\ufeff\u00a0\u3000\u2028\x85", "अआइहिन्दी", "مرحبا", "ǅǆῼΣςµ", "\u0301\u0308\u0327",
]  # fmt: skip
WORDS = ["  ", "   ", "\n\n", " \n ", "\r\n", "▁", "<s>", "<|im_end|>", "</s>", "<0x41>", "'s", "'LL", " 've"]
VOCABULARIES = ["deepseek-coder", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"]
UNKNOWN_TO_IT = {"mmbert"}  # to the release that was at hand
# Where ours follow the model's makers and its own do not, or say more.
OTHER_FORMATS = {"exaone4", "falcon3", "gpt-oss", "grok-2", "hunyuan-dense", "llama2", "rwkv-world", "zephyr"}


def random_text(source: random.Random) -> str:
    parts = []
    for _ in range(source.randint(1, 14)):
        kind = source.random()
        if kind < 0.12:
            parts.append(chr(source.choice([source.randrange(0xD800), source.randrange(0xE000, 0x110000)])))
        elif kind < 0.25:
            parts.append(source.choice(WORDS))
        else:
            parts.append("".join(source.choices(source.choice(CHARACTERS), k=source.randint(1, 6))))
    return "".join(parts)


@cache
def random_texts(count: int) -> list[str]:
    source = random.Random(17)
    return [random_text(source) for _ in range(count)]


@pytest.fixture(scope="module")
def llamacpp():
    with LlamaCpp(PYTHON) as oracle:
        yield oracle


def assert_equal(oracle, path, count, parse_special=False):
    with open_gguf(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    texts = random_texts(count)
    expected = oracle.tokenize(path, texts, parse_special)
    found = [tokenizer.encode(text, parse_special, add_bos=False) for text in texts]
    wrong = [(text, ours, theirs) for text, ours, theirs in zip(texts, found, expected, strict=True) if ours != theirs]
    assert not wrong, f"{len(wrong)} of {count}, the first: {wrong[0]}"


@pytest.mark.skipif(FOLDER is None, reason=without_golden("vocab"))
@pytest.mark.parametrize("parse_special", [False, True])
@pytest.mark.parametrize("name", VOCABULARIES)
def test_recorded_vocabularies(name, parse_special, llamacpp):
    assert_equal(llamacpp, FOLDER / f"ggml-vocab-{name}.gguf", 1000, parse_special)


@pytest.mark.skipif(FOLDER is None, reason=without_golden("vocab"))
@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS.keys() - UNKNOWN_TO_IT))
def test_every_way_to_split_words(pre, tmp_path, llamacpp):
    with open_gguf(FOLDER / "ggml-vocab-gpt-2.gguf") as file:
        metadata = file.metadata | {"tokenizer.ggml.pre": pre}
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(gguf_files.build(metadata))
    assert_equal(llamacpp, path, 100)


KINDS = {
    "word pieces": tiny_vocabularies.word_piece(
        *(f"▁{word}" for word in "abcdefghijäöüßéñçøå你好世界.,!?-<>|$'"), *"abcdefghij0123", "ab", "▁ab", "▁abc", "s"
    ),
    "cased word pieces": tiny_vocabularies.word_piece(
        *["▁A", "▁B", "▁a", "▁b", "A", "B", "C", "a", "b", "c", "Ж", "ж", "é", "▁é"], **{"normalizer.lowercase": False}
    ),
    "unigram": tiny_vocabularies.unigram(
        {
            text: -1.0 - number / 8
            for number, text in enumerate([*"▁abcdefghiABC012你好äé", "ab", "▁a", "cd", "▁AB", "abc"])
        },
        {"'LL": tiny_vocabularies.USER_DEFINED},
        add_space_prefix=True,
    ),
    "unigram, spaces merged": tiny_vocabularies.unigram(
        {text: -1.0 - number / 8 for number, text in enumerate([*"▁abcdefghi", "ab", "▁a", "de"])},
        add_space_prefix=True,
        remove_extra_whitespaces=True,
    ),
    "rwkv": tiny_vocabularies.rwkv(
        "<s>", r"\n", *(rf"\x{byte:02x}" for byte in range(1, 256) if byte != 10), "ab", "abc", r"\n\n", "你", r"é\xc3"
    ),
    "plamo": tiny_vocabularies.plamo(
        {text: -1.0 - number / 8 for number, text in enumerate([*" abcdefghi你好äé", "ab", " a", "cd", "abc", "你好"])}
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds(kind, tmp_path, llamacpp):
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(gguf_files.build({"general.architecture": "llama", **KINDS[kind]}))
    assert_equal(llamacpp, path, 1000)


@pytest.mark.parametrize("name", sorted(set(format_names()) - OTHER_FORMATS))
def test_chat_formats(name, llamacpp):
    special = dict.fromkeys(("<s>", "</s>"), tiny_vocabularies.CONTROL)
    tokenizer = Tokenizer.from_metadata(tiny_vocabularies.byte_level([], special, bos_token_id=256, eos_token_id=257))
    template = ChatTemplate(format_source(name), tokenizer)
    for roles in (["user"], ["system", "user"], ["system", "user", "assistant", "user"]):
        turns = [(role, f" {role}{number} \n") for number, role in enumerate(roles)]
        expected = llamacpp.format(name, turns)
        if expected is None:
            pytest.skip(f"it does not know {name}")
        prompt = template.prompt([{"role": role, "content": content} for role, content in turns])
        assert str.__str__(prompt.text) == expected
