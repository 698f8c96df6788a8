"""Rows that layers with a sliding window still need: those of the present window, and of places one may go back to.

A layer with a window never sees what lies before it, so most of what it has cached need not stay. But who asks for
another answer, or edits a message, goes back, and can do so only where the window that was seen there is still whole.
So a sequence remembers a few places: where reading began and ended, and where somebody has gone back to before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.cached_types import PAGE

MOST_PLACES = 8  # of a sequence
PAID_PLACES = 3  # of them and the present one together, what they take if none of their windows overlap
SHARES = 2  # what all sequences may hold, in terms of what one may
BATCH_ROWS = 512  # that are written before any are given back


def window_begin(position: int, window: int) -> int:
    """The first row that the one at `position` sees; see `window` of Scoring."""
    if window < 0:
        return position - position % -window
    return max(0, position + 1 - window) if window else 0


def pages_of(begin: int, end: int) -> range:
    """The pages of a sequence in which the rows from `begin` to before `end` are."""
    return range(begin // PAGE, -(-end // PAGE))


@dataclass(frozen=True)
class Windows:
    """The different windows of a model that end within its context; none: every row stays."""

    sizes: tuple[int, ...] = ()

    @classmethod
    def within(cls, context_length: int, windows: Iterable[int]) -> Windows:
        return cls(tuple(sorted({window for window in windows if 0 < abs(window) < context_length})))

    def begin(self, position: int) -> int:
        """The first row that some layer with a window sees at `position`."""
        return min((window_begin(position, window) for window in self.sizes), default=0)

    def needed(self, length: int) -> range:
        """The pages without which nothing can be read behind the first `length` tokens."""
        return pages_of(self.begin(length), length)

    def kept(self, length: int) -> range:
        """The pages that a place keeps: what is needed there, and wherever one goes back to within a page before it."""
        return pages_of(self.begin(max(0, length - PAGE)), length)

    @property
    def pages_of_place(self) -> int:
        """So many `kept` has at most."""
        rows = max((abs(window) for window in self.sizes), default=0) + PAGE - 1
        return (rows + PAGE - 2) // PAGE + 1

    def most_pages(self, pages: int) -> int:
        """Of the `pages` of a cache, how many can be kept for layers with a window at a time."""
        if not self.sizes:
            return pages
        one = PAID_PLACES * self.pages_of_place + -(-BATCH_ROWS // PAGE)
        return min(pages, SHARES * one)


class Places:
    """Where a sequence may go back to, the latest last. Each stands for the rows of a page before it, too."""

    def __init__(self, windows: Windows, positions: Iterable[int] = ()):
        self.windows = windows
        self.positions = list(positions)

    def add(self, position: int) -> None:
        """Makes it the latest place, unless one that is there stands for it: then that is the latest."""
        if not self.windows.sizes or not position:
            return
        place = next((place for place in self.positions if place - PAGE <= position <= place), position)
        self.positions = [other for other in self.positions if not place - PAGE <= other <= place]
        self.positions.append(place)
        del self.positions[:-MOST_PLACES]

    def go_back(self, asked: int) -> None:
        """Drops the places that are over. Where somebody has gone back to once, they may again."""
        self.positions = [place for place in self.positions if place <= asked + PAGE]
        self.add(asked)

    def remove(self, begin: int, end: int) -> None:
        """What lay behind `end` lies behind `begin` now."""
        self.positions = [
            place if place <= begin else place - (end - begin) for place in self.positions if not begin < place < end
        ]

    def fork(self) -> Places:
        return Places(self.windows, self.positions)

    def kept(self, position: int, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the pages that are `held` are kept at `position`: the latest places count until they cost too much.

        The others are forgotten.
        """
        kept = np.zeros_like(held)
        self._mark(kept, position)
        most, places = PAID_PLACES * self.windows.pages_of_place, self.positions
        for count, place in enumerate(reversed(places)):
            more = kept.copy()
            self._mark(more, place)
            if np.count_nonzero(more & held) > most:
                self.positions = places[len(places) - count :]
                break
            kept = more
        return kept & held

    def _mark(self, pages: NDArray[np.bool_], length: int) -> None:
        kept = self.windows.kept(length)
        pages[kept.start : kept.stop] = True


def runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where neighbours are set: (first, behind the last)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
