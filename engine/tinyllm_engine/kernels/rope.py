"""Rotary position embedding, and the place of keys and values in the cache.

Cosines and sines of a batch row are computed once a token, not once a layer. K is rotated once, when it is written.
"""

import math

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, record
from tinyllm_engine.simd import load_f32, load_f32x8, load_i64, store, store_f16x8, store_f32, store_half

# table[row] = magnitude * cos(position * frequency[i]), magnitude * sin(...), interleaved by pair
ROPE_TABLE = layout("frequencies", "pairs", "magnitude:f", "positions", "count", "table")

# Rotates the first 2 * pairs elements of each head: (2i, 2i + 1) when interleaved, else (i, i + pairs)
ROPE = layout("x", "heads", "head_size", "pairs", "interleaved", "table", "count")

# Writes one K and one V row per batch row into the pages of its sequence (see kv_cache)
APPEND = layout(
    "k",
    "v",
    "heads",
    "k_size",  # elements of a key head
    "v_size",
    "k_pages",
    "v_pages",
    "k_page_bytes",
    "v_page_bytes",
    "positions",
    "tables",  # address of the page tables' addresses, one a row
    "count",
)
PAGE = 64  # rows


@kernel(ROPE_TABLE)
def rope_table(thread, threads, pointer):
    a = record(pointer)
    for row in range(thread, load_i64(a.count), threads):
        position = np.float32(load_i64(a.positions + 8 * row))
        table = a.table + 8 * row * a.pairs
        for i in range(a.pairs):
            angle = np.float64(position * load_f32(a.frequencies + 4 * i))
            store_f32(table + 8 * i, np.float32(math.cos(angle)) * a.magnitude)
            store_f32(table + 8 * i + 4, np.float32(math.sin(angle)) * a.magnitude)


@inlined
def rotate_pair(first, second, angle):
    c, s = load_f32(angle), load_f32(angle + 4)
    x, y = load_f32(first), load_f32(second)
    store_f32(first, x * c - y * s)
    store_f32(second, x * s + y * c)


@kernel(ROPE)
def rope(thread, threads, pointer):
    """Threads own whole heads, as in `append`: no barrier is needed between them."""
    a = record(pointer)
    for row in range(load_i64(a.count)):
        table = a.table + 8 * row * a.pairs
        for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
            x = a.x + 4 * (row * a.heads + head) * a.head_size
            if a.interleaved != 0:
                for i in range(a.pairs):
                    rotate_pair(x + 8 * i, x + 8 * i + 4, table + 8 * i)
            else:
                for i in range(a.pairs):
                    rotate_pair(x + 4 * i, x + 4 * (i + a.pairs), table + 8 * i)


@inlined
def append(thread, threads, pointer, store_k, store_v8, element_bytes):
    """K goes into its page transposed, [element][row of the page]: scores of neighbouring keys are then neighbours."""
    a = record(pointer)
    for row in range(load_i64(a.count)):
        position = load_i64(a.positions + 8 * row)
        page = load_i64(load_i64(a.tables + 8 * row) + 8 * (position // PAGE))
        slot = position % PAGE
        for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
            k = a.k + 4 * (row * a.heads + head) * a.k_size
            k_page = a.k_pages + page * a.k_page_bytes + head * a.k_size * PAGE * element_bytes
            for i in range(a.k_size):
                store_k(k_page + (i * PAGE + slot) * element_bytes, load_f32(k + 4 * i))
            v = a.v + 4 * (row * a.heads + head) * a.v_size
            v_page = a.v_pages + page * a.v_page_bytes + (head * PAGE + slot) * a.v_size * element_bytes
            for i in range(0, a.v_size, 8):
                store_v8(v_page + i * element_bytes, load_f32x8(v + 4 * i))


@kernel(APPEND)
def append_f16(thread, threads, pointer):
    append(thread, threads, pointer, store_half, store_f16x8, 2)


@kernel(APPEND)
def append_f32(thread, threads, pointer):
    append(thread, threads, pointer, store_f32, store, 4)
