"""The KV cache: pages of 64 rows, a page table per sequence, shared prefixes by reference count.

Per layer and page, K lies as [head][element][64 rows] and V as [head][64 rows][element]. A page belongs to all layers
at once: page p of a sequence is page p of every layer's pool. Memory becomes physical as pages are written and goes
back to the system when they are freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinyllm_engine.errors import ContextFullError, UnsupportedModelError
from tinyllm_engine.memory import Area
from tinyllm_engine.recurrent_state import StatePool

PAGE = 64
ELEMENT_BYTES = {"f32": 4, "f16": 2}


@dataclass(frozen=True)
class LayerShape:
    """What one layer keeps of a token."""

    heads: int
    k_size: int
    v_size: int


class KVCache:
    """Pages for `capacity` tokens in all sequences together.

    kv_type: the type of K and V: f32 or f16.
    states: float32 values that each layer remembers of a whole sequence, in blocks of their own
    """

    def __init__(self, layers: list[LayerShape], capacity: int, kv_type: str = "f16", states: Sequence[int] = ()):
        if kv_type not in ELEMENT_BYTES:
            raise UnsupportedModelError(f"KV cache type: expected {' or '.join(ELEMENT_BYTES)}, found {kv_type!r}")
        self.kv_type, self.layers = kv_type, layers
        self.states = StatePool(states)
        self.element_bytes = ELEMENT_BYTES[kv_type]
        self.pages = -(-capacity // PAGE)
        self.k_page_bytes = [PAGE * s.heads * s.k_size * self.element_bytes for s in layers]
        self.v_page_bytes = [PAGE * s.heads * s.v_size * self.element_bytes for s in layers]
        starts = np.cumsum([0, *(self.pages * size for size in self.k_page_bytes + self.v_page_bytes)])
        self._area = Area(int(starts[-1]) + 64)
        self._starts = [int(start) for start in starts[:-1]]
        self._free = list(range(self.pages - 1, -1, -1))
        self._references = np.zeros(self.pages, np.int32)

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
        """A free page, for one owner. Raises ContextFullError when none is left."""
        if not self._free:
            raise ContextFullError(f"KV cache: all {self.pages} pages of {PAGE} tokens are in use")
        page = self._free.pop()
        self._references[page] = 1
        return page

    def drop_page(self, page: int) -> None:
        """Gives one owner's claim up; the last one frees the memory."""
        self._references[page] -= 1
        if self._references[page] == 0:
            self._free.append(page)
            for start, size in zip(self._starts, self.k_page_bytes + self.v_page_bytes, strict=True):
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

    def shrink(self, length: int) -> None:
        """Frees the pages behind the first `length` tokens."""
        while (self.count - 1) * PAGE >= length and self.count:
            self.count -= 1
            self.cache.drop_page(int(self.table[self.count]))
