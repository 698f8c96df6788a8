"""Rows of the cache as arrays, for what is done to them outside the forward pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.cached_types import PAGE, k_slots, pack_k, unpack_k, v_slots
from tinyllm_engine.kv_cache import KVCache
from tinyllm_engine.twin import array_at


def read_keys(cache: KVCache, layer: int, pages: NDArray[np.int64]) -> NDArray[np.float32]:
    """The keys in some pages, in order: a copy, float32 [heads, k_size, rows]."""
    shape = cache.layers[layer]
    rows = unpack_k(cache.k_type, _key_pages(cache, layer)[pages], shape.k_size)  # [pages, heads, 64, k_size]
    return np.ascontiguousarray(rows.transpose(1, 3, 0, 2)).reshape(shape.heads, shape.k_size, len(pages) * PAGE)


def write_keys(cache: KVCache, layer: int, table: NDArray[np.int64], begin: int, keys: NDArray[np.float32]) -> None:
    """Puts keys [heads, k_size, rows] into a sequence's pages, from row `begin` on."""
    shape, stored = cache.layers[layer], _key_pages(cache, layer)
    slot_of = k_slots(cache.k_type, shape.k_size)
    for index, slots, rows in pieces(begin, keys.shape[2]):
        page = np.zeros((shape.heads, PAGE, shape.k_size), np.float32)
        page[:, slots] = keys[:, :, rows].transpose(0, 2, 1)
        written = (slots.start <= slot_of) & (slot_of < slots.stop)
        stored[table[index]][:, written] = pack_k(cache.k_type, page)[:, written]


def read_values(cache: KVCache, layer: int, pages: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The values in some pages as they are stored: a copy, [heads, rows, bytes of a row]."""
    heads = cache.layers[layer].heads
    found = _value_pages(cache, layer)[pages][:, :, _bytes_of_rows(cache, layer)]  # [pages, heads, 64, bytes]
    return found.transpose(1, 0, 2, 3).reshape(heads, len(pages) * PAGE, -1)


def write_values(cache: KVCache, layer: int, table: NDArray[np.int64], begin: int, values: NDArray[np.uint8]) -> None:
    """Puts such values into a sequence's pages, from row `begin` on."""
    stored, places = _value_pages(cache, layer), _bytes_of_rows(cache, layer)
    for index, slots, rows in pieces(begin, values.shape[1]):
        stored[table[index]][:, places[slots]] = values[:, rows]


def pieces(begin: int, count: int) -> list[tuple[int, slice, slice]]:
    """`count` rows from `begin` on by page: (its number in the sequence, rows in it, which of the `count` they are)."""
    found, row = [], begin
    while row < begin + count:
        until = min((row // PAGE + 1) * PAGE, begin + count)
        page = row // PAGE * PAGE
        found.append((row // PAGE, slice(row - page, until - page), slice(row - begin, until - begin)))
        row = until
    return found


def _key_pages(cache: KVCache, layer: int) -> NDArray[np.uint8]:
    """[pages, heads, bytes of a head]"""
    heads, size = cache.layers[layer].heads, cache.k_page_bytes[layer]
    return array_at(cache.k_address(layer), np.uint8, cache.pages, heads, size // heads)


def _value_pages(cache: KVCache, layer: int) -> NDArray[np.uint8]:
    heads, size = cache.layers[layer].heads, cache.v_page_bytes[layer]
    return array_at(cache.v_address(layer), np.uint8, cache.pages, heads, size // heads)


def _bytes_of_rows(cache: KVCache, layer: int) -> NDArray[np.int64]:
    """[64, bytes of a row]: where in a head's part of a page the bytes of each of its values lie"""
    return np.argsort(v_slots(cache.v_type, cache.layers[layer].v_size), kind="stable").reshape(PAGE, -1)
