"""Rows of the cache as arrays, for what is done to them outside the forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.cached_types import (
    CACHED_TYPES,
    PAGE,
    CachedType,
    k_slots,
    pack_k,
    read_k,
    read_v,
    unpack_k,
    v_slots,
    write_k,
    write_v,
)
from tinyllm_engine.kv_cache import KVCache
from tinyllm_engine.memory import array_at

Rows = NDArray[np.float32]


def read_keys(cache: KVCache, layer: int, pages: NDArray[np.int64]) -> Rows:
    """The keys in some pages, in order: a copy, float32 [heads, k_size, rows]."""
    shape, kind = cache.layers[layer], cache.k_type
    rows = unpack_k(kind, _key_pages(cache, layer)[pages], shape.k_size)  # [pages, heads, 64, k_size]
    if kind.exact:
        held = cache.exact.held[pages]
        rows[held] = read_k(CACHED_TYPES[kind.exact], _exact_keys(cache, layer)[pages[held]], shape.k_size)
    return np.ascontiguousarray(rows.transpose(1, 3, 0, 2)).reshape(shape.heads, shape.k_size, len(pages) * PAGE)


def write_keys(cache: KVCache, layer: int, table: NDArray[np.int64], begin: int, keys: Rows) -> None:
    """Puts keys [heads, k_size, rows] into a sequence's pages, from row `begin` on.

    Types with exact parts: within the first page that is written, the rows before are in its exact part; a page whose
    last row is written is closed.
    """
    kind, size, stored = cache.k_type, cache.layers[layer].k_size, _key_pages(cache, layer)
    for index, slots, rows in pieces(begin, keys.shape[2]):
        page, new = table[index], keys[:, :, rows].transpose(0, 2, 1)
        if kind.exact:
            exact = CACHED_TYPES[kind.exact]
            _put(index, slots, new, stored[page], _exact_keys(cache, layer)[page], (kind, exact, read_k, write_k))
            continue
        whole = np.zeros((len(new), PAGE, size), np.float32)
        whole[:, slots] = new
        slot_of = k_slots(kind, size)
        written = (slots.start <= slot_of) & (slot_of < slots.stop)
        stored[page][:, written] = pack_k(kind, whole)[:, written]


def read_values(cache: KVCache, layer: int, pages: NDArray[np.int64]) -> NDArray[Any]:
    """The values in some pages, in order: a copy, as they are stored: uint8 [heads, rows, bytes of a row].

    Types with exact parts: float32 [heads, rows, v_size], turned.
    """
    shape, kind = cache.layers[layer], cache.v_type
    found: NDArray[Any]  # [pages, heads, 64, numbers or bytes]
    if kind.exact:
        held, found = cache.exact.held[pages], read_v(kind, _value_pages(cache, layer)[pages], shape.v_size)
        found[held] = read_v(CACHED_TYPES[kind.exact], _exact_values(cache, layer)[pages[held]], shape.v_size)
    else:
        found = _value_pages(cache, layer)[pages][:, :, _bytes_of_rows(cache, layer)]
    return found.transpose(1, 0, 2, 3).reshape(shape.heads, len(pages) * PAGE, -1)


def write_values(cache: KVCache, layer: int, table: NDArray[np.int64], begin: int, values: NDArray[Any]) -> None:
    """Puts such values into a sequence's pages, from row `begin` on, like `write_keys`."""
    kind, stored = cache.v_type, _value_pages(cache, layer)
    for index, slots, rows in pieces(begin, values.shape[1]):
        page, new = table[index], values[:, rows]
        if kind.exact:
            exact = CACHED_TYPES[kind.exact]
            _put(index, slots, new, stored[page], _exact_values(cache, layer)[page], (kind, exact, read_v, write_v))
        else:
            stored[page][:, _bytes_of_rows(cache, layer)[slots]] = new


Ways = tuple[CachedType, CachedType, Any, Any]  # the type, that of its exact parts, how both are read and written


def _put(index: int, slots: slice, rows: Rows, page: NDArray[np.uint8], part: NDArray[np.uint8], ways: Ways) -> None:
    """Rows [heads, rows, size] go into a page, and those of the first and of a page that is not full into `part`."""
    kind, exact, read, write = ways
    whole = np.zeros((len(rows), PAGE, rows.shape[-1]), np.float32)
    if slots.start:
        whole[:, : slots.start] = read(exact, part, rows.shape[-1])[:, : slots.start]
    whole[:, slots] = rows
    written = write(exact, whole)
    if slots.stop == PAGE:
        page[:] = write(kind, read(exact, written, rows.shape[-1]))
    if index == 0 or slots.stop < PAGE:
        part[:] = written


def reopen(cache: KVCache, page: int) -> None:
    """Fills the exact part of a page that was closed with what its codes stand for, so that one can go back into it."""
    for layer, shape in enumerate(cache.layers):
        if shape.heads and cache.k_type.exact:
            rows = read_k(cache.k_type, _key_pages(cache, layer)[page], shape.k_size)
            _exact_keys(cache, layer)[page] = write_k(CACHED_TYPES[cache.k_type.exact], rows)
        if shape.heads and cache.v_type.exact:
            rows = read_v(cache.v_type, _value_pages(cache, layer)[page], shape.v_size)
            _exact_values(cache, layer)[page] = write_v(CACHED_TYPES[cache.v_type.exact], rows)
    cache.exact.take(page)


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


def _exact_keys(cache: KVCache, layer: int) -> NDArray[np.uint8]:
    heads, size = cache.layers[layer].heads, cache.exact.k_page_bytes[layer]
    return array_at(cache.exact.k_address(layer), np.uint8, cache.pages, heads, size // heads)


def _exact_values(cache: KVCache, layer: int) -> NDArray[np.uint8]:
    heads, size = cache.layers[layer].heads, cache.exact.v_page_bytes[layer]
    return array_at(cache.exact.v_address(layer), np.uint8, cache.pages, heads, size // heads)


def _bytes_of_rows(cache: KVCache, layer: int) -> NDArray[np.int64]:
    """[64, bytes of a row]: where in a head's part of a page the bytes of each of its values lie"""
    return np.argsort(v_slots(cache.v_type, cache.layers[layer].v_size), kind="stable").reshape(PAGE, -1)
