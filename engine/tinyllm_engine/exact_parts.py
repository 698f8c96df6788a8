"""The exact parts of pages, where rows are before a type of cached_types that quantizes whole pages has one of them.

They lie in memory of their own, as the pages do, under the same page numbers. A page that is taken has one, and loses
it when it is full and nobody goes back into it: then its memory goes back to the system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tinyllm_engine.memory import Area


class ExactParts:
    """Those of all pages of a cache. held: bool [pages], which of them are there.

    k_page_bytes, v_page_bytes: what those of a page take in each layer, 0 where its type has none
    """

    def __init__(self, pages: int, k_page_bytes: Sequence[int], v_page_bytes: Sequence[int]):
        self.k_page_bytes, self.v_page_bytes = list(k_page_bytes), list(v_page_bytes)
        sizes = self.k_page_bytes + self.v_page_bytes
        self.page_bytes = sum(sizes)
        self.held = np.zeros(pages, np.bool_)
        self._starts = [0, *np.cumsum([pages * size for size in sizes]).tolist()]
        self._area = Area(self._starts[-1] + 64)

    @property
    def bytes_in_use(self) -> int:
        return int(np.count_nonzero(self.held)) * self.page_bytes

    def k_address(self, layer: int) -> int:
        """0 where K has no exact parts."""
        return self._area.address + self._starts[layer] if self.k_page_bytes[layer] else 0

    def v_address(self, layer: int) -> int:
        layers = len(self.v_page_bytes)
        return self._area.address + self._starts[layers + layer] if self.v_page_bytes[layer] else 0

    def take(self, page: int) -> None:
        self.held[page] = self.page_bytes > 0

    def drop(self, page: int) -> None:
        if self.held[page]:
            self.held[page] = False
            for start, size in self._parts():
                self._area.forget(start + page * size, size)

    def copy(self, target: int, source: int) -> None:
        """Gives a page what another one has, nothing if that has none."""
        if not self.held[source]:
            self.drop(target)
            return
        self.take(target)
        for there, here in zip(self.bytes_of(target), self.bytes_of(source), strict=True):
            there[:] = here

    def bytes_of(self, page: int) -> Iterator[np.ndarray]:
        """What a page's part holds: uint8, K of each layer, then V of each. It can be written."""
        for start, size in self._parts():
            yield self._area.bytes[start + page * size :][:size]

    def _parts(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self.k_page_bytes + self.v_page_bytes, strict=False)
