"""Decode: one activation row against a weight matrix, read in place from the mapped file.

Eight stored rows advance together, so that a block's eight integer sums lie in one vector and are scaled at once. Each
output sees the same operations in the same order as in a batch (see matmul): the bits of a result depend neither on
the number of threads nor on how many rows were computed with it.
"""

import numpy as np
from numba import types
from numba.extending import overload

from tinyllm_engine.jit import inlined, kernel, record
from tinyllm_engine.kernels import unpack as u
from tinyllm_engine.kernels.arguments import MATMUL
from tinyllm_engine.kernels.partition import first_owned
from tinyllm_engine.kernels.scales import first_half, join8, second_half
from tinyllm_engine.kernels.stacks import first_input, group_at, group_count, target
from tinyllm_engine.simd import (
    add,
    and_byte,
    dot_s8,
    first_lane,
    fma,
    high_halves,
    horizontal_sum,
    load_bf16x8,
    load_f16x8,
    load_f32,
    load_f32x8,
    load_i8x16_twice,
    load_i8x32,
    load_two_i8x16,
    low_halves,
    mul,
    nibble_products,
    prefetch,
    row_products,
    shift_right_words,
    splat_at_f32x8,
    splat_f32x8,
    store,
    store_f32,
    sum_fours,
    sum_pairs,
    to_f32,
    widen,
    zero_f32x8,
    zero_i32x8,
)

ROWS = 8
AHEAD = 4096  # bytes; the hardware prefetcher alone does not keep up with blocks of odd sizes


# --- integer sums of eight rows: (sums of elements 0-15, sums of elements 16-31) -----------------------------------


@inlined
def sums_u5(a, b, c, d, e, f, g, h, x):
    """Codes up to 31: the eight products of a lane of a sum of fours stay below 2**15."""
    low = sum_fours(
        sum_pairs(row_products(a, x), row_products(b, x)), sum_pairs(row_products(c, x), row_products(d, x))
    )
    high = sum_fours(
        sum_pairs(row_products(e, x), row_products(f, x)), sum_pairs(row_products(g, x), row_products(h, x))
    )
    return widen(low_halves(low, high)), widen(high_halves(low, high))


@inlined
def sums_u6(a, b, c, d, e, f, g, h, x):
    """Codes up to 63: the four products of a lane of a sum of pairs do."""
    ab = widen(sum_pairs(row_products(a, x), row_products(b, x)))
    cd = widen(sum_pairs(row_products(c, x), row_products(d, x)))
    ef = widen(sum_pairs(row_products(e, x), row_products(f, x)))
    gh = widen(sum_pairs(row_products(g, x), row_products(h, x)))
    return fold_pairs(ab, cd, ef, gh)


@inlined
def sums_s8(a, b, c, d, e, f, g, h, x):
    """Signed codes."""
    zero = zero_i32x8()
    ab = sum_pairs(dot_s8(zero, a, x), dot_s8(zero, b, x))
    cd = sum_pairs(dot_s8(zero, c, x), dot_s8(zero, d, x))
    ef = sum_pairs(dot_s8(zero, e, x), dot_s8(zero, f, x))
    gh = sum_pairs(dot_s8(zero, g, x), dot_s8(zero, h, x))
    return fold_pairs(ab, cd, ef, gh)


@inlined
def fold_pairs(ab, cd, ef, gh):
    low, high = sum_fours(ab, cd), sum_fours(ef, gh)
    return low_halves(low, high), high_halves(low, high)


# --- one part of 32 elements, eight rows ---------------------------------------------------------------------------


def scaled(acc, sums, scales, minima, bias, x_scale, x_sum):
    """acc + (scale * sum of products + (minimum - bias * scale) * sum of x), in matmul's order."""


@overload(scaled)
def _scaled(acc, sums, scales, minima, bias, x_scale, x_sum):
    if isinstance(minima, types.NoneType):

        def without_minimum(acc, sums, scales, minima, bias, x_scale, x_sum):
            acc = fma(to_f32(sums), mul(scales, splat_at_f32x8(x_scale)), acc)
            if bias != 0:
                offset = mul(scales, splat_f32x8(-bias))
                acc = fma(offset, splat_at_f32x8(x_sum), acc)
            return acc

        return without_minimum

    def with_minimum(acc, sums, scales, minima, bias, x_scale, x_sum):
        acc = fma(to_f32(sums), mul(scales, splat_at_f32x8(x_scale)), acc)
        return fma(minima, splat_at_f32x8(x_sum), acc)

    return with_minimum


@inlined
def whole_part(acc, block, stride, part, x, x_scale, x_sum, x_half_sum, unpack, sums_of, bias):
    """Types with one scale for 32 elements."""
    c0, s0, m0 = unpack(block, part)
    c1, s1, m1 = unpack(block + stride, part)
    c2, s2, m2 = unpack(block + 2 * stride, part)
    c3, s3, m3 = unpack(block + 3 * stride, part)
    c4, s4, m4 = unpack(block + 4 * stride, part)
    c5, s5, m5 = unpack(block + 5 * stride, part)
    c6, s6, m6 = unpack(block + 6 * stride, part)
    c7, s7, m7 = unpack(block + 7 * stride, part)
    low, high = sums_of(c0, c1, c2, c3, c4, c5, c6, c7, load_i8x32(x))
    scales = join8(s0, s1, s2, s3, s4, s5, s6, s7)
    minima = join8(m0, m1, m2, m3, m4, m5, m6, m7)
    return scaled(acc, add(low, high), scales, minima, bias, x_scale, x_sum)


