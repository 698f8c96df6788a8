"""Counting the tokens of a text that grows under someone's fingers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

EXACT_CHARACTERS = 2000  # up to here the text is tokenized in one piece
FRESH_CHARACTERS = 8000  # tokenized in one call at most: a few milliseconds
KEPT_PIECES = 1 << 16
# In a line without an end: between a letter and a space there is a place where no tokenizer joins anything.
_STRETCH = re.compile(r".{1000,2000}?\w(?= \w)|.{1,2000}", re.DOTALL)


class DraftCounter:
    """Counts with a memory: of a long text only the lines that changed are tokenized again.

    It is taken apart where a letter or digit meets a line break (or a space, in very long lines): vocabularies have no
    tokens across such a place, so that the pieces have as many tokens as the whole. Only of text that goes on for
    thousands of characters without one is the count too high by a token for each 2000.
    """

    def __init__(self, count: Callable[[str], int], trimmed: bool = False) -> None:
        """`count` gives the number of tokens of a text, without any for its beginning. `trimmed`: white space around a
        draft is left away before the model sees it.
        """
        self._count = count
        self._trimmed = trimmed
        self._known: dict[str, int] = {}
        # Some vocabularies put a space before every text, and so before every piece.
        self._prefix = count("\n") - 1
        self._text = ""  # which is being counted
        self._rest: Iterator[str] = iter(())
        self._total = 0

    def count(self, text: str) -> int | None:
        """Tokens of `text`; None while so much of a long text is new that counting goes on with the next call."""
        if self._trimmed:
            text = text.strip()
        if len(text) <= EXACT_CHARACTERS:
            return self._of(text)
        if text != self._text:
            self._text, self._rest, self._total = text, _pieces(text), 0
        fresh = 0
        for piece in self._rest:
            if piece not in self._known:
                fresh += len(piece)
            self._total += self._of(piece)
            if fresh > FRESH_CHARACTERS:
                return None
        return self._total

    def _of(self, piece: str) -> int:
        if piece not in self._known:
            while len(self._known) >= KEPT_PIECES:
                del self._known[next(iter(self._known))]
            self._known[piece] = self._tokens(piece)
        return self._known[piece]

    def _tokens(self, piece: str) -> int:
        if self._prefix > 0 and piece.startswith(" "):
            return self._count(piece[1:])
        return self._count(piece) - (self._prefix if piece.startswith("\n") else 0)


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of a line or, where lines end with something else than a letter or digit, several."""
    piece = ""
    for number, line in enumerate(text.split("\n")):
        if number:
            if piece and piece[-1].isalnum():
                yield from _stretches(piece)
                piece = ""
            piece += "\n"
        piece += line
        if len(piece) > EXACT_CHARACTERS:
            *complete, piece = _stretches(piece)
            yield from complete
    yield from _stretches(piece)


def _stretches(piece: str) -> list[str]:
    return [piece] if len(piece) <= EXACT_CHARACTERS else _STRETCH.findall(piece)
