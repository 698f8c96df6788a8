"""Activations as 8-bit codes: what the integer dot products multiply the weights with.

Per block of 32: scale = max|x| / 127, codes = round(x / scale) in -127..127, and the sums of the scaled codes of the
block and of its two halves, which fold a weight's offset into one multiplication.
A number that is not finite makes the scale of its block so.
"""

import numpy as np

from tinyllm_engine.agreed import UNIT
from tinyllm_engine.jit import inlined, kernel, layout, native, record
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.simd import (
    add,
    horizontal_sum,
    largest_magnitude,
    load_f32x8,
    load_i64,
    mul,
    round_to_int,
    splat_f32x8,
    store_as_i8,
    store_f32,
)

BLOCK = UNIT  # elements that share a scale


class Codes:
    """Buffers for quantized rows, in one allocation so that each thread may have a private copy at a fixed stride.

    codes      int8    [rows, columns]
    scales     float32 [rows, columns / 32]
    sums       float32 [rows, columns / 32]   scale * sum(codes)
    half_sums  float32 [rows, columns / 16]   the same for each half of a block
    """

    def __init__(self, rows: int, columns: int, copies: int = 1):
        if columns % BLOCK:
            raise ValueError(f"quantized activations: expected a multiple of {BLOCK} columns, found {columns}")
        self.rows, self.columns = rows, columns
        blocks = rows * columns // BLOCK
        sizes = [rows * columns, 4 * blocks, 4 * blocks, 8 * blocks]
        starts = np.cumsum([0, *[-(-size // 64) * 64 for size in sizes]])
        self.copy_bytes = int(starts[-1]) if copies > 1 else 0
        self.memory = np.zeros(int(starts[-1]) * copies + 64, np.uint8)
        base = -(-self.memory.ctypes.data // 64) * 64
        self.codes, self.scales, self.sums, self.half_sums = (base + int(start) for start in starts[:4])


QUANTIZE = layout("x", "columns", "count", "codes", "scales", "sums", "half_sums")


@inlined
def quantize_block(v0, v1, v2, v3, codes, scales, sums, half_sums):
    """Quantizes 32 floats."""
    top = largest_magnitude(v0, v1, v2, v3)
    scale = top * np.float32(1.0 / 127.0)
    inverse = splat_f32x8(np.float32(127.0) / top if top > np.float32(1e-30) else np.float32(0.0))
    q0, q1 = round_to_int(mul(v0, inverse)), round_to_int(mul(v1, inverse))
    q2, q3 = round_to_int(mul(v2, inverse)), round_to_int(mul(v3, inverse))
    store_as_i8(codes, q0)
    store_as_i8(codes + 8, q1)
    store_as_i8(codes + 16, q2)
    store_as_i8(codes + 24, q3)
    low = scale * np.float32(horizontal_sum(add(q0, q1)))
    high = scale * np.float32(horizontal_sum(add(q2, q3)))
    store_f32(scales, scale)
    store_f32(sums, low + high)
    store_f32(half_sums, low)
    store_f32(half_sums + 4, high)


@native
def quantize_range(x, codes, scales, sums, half_sums, first, last):
    """Quantizes elements first..last of one row (multiples of 32)."""
    for i in range(first, last, 32):
        at, block = x + 4 * i, i // 32
        quantize_block(
            load_f32x8(at),
            load_f32x8(at + 32),
            load_f32x8(at + 64),
            load_f32x8(at + 96),
            codes + i,
            scales + 4 * block,
            sums + 4 * block,
            half_sums + 8 * block,
        )


@kernel(QUANTIZE)
def quantize(thread, threads, pointer):
    """Each thread quantizes its own part of every row."""
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    blocks = a.columns // 32
    for row in range(load_i64(a.count)):
        quantize_range(
            a.x + 4 * row * a.columns,
            a.codes + row * a.columns,
            a.scales + 4 * row * blocks,
            a.sums + 4 * row * blocks,
            a.half_sums + 8 * row * blocks,
            first,
            last,
        )