@inlined
def nibble_pair(first, second, x_low, x_high):
    """Sums of two rows of nibbles, one in each half: no element has to move before it is multiplied."""
    packed = load_two_i8x16(first, second)
    high = and_byte(shift_right_words(packed, np.int8(4)), u.LOW4)
    return nibble_products(and_byte(packed, u.LOW4), x_low, high, x_high)


@inlined
def nibble_part(acc, block, stride, part, x, x_scale, x_sum, x_half_sum, header, sums_of, bias):
    """Types whose block is 16 bytes of nibbles, low ones first, behind a header."""
    s0, m0, q0 = header(block)
    s1, m1, q1 = header(block + stride)
    s2, m2, q2 = header(block + 2 * stride)
    s3, m3, q3 = header(block + 3 * stride)
    s4, m4, q4 = header(block + 4 * stride)
    s5, m5, q5 = header(block + 5 * stride)
    s6, m6, q6 = header(block + 6 * stride)
    s7, m7, q7 = header(block + 7 * stride)
    x_low, x_high = load_i8x16_twice(x), load_i8x16_twice(x + 16)
    a, b = nibble_pair(q0, q4, x_low, x_high), nibble_pair(q1, q5, x_low, x_high)
    c, d = nibble_pair(q2, q6, x_low, x_high), nibble_pair(q3, q7, x_low, x_high)
    sums = widen(sum_fours(sum_pairs(a, b), sum_pairs(c, d)))  # 16 products of a lane, each up to 15 * 127
    scales = join8(s0, s1, s2, s3, s4, s5, s6, s7)
    minima = join8(m0, m1, m2, m3, m4, m5, m6, m7)
    return scaled(acc, sums, scales, minima, bias, x_scale, x_sum)


@inlined
def half_parts(acc, block, stride, part, x, x_scale, x_sum, x_half_sum, unpack, sums_of, bias):
    """Types with a scale for each 16 elements."""
    c0, s0, m0 = unpack(block, part)
    c1, s1, m1 = unpack(block + stride, part)
    c2, s2, m2 = unpack(block + 2 * stride, part)
    c3, s3, m3 = unpack(block + 3 * stride, part)
    c4, s4, m4 = unpack(block + 4 * stride, part)
    c5, s5, m5 = unpack(block + 5 * stride, part)
    c6, s6, m6 = unpack(block + 6 * stride, part)
    c7, s7, m7 = unpack(block + 7 * stride, part)
    low, high = sums_of(c0, c1, c2, c3, c4, c5, c6, c7, load_i8x32(x))
    scales = join8(
        first_half(s0), first_half(s1), first_half(s2), first_half(s3),
        first_half(s4), first_half(s5), first_half(s6), first_half(s7),
    )  # fmt: skip
    minima = join8(
        first_half(m0), first_half(m1), first_half(m2), first_half(m3),
        first_half(m4), first_half(m5), first_half(m6), first_half(m7),
    )  # fmt: skip
    acc = scaled(acc, low, scales, minima, bias, x_scale, x_half_sum)
    scales = join8(
        second_half(s0), second_half(s1), second_half(s2), second_half(s3),
        second_half(s4), second_half(s5), second_half(s6), second_half(s7),
    )  # fmt: skip
    minima = join8(
        second_half(m0), second_half(m1), second_half(m2), second_half(m3),
        second_half(m4), second_half(m5), second_half(m6), second_half(m7),
    )  # fmt: skip
    return scaled(acc, high, scales, minima, bias, x_scale, x_half_sum + 4)


@inlined
def one_part(acc, block, stride, x, x_scale, x_sum, x_half_sum, unpack, sums_of, bias, part_dot):
    """A stored block of 32 weights."""
    return part_dot(acc, block, stride, 0, x, x_scale, x_sum, x_half_sum, unpack, sums_of, bias)


@inlined
def eight_parts(acc, block, stride, x, x_scale, x_sum, x_half_sum, unpack, sums_of, bias, part_dot):
    """A stored block of 256 weights."""
    for part in range(8):
        acc = part_dot(
            acc,
            block,
            stride,
            part,
            x + 32 * part,
            x_scale + 4 * part,
            x_sum + 4 * part,
            x_half_sum + 8 * part,
            unpack,
            sums_of,
            bias,
        )
    return acc


# --- all rows ------------------------------------------------------------------------------------------------------


@inlined
def finish8(to, row, value):
    """out = scale * value + bias + residual, for eight rows; `to` is what stacks.target gives."""
    scale, bias, residual, out = to
    value = mul(value, splat_f32x8(scale))
    if bias != 0:
        value = add(value, load_f32x8(bias + 4 * row))
    if residual != 0:
        value = add(value, load_f32x8(residual + 4 * row))
    store(out + 4 * row, value)


