"""Words of a search: how text is put into the index, what a query means, and where a text answers it.

Words match from their beginning, without regard to case and accents. Scripts that write no spaces are indexed sign by
sign, so that any run of signs is found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

SNIPPET_LENGTH = 120  # characters
_LEAD = 32  # of them before the first match
_LONGEST_QUERY = 400  # characters; and no more words than this:
_MOST_WORDS = 24
_LINE_WINDOW = 4000  # characters of one line that are looked at for a snippet
# Thai, Lao, Burmese, Khmer, kana, Han: no spaces between words.
_SIGNS = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_SIGN = re.compile(f"([{_SIGNS}])")
_TOKEN = re.compile(r"[^\W_]+")
# Controls but newline, lone surrogates, the bidirectional controls, and the separator that is put between signs.
_UNWANTED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARK = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_SEPARATOR = "\u200b"  # of no width, and no part of a word to any tokenizer


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of one line, and the stretches of it that were searched for."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def indexed(text: str) -> str:
    """The text as it is put into the index: harmless, composed, signs apart."""
    return _SIGN.sub(rf"\1{_SEPARATOR}", _harmless(text))


def shown(text: str) -> str:
    """Indexed text as it reads."""
    return text.replace(_SEPARATOR, "")


def folded(text: str) -> str:
    """Without case and accents."""
    if text.isascii():
        return text.lower()
    return _MARK.sub("", unicodedata.normalize("NFKD", text)).casefold()


def is_query(text: str) -> bool:
    """Is that enough to search for? One letter of an alphabet is the beginning of something."""
    words = text.split()
    return bool(words) and not (len(words) == 1 and _is_letter(words[0]))


class Query:
    """What is searched for: every word must occur. Nothing in the text of a query is syntax."""

    def __init__(self, text: str) -> None:
        words = indexed(text[:_LONGEST_QUERY].replace("\n", " ")).split()
        self.words = tuple(word for word in words if _TOKEN.search(word))[:_MOST_WORDS]
        self._patterns = [_pattern(word) for word in self.words]
        # Looked for before the pattern: that is ten times as fast.
        self._firsts = [_TOKEN.findall(folded(shown(word)))[0] for word in self.words]

    def __bool__(self) -> bool:
        return bool(self.words)

    @property
    def match(self) -> str:
        """The query for FTS5: a quoted phrase for each word, its last token open at the end if it is not a letter."""
        return " AND ".join('"' + word.replace('"', '""') + ('"' if _is_letter(word) else '"*') for word in self.words)

    @property
    def parts(self) -> list[str]:
        """What folded text must contain, each somewhere."""
        return [token for word in self.words for token in _TOKEN.findall(folded(shown(word)))]

    def answered_by(self, line: str) -> bool:
        """Does a line have all the words?"""
        plain = folded(line)
        return all(pattern.search(plain) for pattern in self._patterns)

    def best(self, texts: Sequence[str]) -> int | None:
        """Which of some texts has most of the words, the first of several; None: none has any."""
        counts = [sum(pattern.search(plain) is not None for pattern in self._patterns) for plain in map(folded, texts)]
        most = max(counts, default=0)
        return counts.index(most) if most else None

    def snippet(self, text: str) -> Snippet:
        """The piece of `text` where most of the words are; its beginning where none is."""
        best, most, place = "", 0, 0
        for line in text.split("\n"):
            line = line[:_LINE_WINDOW]
            plain = folded(line)
            found = [
                match.start()
                for first, pattern in zip(self._firsts, self._patterns, strict=True)
                if first in plain and (match := pattern.search(plain))
            ]
            if len(found) > most:
                best, most = line, len(found)
                place = min(found) if len(plain) == len(line) else _folded_with_origins(line)[1][min(found)]
                if most == len(self._patterns):
                    break
        if not most:
            return Snippet(" ".join(text[:_LINE_WINDOW].split())[:SNIPPET_LENGTH])
        return self._cut(best, place)

    def marks(self, line: str) -> tuple[tuple[int, int], ...]:
        """Where the words stand in a line: stretches of its characters, in order, none touching another."""
        plain, origins = _folded_with_origins(line)
        hit: set[int] = set()
        for pattern in self._patterns:
            for match in pattern.finditer(plain):
                hit.update(origins[match.start() : match.end()])
        stretches: list[tuple[int, int]] = []
        for index in sorted(hit):
            if stretches and stretches[-1][1] == index:
                stretches[-1] = (stretches[-1][0], index + 1)
            else:
                stretches.append((index, index + 1))
        return tuple(stretches)

    def _cut(self, line: str, place: int) -> Snippet:
        """What stands around a place of a line, from the beginning of a word on."""
        start = max(0, place - _LEAD)
        if start:
            space = line.find(" ", start, place)
            start = space + 1 if space >= 0 else start
        piece = " ".join(line[start : start + SNIPPET_LENGTH].split())
        text = ("… " if start else "") + piece + (" …" if start + SNIPPET_LENGTH < len(line) else "")
        return Snippet(text, self.marks(text))


def _is_letter(word: str) -> bool:
    """One letter of an alphabet: half of all texts have a word that begins with it."""
    return len(word) == 1 and word.isalpha() and not _SIGN.match(word)


def _harmless(text: str) -> str:
    return unicodedata.normalize("NFKC", _UNWANTED.sub(" ", text))


def _pattern(word: str) -> re.Pattern[str]:
    """Finds a word in folded text: its tokens in order, with anything between them that is no word."""
    tokens = [re.escape(token) for token in _TOKEN.findall(folded(shown(word)))]
    start = "" if _SIGN.match(word) else r"(?<![^\W_])"
    end = r"(?![^\W_])" if _is_letter(word) else ""
    return re.compile(start + r"[\W_]+".join(tokens) + end)


def _folded_with_origins(line: str) -> tuple[str, list[int]]:
    """The folded line, and for each of its characters the index of the one that it comes from."""
    if line.isascii():
        return line.lower(), list(range(len(line)))
    pieces, origins = [], []
    for index, character in enumerate(line):
        piece = folded(character)
        pieces.append(piece)
        origins.extend([index] * len(piece))
    return "".join(pieces), origins
