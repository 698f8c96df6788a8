"""WordPiece (`tokenizer.ggml.model` bert): words are made plain and taken apart from the left, longest piece first."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

import regex

from tinyllm_engine.tokenizer.pretokenize import pattern
from tinyllm_engine.tokenizer.unicode_15_1 import has_newer
from tinyllm_engine.tokenizer.vocab import SPACE
from tinyllm_engine.tokenizer.word_cache import WordCache

# Words of one character: punctuation, ASCII symbols, and Chinese (the fourth range begins where the original's does).
_ALONE = (
    r"\p{P}$+<=>^`|~\u4E00-\u9FFF\u3400-\u4DBF\U00020000-\U0002A6DF\U0002A700-\U0002B73F\U0002B740-\U0002B81F"
    r"\U0002B920-\U0002CEAF\uF900-\uFAFF\U0002F800-\U0002FA1F"
)
_WORDS = rf"[{_ALONE}]|[^\s{_ALONE}]+"
_ACCENTS = r"\p{M}"
_DROPPED = regex.compile(r"[[\0\uFFFD\p{Cc}\p{Cf}\p{Co}]--\s]", regex.V1)


class WordPieceEncoder:
    """Ids of a text without special tokens.

    ids: token text -> id; what begins a word is spelled with U+2581 in front
    unknown: stands for a word that cannot be spelled
    """

    def __init__(self, ids: Mapping[str, int], unknown: int | None, lowercase: bool, strip_accents: bool) -> None:
        self._ids = ids
        self._longest = max(map(len, ids), default=0)
        self._unknown = [] if unknown is None else [unknown]
        self._lowercase = lowercase
        self._strip_accents = strip_accents
        self._words = WordCache(self._encode_word)

    def encode(self, text: str) -> list[int]:
        newer, words = has_newer(text), self._words
        plain = self._plain(text, newer)
        return [id for word in pattern(_WORDS, newer).findall(plain) for id in words[word]]

    def _plain(self, text: str, newer: bool) -> str:
        text = _DROPPED.sub("", text)
        if self._strip_accents:
            text = pattern(_ACCENTS, newer).sub("", "".join(map(_first_of_decomposed, text)))
        return "".join(map(_lower, text)) if self._lowercase else text

    def _encode_word(self, word: str) -> list[int]:
        rest, ids = SPACE + word, []
        while rest:
            length = next((n for n in range(min(len(rest), self._longest), 0, -1) if rest[:n] in self._ids), 0)
            if not length:
                return self._unknown
            ids.append(self._ids[rest[:length]])
            rest = rest[length:]
        return ids


def _first_of_decomposed(char: str) -> str:
    return unicodedata.normalize("NFD", char)[0]


def _lower(char: str) -> str:
    return char.lower()[0]
