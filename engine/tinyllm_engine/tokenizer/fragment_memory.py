"""A prompt repeats the one before it, so each fragment of it is encoded once."""

from __future__ import annotations

import threading
from collections.abc import Callable

MOST_CHARACTERS = 1 << 20
ENTRY = 100  # what remembering a fragment costs besides its characters, in characters

Encoded = tuple[list[int], str]  # ids, and the mark of each; shared: not to be changed


class FragmentMemory:
    """(text, marks) -> ids and their marks, made on first use; those that were used least recently are forgotten.

    For any number of threads. most: characters that are remembered
    """

    def __init__(self, encode: Callable[[str, str], Encoded], most: int = MOST_CHARACTERS) -> None:
        self._encode = encode
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Encoded] = {}
        self._characters = 0

    def __call__(self, text: str, marks: str) -> Encoded:
        key = (text, marks)
        with self._lock:
            known = self._known.pop(key, None)
            if known is not None:
                self._known[key] = known
                return known
        encoded = self._encode(text, marks)
        with self._lock:
            if key not in self._known:
                self._known[key] = encoded
                self._characters += len(text) + ENTRY
            while self._characters > self._most:
                text, _ = forgotten = next(iter(self._known))
                del self._known[forgotten]
                self._characters -= len(text) + ENTRY
        return encoded
