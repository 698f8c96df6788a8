"""The KV cache: pages of 64 rows, a page table per sequence, shared prefixes by reference count.

Per layer and page, the heads' parts lie one after the other, for K and for V (see cached_types). A page belongs to all
layers at once: page p of a sequence is page p of every layer's pool. Memory becomes physical as pages are written and
goes back to the system when they are freed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tinyllm_engine.cached_types import PAGE, cached_type
from tinyllm_engine.errors import ContextFullError, OutOfMemoryError
from tinyllm_engine.memory import Area
from tinyllm_engine.recurrent_state import StatePool

SPARE_BYTES = 32 << 20  # of the machine's memory that a cache leaves to everything else
UNASKED_BYTES = 64 << 20  # that are taken before the system is asked again


@dataclass(frozen=True)
class LayerShape:
    """What one layer keeps of a token."""

    heads: int
    k_size: int
    v_size: int


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
        starts = np.cumsum([0, *(self.pages * size for size in self.k_page_bytes + self.v_page_bytes)])
        self._area = Area(int(starts[-1]) + 64)
        self._starts = [int(start) for start in starts[:-1]]
        self._free = list(range(self.pages - 1, -1, -1))
        self._references = np.zeros(self.pages, np.int32)
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
        """Of pages and of recurrent states."""
        return self.pages_in_use * PAGE * self.bytes_per_token + self.states.bytes_in_use

    def k_address(self, layer: int) -> int:
        return self._area.address + self._starts[layer]

    def v_address(self, layer: int) -> int:
        return self._area.address + self._starts[len(self.layers) + layer]

    def take_page(self) -> int:
        """A free page, for one owner. Raises ContextFullError when none is left, OutOfMemoryError before memory is."""
        while not self._free:
            self._need_room()
        self._need_memory()
        page = self._free.pop()
        self._references[page] = 1
        return page

    def share_page(self, page: int) -> None:
        """One owner more: from now on nobody writes into it."""
        self._references[page] += 1

    def own_page(self, page: int) -> int:
        """A page with the same contents that the caller, one of its owners, may write: a copy if it has others."""
        while self._references[page] > 1 and not self._free:
            self._need_room()
        if self._references[page] == 1:
            return page
        copy = self.take_page()
        for start, size in self._parts():
            memory = self._area.bytes
            memory[start + copy * size :][:size] = memory[start + page * size :][:size]
        self.drop_page(page)
        return copy

    def page_bytes(self, page: int) -> Iterator[np.ndarray]:
        """What a page holds: uint8, K of each layer, then V of each. It can be written."""
        for start, size in self._parts():
            yield self._area.bytes[start + page * size :][:size]

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Where each layer's K lies, then each layer's V, and how many bytes of it belong to a page."""
        return zip(self._starts, self.k_page_bytes + self.v_page_bytes, strict=True)

    def _need_room(self) -> None:
        if not self.make_room():
            raise ContextFullError(f"KV cache: all {self.pages} pages of {PAGE} tokens are in use")

    def _need_memory(self) -> None:
        """Has other sequences give way before the machine's memory ends."""
        needed = PAGE * self.bytes_per_token
        while needed > self._granted and (free := self.free_memory()) is not None:
            if free >= needed + SPARE_BYTES:
                self._granted = max(needed, min(UNASKED_BYTES, (free - SPARE_BYTES) // 2))
            elif not self.make_room():
                raise OutOfMemoryError(
                    f"KV cache: {PAGE} more tokens take {needed / 1e6:.1f} MB, {free / 1e6:.0f} MB of memory are free"
                )
        self._granted -= needed

    def drop_page(self, page: int) -> None:
        """Gives one owner's claim up; the last one frees the memory."""
        self._references[page] -= 1
        if self._references[page] == 0:
            self._free.append(page)
            for start, size in self._parts():
                self._area.forget(start + page * size, size)


class PageTable:
    """The pages of one sequence, in order: `table` int64 [pages] is read by the kernels."""

    def __init__(self, cache: KVCache, context_length: int):
        self.cache = cache
        self.table = np.zeros(-(-context_length // PAGE), np.int64)
        self.count = 0

    def grow(self, length: int) -> None:
        """Takes pages until `length` tokens fit."""
        while self.count * PAGE < length:
            self.table[self.count] = self.cache.take_page()
            self.count += 1

    def own(self, begin: int) -> None:
        """Makes all pages from row `begin` on this sequence's own, so that it may write there."""
        for index in range(begin // PAGE, self.count):
            self.table[index] = self.cache.own_page(int(self.table[index]))

    def shrink(self, length: int) -> None:
        """Frees the pages behind the first `length` tokens."""
        while (self.count - 1) * PAGE >= length and self.count:
            self.count -= 1
            self.cache.drop_page(int(self.table[self.count]))

    def fork(self, length: int) -> PageTable:
        """Another table with the pages of the first `length` tokens, which both own."""
        fork = PageTable(self.cache, len(self.table) * PAGE)
        fork.count = -(-length // PAGE)
        fork.table[: fork.count] = self.table[: fork.count]
        for page in fork.table[: fork.count]:
            self.cache.share_page(int(page))
        return fork
