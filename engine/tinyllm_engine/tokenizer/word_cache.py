"""Text repeats its words, so each is encoded once."""

from __future__ import annotations

from collections.abc import Callable

_WORDS = 1 << 16
_LONGEST = 64  # characters; longer ones hardly come twice


class WordCache(dict[str, list[int]]):
    """word -> ids, made on first use. The lists are shared: not to be changed."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> list[int]:
        ids = self._encode(word)
        if len(word) <= _LONGEST:
            if len(self) >= _WORDS:
                self.clear()
            self[word] = ids
        return ids