@inlined
def finish1(to, row, value):
    """The same for one row."""
    scale, bias, residual, out = to
    value *= scale
    if bias != 0:
        value += load_f32(bias + 4 * row)
    if residual != 0:
        value += load_f32(residual + 4 * row)
    store_f32(out + 4 * row, value)


@inlined
def owned(a, thread, threads):
    """A thread's part of the outputs of all groups, counted on from group to group; and the groups it lies in."""
    total = group_count(a) * a.rows
    first, last = first_owned(total, thread, threads), first_owned(total, thread + 1, threads)
    return first, last, range(first // a.rows, (last + a.rows - 1) // a.rows)


@inlined
def matvec(thread, threads, pointer, unpack, sums_of, bias, part_dot, block_dot, block_bytes, block_elements):
    """out = W x for weights stored in blocks; block_dot says how many parts of 32 a block has."""
    a = record(pointer)
    copy = thread * a.copy_bytes
    first, last, groups = owned(a, thread, threads)
    for index in groups:
        matrix, x_row, _ = group_at(a, index)
        at = first_input(a, matrix, x_row)
        matvec_rows(
            max(first - index * a.rows, 0),
            min(last - index * a.rows, a.rows),
            a,
            a.weights + matrix * a.matrix_bytes,
            a.codes + copy + at,
            a.scales + copy + at // 8,
            a.sums + copy + at // 8,
            a.half_sums + copy + at // 4,
            target(a, matrix, x_row),
            unpack,
            sums_of,
            bias,
            part_dot,
            block_dot,
            block_bytes,
            block_elements,
        )


@inlined
def matvec_rows(
    row,
    last,
    a,
    weights,
    x,
    x_scales,
    x_sums,
    x_half_sums,
    to,
    unpack,
    sums_of,
    bias,
    part_dot,
    block_dot,
    block_bytes,
    block_elements,
):
    """Rows from `row` up to `last` of one matrix."""
    while row < last:
        # the last few rows of a matrix whose height is no multiple of 8 go one by one, each in all eight lanes
        whole = row + ROWS <= a.rows
        stride = a.row_bytes if whole else 0
        block, acc = weights + row * a.row_bytes, zero_f32x8()
        for column in range(0, a.columns, block_elements):
            for lane in range(ROWS, 2 * ROWS):
                prefetch(block + lane * stride)
            acc = block_dot(
                acc,
                block,
                stride,
                x + column,
                x_scales + column // 8,
                x_sums + column // 8,
                x_half_sums + column // 4,
                unpack,
                sums_of,
                bias,
                part_dot,
            )
            block += block_bytes
        if whole:
            finish8(to, row, acc)
        else:
            finish1(to, row, first_lane(acc))
        row += ROWS if whole else 1


@inlined
def matvec_float(thread, threads, pointer, load8, element_bytes):
    """out = W x for weights that are floats themselves, 32 at a time."""
    a = record(pointer)
    first, last, groups = owned(a, thread, threads)
    for index in groups:
        matrix, x_row, _ = group_at(a, index)
        matvec_float_rows(
            max(first - index * a.rows, 0),
            min(last - index * a.rows, a.rows),
            a,
            a.weights + matrix * a.matrix_bytes,
            a.x + thread * a.copy_bytes + 4 * first_input(a, matrix, x_row),
            target(a, matrix, x_row),
            load8,
            element_bytes,
        )


@inlined
def matvec_float_rows(first, last, a, stored, x, to, load8, element_bytes):
    """Rows from `first` up to `last` of one matrix."""
    for row in range(first, last):
        weights = stored + row * a.row_bytes
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
        finish1(to, row, horizontal_sum(add(add(s0, s1), add(s2, s3))))


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
    matvec(thread, threads, pointer, u.header_q4_0, sums_u5, u.BIAS_Q4_0, nibble_part, one_part, 18, 32)


@kernel(MATMUL)
def matvec_q4_1(thread, threads, pointer):
    matvec(thread, threads, pointer, u.header_q4_1, sums_u5, u.NO_BIAS, nibble_part, one_part, 20, 32)


@kernel(MATMUL)
def matvec_q5_0(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q5_0, sums_u5, u.BIAS_Q5_0, whole_part, one_part, 22, 32)


@kernel(MATMUL)
def matvec_q5_1(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q5_1, sums_u5, u.NO_BIAS, whole_part, one_part, 24, 32)


@kernel(MATMUL)
def matvec_q8_0(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q8_0, sums_s8, u.BIAS_Q8_0, whole_part, one_part, 34, 32)


@kernel(MATMUL)
def matvec_q4_k(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q4_k, sums_u5, u.NO_BIAS, whole_part, eight_parts, 144, 256)


@kernel(MATMUL)
def matvec_q6_k(thread, threads, pointer):
    matvec(thread, threads, pointer, u.unpack_q6_k, sums_u6, u.BIAS_Q6_K, half_parts, eight_parts, 210, 256)
