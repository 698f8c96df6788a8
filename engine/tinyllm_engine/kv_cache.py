"""The KV cache: pages of 64 rows, a page table per sequence, shared prefixes by reference count.

Per layer and page, the heads' parts lie one after the other, for K and for V (see cached_types). A page belongs to all
layers at once: page p of a sequence is page p of every layer's pool. Memory becomes physical as pages are written and
goes back to the system when they are freed. What layers with a window have of a page, its windowed part, is owned apart
from the rest, and goes back when no sequence needs it any more (see windows). Where a type asks for it, rows are first
in exact parts (see exact_parts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.cached_types import PAGE, cached_type
from tinyllm_engine.errors import ContextFullError, OutOfMemoryError
from tinyllm_engine.exact_parts import ExactParts
from tinyllm_engine.memory import Area
from tinyllm_engine.recurrent_state import StatePool
from tinyllm_engine.windows import Windows

SPARE_BYTES = 32 << 20  # of the machine's memory that a cache leaves to everything else
UNASKED_BYTES = 64 << 20  # that are taken before the system is asked again


@dataclass(frozen=True)
class LayerShape:
    """What one layer keeps of a token, and for how long: see `window` of Scoring."""

    heads: int
    k_size: int
    v_size: int
    window: int = 0


class KVCache:
    """Pages for `capacity` tokens in all sequences together.

    k_type, v_type: a name of cached_types; v_type: the same as K's by default
    states: float32 values that each layer remembers of a whole sequence, in blocks of their own
    """

    def __init__(
        self,
        layers: list[LayerShape],
        capacity: int,
        k_type: str = "f16",
        states: Sequence[int] = (),
        v_type: str | None = None,
    ):
        self.k_type, self.v_type, self.layers = cached_type(k_type), cached_type(v_type or k_type), layers
        self.states = StatePool(states)
        self.pages = -(-capacity // PAGE)
        self.k_page_bytes = [s.heads * self.k_type.head_bytes(s.k_size) if s.heads else 0 for s in layers]
        self.v_page_bytes = [s.heads * self.v_type.head_bytes(s.v_size) if s.heads else 0 for s in layers]
        self.windows = Windows.within(capacity, [shape.window for shape in layers if shape.heads])
        self.is_windowed = [shape.window in self.windows.sizes for shape in layers]
        starts = np.cumsum([0, *(self.pages * size for size in self.k_page_bytes + self.v_page_bytes)])
        self._area = Area(int(starts[-1]) + 64)
        self._starts = [int(start) for start in starts[:-1]]
        parts = list(zip(self._starts, self.k_page_bytes + self.v_page_bytes, self.is_windowed * 2, strict=True))
        # Where each layer's K lies, then each layer's V, and how many bytes of it belong to a page.
        self._whole_parts = [(start, size) for start, size, windowed in parts if not windowed]
        self._windowed_parts = [(start, size) for start, size, windowed in parts if windowed]
        self.exact = ExactParts(
            self.pages,
            [shape.heads * self.k_type.exact_bytes(shape.k_size) if shape.heads else 0 for shape in layers],
            [shape.heads * self.v_type.exact_bytes(shape.v_size) if shape.heads else 0 for shape in layers],
        )
        self._free = list(range(self.pages - 1, -1, -1))
        self._owners = np.zeros(self.pages, np.int32)
        self._windowed_owners = np.zeros(self.pages, np.int32)  # of the page's windowed part
        self.windowed_pages_in_use = 0
        self.most_windowed_pages = self.windows.most_pages(self.pages)
        # Asked when no page is free; True: some sequence has given pages up.
        self.make_room: Callable[[], bool] = lambda: False
        # Bytes of memory that are left, None: unknown. A system that has none left ends the program without a word.
        self.free_memory: Callable[[], int | None] = lambda: None
        self._granted = 0  # bytes that may be taken without asking

    @property
    def bytes_per_token(self) -> int:
        return sum(self.k_page_bytes + self.v_page_bytes) // PAGE

    @property
    def pages_in_use(self) -> int:
        return self.pages - len(self._free)

    @property
    def bytes_in_use(self) -> int:
        """Of pages, of their exact parts, and of recurrent states."""
        pages = self.pages_in_use * _size(self._whole_parts) + self.windowed_pages_in_use * _size(self._windowed_parts)
        return pages + self.exact.bytes_in_use + self.states.bytes_in_use

    def k_address(self, layer: int) -> int:
        return self._area.address + self._starts[layer]

    def v_address(self, layer: int) -> int:
        return self._area.address + self._starts[len(self.layers) + layer]

    def take_page(self) -> int:
        """A free page, for one owner, without its windowed part.

        Raises ContextFullError when none is left, OutOfMemoryError before memory is.
        """
        while not self._free:
            self._need_room()
        self._need_memory(_size(self._whole_parts) + self.exact.page_bytes)
        page = self._free.pop()
        self._owners[page] = 1
        self.exact.take(page)
        return page

    def take_windowed(self, page: int) -> None:
        """Its windowed part, for the only owner of a page. Raises OutOfMemoryError."""
        while self.windowed_pages_in_use >= self.most_windowed_pages and self.make_room():
            pass
        self._need_memory(_size(self._windowed_parts))
        self._windowed_owners[page] = 1
        self.windowed_pages_in_use += 1

    def share_page(self, page: int, windowed: bool = False) -> None:
        """One owner more, of the windowed part, too, or not: from now on nobody writes into it."""
        self._owners[page] += 1
        self._windowed_owners[page] += windowed

    def own_page(self, page: int, windowed: bool = False) -> int:
        """A page with the same contents that the caller, one of its owners, may write: a copy if it has others.

        windowed: whether it is an owner of the windowed part; else there is none that it could write
        """
        while self._owners[page] > 1 and not self._free:
            self._need_room()
        if self._owners[page] == 1:
            return page
        copy = self.take_page()
        if windowed:
            try:
                self.take_windowed(copy)
            except OutOfMemoryError:
                self.drop_page(copy, windowed=False)
                raise
        for target, source in zip(self.page_bytes(copy, windowed), self.page_bytes(page, windowed), strict=True):
            target[:] = source
        self.exact.copy(copy, page)
        self.drop_page(page, windowed)
        return copy

    def page_bytes(self, page: int, windowed: bool = True) -> Iterator[np.ndarray]:
        """What a page holds, its windowed part only if that is wanted: uint8, in pieces that can be written."""
        for start, size in self._whole_parts + (self._windowed_parts if windowed else []):
            yield self._area.bytes[start + page * size :][:size]

    def bytes_of_page(self, windowed: bool) -> int:
        """What `page_bytes` come to."""
        return _size(self._whole_parts) + (_size(self._windowed_parts) if windowed else 0)

    def _need_room(self) -> None:
        if not self.make_room():
            raise ContextFullError(f"KV cache: all {self.pages} pages of {PAGE} tokens are in use")

    def _need_memory(self, needed: int) -> None:
        """Has other sequences give way before the machine's memory ends."""
        while needed > self._granted and (free := self.free_memory()) is not None:
            if free >= needed + SPARE_BYTES:
                self._granted = max(needed, min(UNASKED_BYTES, (free - SPARE_BYTES) // 2))
            elif not self.make_room():
                raise OutOfMemoryError(
                    f"KV cache: {PAGE} more tokens take {needed / 1e6:.1f} MB, {free / 1e6:.0f} MB of memory are free"
                )
        self._granted -= needed

    def close_page(self, page: int) -> None:
        """A page is full: its exact part goes if its only owner says so, who will not go back into it."""
        if self._owners[page] == 1:
            self.exact.drop(page)

    def drop_page(self, page: int, windowed: bool = False) -> None:
        """Gives one owner's claim up, and that to the windowed part if it has one; the last one frees the memory."""
        if windowed:
            self.drop_windowed(page)
        self._owners[page] -= 1
        if self._owners[page] == 0:
            self._free.append(page)
            self.exact.drop(page)
            self._forget(self._whole_parts, page, self._owners)

    def drop_windowed(self, page: int) -> None:
        """Gives one owner's claim to the windowed part up; the last one frees the memory."""
        self._windowed_owners[page] -= 1
        if self._windowed_owners[page] == 0:
            self.windowed_pages_in_use -= 1
            self._forget(self._windowed_parts, page, self._windowed_owners)

    def _forget(self, parts: Iterable[tuple[int, int]], page: int, owners: np.ndarray) -> None:
        """Gives memory back; with neighbours that nobody owns, for a page of the system may lie across the border."""
        first = page - 1 if page and not owners[page - 1] else page
        end = page + 2 if page + 1 < self.pages and not owners[page + 1] else page + 1
        for start, size in parts:
            self._area.forget(start + first * size, (end - first) * size)


def _size(parts: Iterable[tuple[int, int]]) -> int:
    """Bytes of a page."""
    return sum(size for _, size in parts)


class PageTable:
    """The pages of one sequence, in order: `table` int64 [pages] is read by the kernels.

    `held` bool [pages]: of which of them the sequence has the windowed part, too.
    """

    def __init__(self, cache: KVCache, context_length: int):
        self.cache = cache
        self.table = np.zeros(-(-context_length // PAGE), np.int64)
        self.held = np.zeros(len(self.table), np.bool_)
        self.count = 0

    def grow(self, length: int) -> None:
        """Takes pages until `length` tokens fit; before they are written, `hold` takes their windowed parts."""
        while self.count * PAGE < length:
            self.table[self.count] = self.cache.take_page()
            self.count += 1

    def hold(self, indices: Iterable[int]) -> None:
        """Takes the windowed parts of some pages, as far as they are missing; all of them or none."""
        before = self.held[: self.count].copy()
        try:
            for index in indices:
                if not self.held[index]:
                    self.cache.take_windowed(int(self.table[index]))
                    self.held[index] = True
        except OutOfMemoryError:
            self.keep(before)
            raise

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Gives the windowed parts of all other pages up; kept: bool [count]."""
        for index in np.flatnonzero(self.held[: self.count] & ~kept):
            self.cache.drop_windowed(int(self.table[index]))
            self.held[index] = False

    def longest(self, length: int) -> int:
        """The largest length up to this one at which the sequence can go on.

        All that layers with a window see next is held there, and it is not within a page that is closed.
        """
        if self.cache.exact.page_bytes and length % PAGE and not self.cache.exact.held[self.table[length // PAGE]]:
            length = length // PAGE * PAGE
        held, needed = self.held.tobytes(), self.cache.windows.needed
        while (missing := held.rfind(b"\0", needed(length).start, needed(length).stop)) >= 0:
            length = missing * PAGE
        return length

    def held_after_removing(self, begin: int, end: int, length: int) -> NDArray[np.bool_]:
        """Which pages of what is left of `length` tokens are held whole once rows have moved down: bool [pages]."""
        rows = np.repeat(self.held[: self.count], PAGE)[:length]
        left = np.concatenate((rows[:begin], rows[end:]))
        pages = np.append(left, np.ones(-len(left) % PAGE, np.bool_)).reshape(-1, PAGE)
        return np.logical_and.reduce(pages, axis=1)

    def own(self, begin: int) -> None:
        """Makes all pages from row `begin` on this sequence's own, so that it may write there."""
        for index in range(begin // PAGE, self.count):
            self.table[index] = self.cache.own_page(int(self.table[index]), bool(self.held[index]))

    def shrink(self, length: int) -> None:
        """Frees the pages behind the first `length` tokens."""
        while (self.count - 1) * PAGE >= length and self.count:
            self.count -= 1
            self.cache.drop_page(int(self.table[self.count]), bool(self.held[self.count]))
            self.held[self.count] = False

    def close(self, length: int, places: Iterable[int] = ()) -> None:
        """Of `length` tokens: closes all pages but the first, the last, and those within which one of `places` is."""
        if self.cache.exact.page_bytes:
            open_pages = {0, max(0, length - 1) // PAGE, *(place // PAGE for place in places if place % PAGE)}
            for index in np.flatnonzero(self.cache.exact.held[self.table[: self.count]]).tolist():
                if index not in open_pages and (index + 1) * PAGE <= length:
                    self.cache.close_page(int(self.table[index]))

    def rewritten(self, begin: int, length: int) -> None:
        """Of `length` tokens, those from `begin` on have been put here: full pages are closed, the last one is open."""
        for index in range(begin // PAGE, self.count):
            page = int(self.table[index])
            if index == 0 or (index + 1) * PAGE > length:
                self.cache.exact.take(page)
            else:
                self.cache.exact.drop(page)

    def fork(self, length: int) -> PageTable:
        """Another table with the pages of the first `length` tokens, which both own."""
        fork = PageTable(self.cache, len(self.table) * PAGE)
        fork.count = -(-length // PAGE)
        fork.table[: fork.count] = self.table[: fork.count]
        fork.held[: fork.count] = self.held[: fork.count]
        for page, held in zip(fork.table[: fork.count], fork.held, strict=False):
            self.cache.share_page(int(page), bool(held))
        return fork
