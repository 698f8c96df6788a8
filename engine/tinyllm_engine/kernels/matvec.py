"""Decode: one activation row against a weight matrix, read in place from the mapped file.

Every output is one dot product along a stored row, so its bits depend neither on the thread nor on their number.
"""

import numpy as np
from numba import types
from numba.extending import overload

from tinyllm_engine.jit import inlined, kernel, record
from tinyllm_engine.kernels import unpack as u
from tinyllm_engine.kernels.arguments import MATMUL
from tinyllm_engine.kernels.partition import first_owned
from tinyllm_engine.simd import (
    add,
    dot_s8,
    dot_u7,
    fma,
    halves_f32x8,
    horizontal_sum,
    load_bf16x8,
    load_f16x8,
    load_f32,
    load_f32x8,
    load_i8x32,
    prefetch,
    splat_f32x8,
    store_f32,
    to_f32,
    zero_f32x8,
    zero_i32x8,
)

AHEAD = 4096  # bytes: the hardware prefetcher alone does not keep up with blocks of odd sizes


def spread_scale(scale, x_scale):
    """scale * x_scale in the lanes it holds for."""


def add_offset(total, offset, sums, half_sums):
    """total + offset * sum(x), for one offset a block, one for each half, or none."""


@overload(spread_scale, inline="always")
def _spread_scale(scale, x_scale):
    if isinstance(scale, types.BaseTuple):
        return lambda scale, x_scale: halves_f32x8(scale[0] * x_scale, scale[1] * x_scale)
    return lambda scale, x_scale: splat_f32x8(scale * x_scale)


@overload(add_offset, inline="always")
def _add_offset(total, offset, sums, half_sums):
    if isinstance(offset, types.NoneType):
        return lambda total, offset, sums, half_sums: total
    if isinstance(offset, types.BaseTuple):
        return lambda total, offset, sums, half_sums: (
            total + offset[0] * load_f32(half_sums) + offset[1] * load_f32(half_sums + 4)
        )
    return lambda total, offset, sums, half_sums: total + offset * load_f32(sums)


@inlined
def dot_part(acc, total, block, part, index, codes, scales, sums, half_sums, unpack, dot):
    """Adds the product of 32 weights with block `index` of the activation."""
    weights, scale, offset = unpack(block, part)
    dots = dot(zero_i32x8(), weights, load_i8x32(codes + 32 * index))
    acc = fma(to_f32(dots), spread_scale(scale, load_f32(scales + 4 * index)), acc)
    return acc, add_offset(total, offset, sums + 4 * index, half_sums + 8 * index)


@inlined
def one_part(acc, total, block, index, codes, scales, sums, half_sums, unpack, dot):
    """A stored block of 32 weights."""
    return dot_part(acc, total, block, 0, index, codes, scales, sums, half_sums, unpack, dot)


@inlined
def eight_parts(acc, total, block, index, codes, scales, sums, half_sums, unpack, dot):
    """A stored block of 256 weights; written out, so that shifts and offsets inside it are constants."""
    first = 8 * index
    acc, total = dot_part(acc, total, block, 0, first, codes, scales, sums, half_sums, unpack, dot)
    acc, total = dot_part(acc, total, block, 1, first + 1, codes, scales, sums, half_sums, unpack, dot)
    acc, total = dot_part(acc, total, block, 2, first + 2, codes, scales, sums, half_sums, unpack, dot)
    acc, total = dot_part(acc, total, block, 3, first + 3, codes, scales, sums, half_sums, unpack, dot)
    acc, total = dot_part(acc, total, block, 4, first + 4, codes, scales, sums, half_sums, unpack, dot)
    acc, total = dot_part(acc, total, block, 5, first + 5, codes, scales, sums, half_sums, unpack, dot)
    acc, total = dot_part(acc, total, block, 6, first + 6, codes, scales, sums, half_sums, unpack, dot)
    return dot_part(acc, total, block, 7, first + 7, codes, scales, sums, half_sums, unpack, dot)


@inlined
def finish(a, row, value):
    """The epilogue of one output."""
    value *= a.weight_scale
    if a.bias != 0:
        value += load_f32(a.bias + 4 * row)
    if a.residual != 0:
        value += load_f32(a.residual + 4 * row)
    store_f32(a.out + 4 * row, value)


@inlined
def matvec(thread, threads, pointer, unpack, dot, block_dot, block_bytes, block_elements):
    """out = W x for weights stored in blocks; block_dot says how many parts of 32 a block has."""
    a = record(pointer)
    copy = thread * a.copy_bytes
    codes, scales, sums, half_sums = a.codes + copy, a.scales + copy, a.sums + copy, a.half_sums + copy
    for row in range(first_owned(a.rows, thread, threads), first_owned(a.rows, thread + 1, threads)):
        block = a.weights + row * a.row_bytes
        acc, total = zero_f32x8(), np.float32(0.0)
        for index in range(a.columns // block_elements):
            prefetch(block + AHEAD)
            acc, total = block_dot(acc, total, block, index, codes, scales, sums, half_sums, unpack, dot)
            block += block_bytes
        finish(a, row, horizontal_sum(acc) + total)


@inlined
def matvec_float(thread, threads, pointer, load8, element_bytes):
    """out = W x for weights that are floats themselves, 32 at a time."""
    a = record(pointer)
    x = a.x + thread * a.copy_bytes
    for row in range(first_owned(a.rows, thread, threads), first_owned(a.rows, thread + 1, threads)):
        weights = a.weights + row * a.row_bytes
        s0, s1, s2, s3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        whole = a.columns // 32 * 32
        for k in range(0, whole, 32):
            w, v = weights + k * element_bytes, x + 4 * k
            prefetch(w + AHEAD)
            if element_bytes == 4:
                prefetch(w + AHEAD + 64)
            s0 = fma(load8(w), load_f32x8(v), s0)
            s1 = fma(load8(w + 8 * element_bytes), load_f32x8(v + 32), s1)
            s2 = fma(load8(w + 16 * element_bytes), load_f32x8(v + 64), s2)
            s3 = fma(load8(w + 24 * element_bytes), load_f32x8(v + 96), s3)
        for k in range(whole, a.columns, 8):
            s0 = fma(load8(weights + k * element_bytes), load_f32x8(x + 4 * k), s0)
        finish(a, row, horizontal_sum(add(add(s0, s1), add(s2, s3))))


@kernel(MATMUL)
def matvec_f32(thread, threads, pointer):
    matvec_float(thread, threads, pointer, load_f32x8, 4)


@kernel(MATMUL)
def matvec_f16(thread, threads, pointer):
    matvec_float(thread, threads, pointer, load_f16x8, 2)


@kernel(MATMUL)
def matvec_bf16(thread, threads, pointer):
    matvec_float(thread, threads, pointer, load_bf16x8, 2)


@kernel(MATMUL)
def matvec_q4_0(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q4_0, dot_u7, one_part, 18, 32)


@kernel(MATMUL)
def matvec_q4_1(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q4_1, dot_u7, one_part, 20, 32)


@kernel(MATMUL)
def matvec_q5_0(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q5_0, dot_u7, one_part, 22, 32)


@kernel(MATMUL)
def matvec_q5_1(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q5_1, dot_u7, one_part, 24, 32)


@kernel(MATMUL)
def matvec_q8_0(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q8_0, dot_s8, one_part, 34, 32)


@kernel(MATMUL)
def matvec_q4_k(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q4_k, dot_u7, eight_parts, 144, 256)


@kernel(MATMUL)
def matvec_q6_k(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q6_k, dot_u7, eight_parts, 210, 256)
