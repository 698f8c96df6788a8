"""Byte-level BPE works inside words; what a word is depends on the model: `tokenizer.ggml.pre` names the rules.

A model's rules are regular expressions that are applied one after another. Each isolates its matches within the pieces
that the ones before left; what it does not match stays as pieces too. The expressions are data of the models, in the
form that llama.cpp gives them: where it cannot tell upper from lower case beyond ASCII, neither do these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import regex

from tinyllm_engine.tokenizer.unicode_15_1 import has_newer, newer_class
from tinyllm_engine.tokenizer.vocab import SPACE

Splitter = Callable[[str], Iterable[str]]
Rule = str | Splitter


@dataclass(frozen=True)
class PreTokenizer:
    """What a `pre` name stands for.

    rules: expressions in `regex` syntax, or functions from a text to its pieces; applied in order
    ignore_merges: a word that is a token is taken whole, whatever the merges say
    add_bos: default for a file without `add_bos_token`
    clean_spaces: a decoded text loses spaces before punctuation
    byte_level: words are spelled in byte symbols; otherwise as they are, with U+2581 for a space and `<0xXX>` tokens
    whole_newlines: a run of newlines that is a token is taken whole
    force_bos: BOS comes first even where the file says otherwise
    """

    rules: tuple[Rule, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    clean_spaces: bool = True
    byte_level: bool = True
    whole_newlines: bool = False
    force_bos: bool = False

    def split(self, text: str) -> list[str]:
        """The words of a text; joined they are the text again (of mmbert: with a space in front)."""
        newer = has_newer(text)
        pieces = [text]
        for rule in self.rules:
            apply = pattern(rule, newer).split if isinstance(rule, str) else rule
            pieces = [word for piece in pieces for word in apply(piece) if word]
        return pieces


@cache
def pattern(rule: str, newer: bool) -> regex.Pattern[str]:
    """An expression in one group. `newer`: also right for text with characters that Unicode 15.1 lacks; slower."""
    if newer:
        for category in "LMNPS":
            rule = rule.replace(rf"\p{{{category}}}", rf"[\p{{{category}}}--{newer_class()}]")
    return regex.compile(f"({rule})", regex.V1)


def _any_of(*alternatives: str) -> str:
    return "|".join(alternatives)


def _number_runs(text: str, number: str) -> Iterator[tuple[int, int]]:
    for match in pattern(number, has_newer(text)).finditer(text):
        yield match.span()


def _cut(text: str, positions: Iterable[int]) -> list[str]:
    edges = [0, *positions, len(text)]
    return [text[start:stop] for start, stop in pairwise(edges)]


def _threes_from_the_right(text: str) -> list[str]:
    """A cut after the first one to three digits of a number and after each three more; none before the number."""
    ends = (
        end
        for start, stop in _number_runs(text, r"\p{N}+")
        for end in range(start + ((stop - start) % 3 or 3), stop + 1, 3)
    )
    return _cut(text, ends)


def _thousands(text: str) -> list[str]:
    """A cut wherever a multiple of three ASCII digits follows up to the end of the number."""
    starts = (
        cut for start, stop in _number_runs(text, r"[0-9]+") for cut in range(start + (stop - start) % 3, stop, 3)
    )
    return _cut(text, starts)


def _after_spaces(text: str) -> list[str]:
    """A word for each U+2581 and what follows it; the first gets one if it has none. Newlines are words as they are."""
    if not text.strip("\n"):
        return [text]
    first = "" if text.startswith(SPACE) else SPACE
    return [SPACE + word for word in (first + text).split(SPACE)[1:]]


# Parts of the expressions. The order of alternatives counts: the first that matches wins.

_CONTRACTION = r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
_MAYBE_CONTRACTION = f"(?:{_CONTRACTION})?"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKED_LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_SPACES = (r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+")  # up to the last line end; all but the last; the last or all
_ASCII_WORD_AFTER_PUNCTUATION = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_CJK = r"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"
_CJK_AND_MORE = r"[[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]--\s]+"
_NEWLINES = r"\n+"


def _cased_words(letters: str, ending: str = "") -> tuple[str, str]:
    """Words split where ASCII lower case turns to upper; `letters` is the class of both."""
    not_lower, not_upper = f"[{letters}--[a-z]]", f"[{letters}--[A-Z]]"
    before = r"[^\r\n\p{L}\p{N}]?"
    return f"{before}{not_lower}*{not_upper}+{ending}", f"{before}{not_lower}+{not_upper}*{ending}"


_GPT2 = _any_of(r"'(?:s|t|re|ve|m|ll|d)", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", r"\s+(?!\S)", r"\s+")
_LLAMA3 = _any_of(_CONTRACTION, _LETTERS, r"\p{N}{1,3}", _SYMBOLS, *_SPACES)
_QWEN2 = _any_of(_CONTRACTION, _LETTERS, r"\p{N}", _SYMBOLS, *_SPACES)
_QWEN35 = _any_of(_CONTRACTION, _MARKED_LETTERS, r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", *_SPACES)
_TEKKEN = _any_of(*_cased_words(r"\p{L}"), r"\p{N}", _SYMBOLS_AND_SLASHES, *_SPACES)
_GPT4O = _any_of(*_cased_words(r"\p{L}", _MAYBE_CONTRACTION), r"\p{N}{1,3}", _SYMBOLS_AND_SLASHES, *_SPACES)
_GRANITE_EMBEDDING = _any_of(
    *_cased_words(r"[\p{L}\p{M}]", _MAYBE_CONTRACTION), r"\p{N}{1,3}", _SYMBOLS_AND_SLASHES, *_SPACES
)
_TINY_AYA = _any_of(_MARKED_LETTERS + _MAYBE_CONTRACTION, r"\p{N}{1,3}", _SYMBOLS_AND_SLASHES, *_SPACES)
_YOUTU = _any_of(_MARKED_LETTERS + _MAYBE_CONTRACTION, r"\p{N}", _SYMBOLS_AND_SLASHES, *_SPACES)
_DEEPSEEK3_WORDS = _any_of(
    _ASCII_WORD_AFTER_PUNCTUATION, r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", r" ?[\p{P}\p{S}]+[\r\n]*", *_SPACES
)
_SPARK_WORDS = _any_of(
    _ASCII_WORD_AFTER_PUNCTUATION,
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+",
    r"[\r\n]",
    r"\s+(?!\S)",
    r"\s+",
)
_JAIS2 = _any_of(
    *(_CONTRACTION, _LETTERS, r"\p{N}{1,3}", _SYMBOLS, r"\s*[\r\n]+"),
    *(rf"\s{{{length}}}(?!\S)" for length in (512, 256, 128, 64, 32, 16, 8, 4)),
    *(r"\s{1,2}(?!\S)", r"\s"),
)
_EXAONE_MOE = _any_of(
    _CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
    *(r"\s*[\r\n]", r"\s+(?!\S)", r"\s+"),
)
_BAILING = _any_of(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])", _LETTERS, r"\p{N}", _SYMBOLS, r"\s*[\r\n]", r"\s+(?!\S)", r"\s+"
)
_SEED_CODER = _any_of(_CONTRACTION, _LETTERS, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", *_SPACES)
_HAN = r"\u4E00-\u9FFF\u3400-\u4DBF\U00020000-\U0002A6DF\U0002A700-\U0002EBEF\uF900-\uFAFF\U0002F800-\U0002FA1F"
_KIMI_K2 = _any_of(
    f"[{_HAN}]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}--[{_HAN}]]+{_MAYBE_CONTRACTION}",
    *(r"\p{N}{1,3}", _SYMBOLS, *_SPACES),
)
_AFMOE_ASIAN = (
    r"[\u4E00-\u9FFF\u3400-\u4DBF\u8C48-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F"
    r"\u2F00-\u2FDF\u0E40-\u0E7F\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+"
)
_YOUTU_ASIAN = _any_of(
    r"[\uAC00-\uD7A3\u3131-\u318E]+",
    r"[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C\u3001-\u303F\uFE30-\uFE4F]+",
    r"[\u3105-\u312F]+",
    r"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
)
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+"
_DEEPSEEK_CASED_LETTERS = (
    r"A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376"
    r"\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F"
    r"\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    r"\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D"
    r"\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4"
    r"\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    r"\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D"
    r"\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A"
    r"\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2"
    r"\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943"
)

DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
GEMMA4 = PreTokenizer((_NEWLINES,), byte_level=False, whole_newlines=True, force_bos=True)

_LLAMA3_FAMILY = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", _CJK, _DEEPSEEK3_WORDS), clean_spaces=False)

_NAMES: dict[str, PreTokenizer] = {
    "default": DEFAULT,
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": _LLAMA3_FAMILY,
    "dbrx smaug-bpe chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "glm4 glm5": PreTokenizer((_LLAMA3,), ignore_merges=True),
    "minicpm5": PreTokenizer(
        (r"\p{N}{1,3}", _any_of(_CONTRACTION, _LETTERS, r"\p{N}+", _SYMBOLS, *_SPACES)), ignore_merges=True
    ),
    "jais-2": PreTokenizer((_JAIS2,)),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2": PreTokenizer((_QWEN2,), clean_spaces=False),
    "stablelm2 megrez": PreTokenizer((_QWEN2,)),
    "ufakzeka": PreTokenizer((_any_of(_LETTERS, r"\p{N}", _SYMBOLS, *_SPACES),), clean_spaces=False),
    "laguna": PreTokenizer((_NEWLINES, _QWEN2), clean_spaces=False),
    "qwen35": PreTokenizer((_QWEN35,), clean_spaces=False),
    "bailingmoe bailingmoe2 llada-moe": PreTokenizer((_BAILING,), clean_spaces=False),
    "seed-coder": PreTokenizer((_SEED_CODER,), clean_spaces=False),
    "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code gigachat a.x-4.0 mellum modern-bert "
    "roberta-bpe mpt olmo jais exaone4": PreTokenizer((_GPT2,)),
    "trillion granite-docling": PreTokenizer((_GPT2,), clean_spaces=False),
    "starcoder refact codeshell exaone minerva-7b mellum2": PreTokenizer((r"\p{N}", _GPT2)),
    "smollm command-r": PreTokenizer((r"\p{N}", _GPT2), clean_spaces=False),
    "exaone-moe": PreTokenizer((_EXAONE_MOE,)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "chameleon": PreTokenizer(
        (
            "<sentinel:[0-9]+>",
            "IMGIMG[A-I]{1,4}Z",
            "[\t\n]|    |  ",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`\{-\~]",
            _GPT2,
        ),
        add_bos=True,
        clean_spaces=False,
    ),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_CASED_LETTERS}]+",
            r"\s?[[!-/:-\~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]--\s]+",
            r"(?<!\s)\s+\Z",
            _CJK_AND_MORE,
            r"\p{N}+",
        ),
        clean_spaces=False,
    ),
    "deepseek-coder": PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_AND_MORE, r"\p{N}"), clean_spaces=False
    ),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": _DEEPSEEK3,
    "spark2_5": PreTokenizer((r"\p{N}{1,3}", _CJK, _SPARK_WORDS, r"\p{N}"), clean_spaces=False),
    "afmoe": PreTokenizer((_threes_from_the_right, _AFMOE_ASIAN, _DEEPSEEK3_WORDS), clean_spaces=False),
    "youtu": PreTokenizer((_YOUTU_ASIAN, _YOUTU), clean_spaces=False, ignore_merges=True),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True, clean_spaces=False),
    "gpt-4o llama4 kanana2 talkie minimax-m2": PreTokenizer((_GPT4O,), clean_spaces=False),
    "granite-embed-multi-97m": PreTokenizer((_GRANITE_EMBEDDING,), clean_spaces=False, ignore_merges=True),
    "tiny_aya cohere2moe": PreTokenizer((_threes_from_the_right, _TINY_AYA), clean_spaces=False),
    "kimi-k2": PreTokenizer((_KIMI_K2,), clean_spaces=False),
    "superbpe": PreTokenizer((r"\p{N}+", _thousands), clean_spaces=False),
    "bloom gpt3-finnish": PreTokenizer((_BLOOM,)),
    "poro-chat": PreTokenizer((_BLOOM,), clean_spaces=False),
    "viking": PreTokenizer((_BLOOM, r"\p{N}"), clean_spaces=False),
    "gemma4 granite-embed-multi-311m": GEMMA4,
    "mmbert": PreTokenizer((_NEWLINES, _after_spaces), byte_level=False, whole_newlines=True),
    "sarvam-moe": PreTokenizer((_NEWLINES,), clean_spaces=False, byte_level=False),
}

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: pre for names, pre in _NAMES.items() for name in names.split()}
