"""A set of characters as an automaton over the bytes of UTF-8: a token can end within a character."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.grammar.rules import Ranges

DEAD, DONE = 0, -1  # where a byte leads, besides to another state: nowhere, to the end of a character

# First byte: first and last one, how many follow, which bits of the code point it has.
_LEADS = ((0xC2, 0xDF, 1, 0x1F), (0xE0, 0xEF, 2, 0x0F), (0xF0, 0xF4, 3, 0x07))
_LOWEST = (0x80, 0x800, 0x10000)  # code points by the number of bytes that follow


@lru_cache(maxsize=4096)
def byte_automaton(ranges: Ranges) -> NDArray[np.int32]:
    """int32 [states, 256]: where a byte leads from a state; state 0 is the beginning of a character."""
    states: dict[tuple[int, Ranges], int] = {}
    rows = [np.zeros(256, np.int32)]

    def state_of(following: int, rest: Ranges) -> int:
        """The state in which so many bytes follow, whose bits together lie in these ranges."""
        if not rest:
            return DEAD
        if following == 0:
            return DONE
        if (following, rest) not in states:
            states[following, rest] = len(rows)
            row = np.zeros(256, np.int32)
            rows.append(row)
            size = 1 << 6 * (following - 1)
            for low, high in rest:
                for bits in range(low // size, high // size + 1):
                    if row[0x80 + bits] == DEAD:
                        row[0x80 + bits] = state_of(following - 1, _window(rest, bits * size, size))
        return states[following, rest]

    for code in range(128):
        rows[0][code] = DONE if _window(ranges, code, 1) else DEAD
    for first, last, following, mask in _LEADS:
        size = 1 << 6 * following
        for lead in range(first, last + 1):
            start = (lead & mask) * size
            lowest = max(0, _LOWEST[following - 1] - start)
            window = _window(ranges, start, size)
            rows[0][lead] = state_of(following, tuple((max(a, lowest), b) for a, b in window if b >= lowest))
    return np.stack(rows)


def _window(ranges: Ranges, start: int, size: int) -> Ranges:
    """What of the ranges lies in [start, start + size), relative to start."""
    return tuple(
        (max(low, start) - start, min(high, start + size - 1) - start)
        for low, high in ranges
        if high >= start and low < start + size
    )
