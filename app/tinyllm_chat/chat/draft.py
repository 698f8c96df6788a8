"""Counting the tokens of a text that grows under someone's fingers."""

from __future__ import annotations

import re
from collections.abc import Callable

EXACT_CHARACTERS = 2000  # up to here the text is tokenized in one piece
FRESH_CHARACTERS = 20_000  # tokenized in one call at most: a few milliseconds
KEPT_PIECES = 1 << 16
# Tokenizers do not join text across a line break before something visible.
_PIECE = re.compile(r".{1,2000}?(?:\n(?=\S)|\Z)|.{2000}", re.DOTALL)


class DraftCounter:
    """Counts with a memory: of a long text only the lines that changed are tokenized again."""

    def __init__(self, count: Callable[[str], int]) -> None:
        """`count` gives the number of tokens of a text."""
        self._count = count
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int | None:
        """Tokens of `text`; None while so much of a long text is new that counting goes on with the next call."""
        if len(text) <= EXACT_CHARACTERS:
            return self._of(text)
        total, fresh = 0, 0
        for piece in _PIECE.findall(text):
            if piece not in self._known:
                fresh += len(piece)
                if fresh > FRESH_CHARACTERS:
                    return None
            total += self._of(piece)
        return total

    def _of(self, piece: str) -> int:
        if piece not in self._known:
            while len(self._known) >= KEPT_PIECES:
                del self._known[next(iter(self._known))]
            self._known[piece] = self._count(piece)
        return self._known[piece]
