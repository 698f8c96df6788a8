"""Memory that native code shares: aligned buffers, areas that cost nothing until they are touched, and addresses."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from typing import Any

import numpy as np

from tinyllm_engine.errors import OutOfMemoryError

CACHE_LINE = 64


def aligned(shape: tuple[int, ...] | int, dtype: type | np.dtype = np.float32) -> np.ndarray:
    """A zeroed array that starts at a cache line; large ones become physical memory as they are touched."""
    shape = (shape,) if isinstance(shape, int) else shape
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def array_at(address: int, dtype: type | np.dtype, *shape: int) -> np.ndarray:
    """The numbers at an address: no copy, so it shows what is written there later."""
    dtype = np.dtype(dtype)
    raw: Any = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype).reshape(shape)


class Area:
    """Address space of `size` bytes, zero where untouched, released page by page with `forget`.

    Raises OutOfMemoryError when the system refuses.
    """

    def __init__(self, size: int):
        self.size = size
        try:
            if sys.platform == "win32":
                self._map = mmap.mmap(-1, max(1, size))
            else:
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
                self._map = mmap.mmap(-1, max(1, size), flags=flags)
        except (OSError, ValueError, OverflowError) as error:
            raise OutOfMemoryError(f"KV cache: the system refuses {size / 1e6:.0f} MB of address space") from error
        self.bytes = np.frombuffer(self._map, np.uint8)
        self.address = self.bytes.ctypes.data

    def forget(self, start: int, length: int) -> None:
        """Gives whole operating-system pages inside [start, start + length) back; they read as zero afterwards."""
        page = mmap.PAGESIZE
        first, last = -(-start // page) * page, (start + length) // page * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
