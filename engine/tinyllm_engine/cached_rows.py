"""Rows of the cache as arrays, for what is done to them outside the forward pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.kv_cache import PAGE, KVCache
from tinyllm_engine.twin import array_at

ELEMENT = {"f32": np.float32, "f16": np.float16}


def read_keys(cache: KVCache, layer: int, pages: NDArray[np.int64]) -> NDArray[np.float32]:
    """The keys in some pages, in order: a copy, float32 [heads, k_size, rows]."""
    found = _key_pages(cache, layer)[pages].astype(np.float32)
    heads, size = found.shape[1:3]
    return np.ascontiguousarray(found.transpose(1, 2, 0, 3)).reshape(heads, size, len(pages) * PAGE)


def write_keys(cache: KVCache, layer: int, table: NDArray[np.int64], begin: int, keys: NDArray[np.float32]) -> None:
    """Puts keys [heads, k_size, rows] into a sequence's pages, from row `begin` on."""
    stored = _key_pages(cache, layer)
    for index, slots, rows in pieces(begin, keys.shape[2]):
        stored[table[index], :, :, slots] = keys[:, :, rows]


def read_values(cache: KVCache, layer: int, pages: NDArray[np.int64]) -> NDArray[np.generic]:
    """The values in some pages as they are stored: a copy, [heads, rows, what a row takes]."""
    found = _value_pages(cache, layer)[pages]
    _, heads, _, size = found.shape
    return found.transpose(1, 0, 2, 3).reshape(heads, len(pages) * PAGE, size)


def write_values(cache: KVCache, layer: int, table: NDArray[np.int64], begin: int, values: NDArray[np.generic]) -> None:
    """Puts such values into a sequence's pages, from row `begin` on."""
    stored = _value_pages(cache, layer)
    for index, slots, rows in pieces(begin, values.shape[1]):
        stored[table[index], :, slots] = values[:, rows]


def pieces(begin: int, count: int) -> list[tuple[int, slice, slice]]:
    """`count` rows from `begin` on by page: (its number in the sequence, rows in it, which of the `count` they are)."""
    found, row = [], begin
    while row < begin + count:
        until = min((row // PAGE + 1) * PAGE, begin + count)
        page = row // PAGE * PAGE
        found.append((row // PAGE, slice(row - page, until - page), slice(row - begin, until - begin)))
        row = until
    return found


def _key_pages(cache: KVCache, layer: int) -> NDArray[np.generic]:
    """[pages, heads, k_size, 64]"""
    shape = cache.layers[layer]
    return array_at(cache.k_address(layer), ELEMENT[cache.kv_type], cache.pages, shape.heads, shape.k_size, PAGE)


def _value_pages(cache: KVCache, layer: int) -> NDArray[np.generic]:
    """[pages, heads, 64, v_size]"""
    shape = cache.layers[layer]
    return array_at(cache.v_address(layer), ELEMENT[cache.kv_type], cache.pages, shape.heads, PAGE, shape.v_size)
