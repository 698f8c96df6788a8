"""Rotary position embedding.

Cosines and sines of a batch row are computed once a token, not once a layer. K is rotated once, before it is cached.
"""

import math

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, record
from tinyllm_engine.simd import load_f32, load_i64, store_f32

# table[row] = magnitude * cos(position * frequency[i]), magnitude * sin(...), interleaved by pair
ROPE_TABLE = layout("frequencies", "pairs", "magnitude:f", "positions", "count", "table")

# Rotates the first 2 * pairs elements of each head: (2i, 2i + 1) when interleaved, else (i, i + pairs)
ROPE = layout("x", "heads", "head_size", "pairs", "interleaved", "table", "count")


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
    """Threads own whole heads, as where K is cached: no barrier is needed between them."""
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
