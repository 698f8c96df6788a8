"""Decode: one activation row against a weight matrix, read in place from the mapped file.

Eight stored rows advance together, so that a block's eight integer sums lie in one vector and are scaled at once. Each
output sees the same operations in the same order as in a batch (see matmul): the bits of a result depend neither on
the number of threads nor on how many rows were computed with it.
"""

import numpy as np
from numba import types
from numba.extending import overload

from tinyllm_engine.jit import inlined, kernel, record
from tinyllm_engine.kernels import row_scales as r
from tinyllm_engine.kernels import unpack as u
from tinyllm_engine.kernels.arguments import MATMUL
from tinyllm_engine.kernels.partition import first_owned
from tinyllm_engine.kernels.row_scales import ROWS
from tinyllm_engine.kernels.scales import cleared, first_half, second_half
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
    """acc + (scale * sum of products + (minimum - bias * scale) * sum of x), in matmul's order.

    sums, scales, minima: vectors of eight rows, or pairs of them where each 16 elements have a scale of their own
    """


@overload(scaled)
def _scaled(acc, sums, scales, minima, bias, x_scale, x_sum):
    if isinstance(sums, types.BaseTuple):

        def in_halves(acc, sums, scales, minima, bias, x_scale, x_sum):
            acc = scaled(acc, sums[0], scales[0], first_half(minima), bias, x_scale, x_sum)
            return scaled(acc, sums[1], scales[1], second_half(minima), bias, x_scale, x_sum + 4)

        return in_halves
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
def sums_in_halves(block, stride, part, x, unpack, sums_of):
    """Integer sums of eight rows: of elements 0-15 and of elements 16-31."""
    return sums_of(
        unpack(block, part)[0],
        unpack(block + stride, part)[0],
        unpack(block + 2 * stride, part)[0],
        unpack(block + 3 * stride, part)[0],
        unpack(block + 4 * stride, part)[0],
        unpack(block + 5 * stride, part)[0],
        unpack(block + 6 * stride, part)[0],
        unpack(block + 7 * stride, part)[0],
        load_i8x32(x),
    )


@inlined
def sums_of_all(block, stride, part, x, unpack, sums_of):
    """The same of all 32 elements."""
    low, high = sums_in_halves(block, stride, part, x, unpack, sums_of)
    return add(low, high)


@inlined
def nibble_pair(first, second, x_low, x_high):
    """Sums of two rows of nibbles, one in each half: no element has to move before it is multiplied."""
    packed = load_two_i8x16(first, second)
    high = and_byte(shift_right_words(packed, np.int8(4)), u.LOW4)
    return nibble_products(and_byte(packed, u.LOW4), x_low, high, x_high)


@inlined
def sums_of_nibbles(block, stride, part, x, nibbles_at, sums_of):
    """The same where a block is 16 bytes of nibbles, low ones first, behind a header."""
    q0 = block + nibbles_at
    q1, q2, q3, q4 = q0 + stride, q0 + 2 * stride, q0 + 3 * stride, q0 + 4 * stride
    x_low, x_high = load_i8x16_twice(x), load_i8x16_twice(x + 16)
    a, b = nibble_pair(q0, q4, x_low, x_high), nibble_pair(q1, q4 + stride, x_low, x_high)
    c, d = nibble_pair(q2, q4 + 2 * stride, x_low, x_high), nibble_pair(q3, q4 + 3 * stride, x_low, x_high)
    return widen(sum_fours(sum_pairs(a, b), sum_pairs(c, d)))  # 16 products of a lane, each up to 15 * 127


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
def fetch(address, count):
    """Asks for `count` bytes, at most 320, ahead of their use."""
    prefetch(address)
    if count > 64:  # known when it is compiled; a loop would not always be unrolled
        prefetch(address + 64)
    if count > 128:
        prefetch(address + 128)
    if count > 192:
        prefetch(address + 192)
    if count > 256:
        prefetch(address + 256)


@inlined
def matvec(
    thread, threads, pointer, rows_of, scales_of, listed, per_part, part_sums, unpack, sums_of, bias, block_bytes
):
    """out = W x for weights stored in blocks; rows_of does the rows of one matrix."""
    a = record(pointer)
    copy = thread * a.copy_bytes
    first, last, groups = owned(a, thread, threads)
    for index in groups:
        matrix, x_row, _ = group_at(a, index)
        at = first_input(a, matrix, x_row)
        rows_of(
            max(first - index * a.rows, 0),
            min(last - index * a.rows, a.rows),
            a,
            a.weights + matrix * a.matrix_bytes,
            a.codes + copy + at,
            a.scales + copy + at // 8,
            (a.sums if per_part == 1 else a.half_sums) + copy + per_part * (at // 8),
            target(a, matrix, x_row),
            a.scratch + thread * a.scratch_bytes,
            scales_of,
            listed,
            per_part,
            part_sums,
            unpack,
            sums_of,
            bias,
            block_bytes,
        )


@inlined
def finish(acc, to, row, whole):
    if whole:
        finish8(to, row, acc)
    else:
        finish1(to, row, first_lane(acc))


@inlined
def rows_of_32(
    row, last, a, weights, x, x_scales, x_sums, to, table,
    scales_of, listed, per_part, part_sums, unpack, sums_of, bias, block_bytes,
):  # fmt: skip
    """Rows from `row` up to `last` of a matrix in blocks of 32.

    The sums of a block are scaled while those of the next are under way: what takes long keeps nothing waiting.
    """
    while row < last:
        # the last few rows of a matrix whose height is no multiple of 8 go one by one, each in all eight lanes
        whole = row + ROWS <= a.rows
        stride = a.row_bytes if whole else 0
        block, acc = weights + row * a.row_bytes, zero_f32x8()
        ahead = block + ROWS * stride
        sums, scales, minima = zero_i32x8(), zero_f32x8(), cleared(scales_of(block, stride)[1])
        x_scale, x_sum = x_scales, x_sums
        for column in range(0, a.columns, 32):
            fetch(ahead, ROWS * block_bytes)
            ahead += ROWS * block_bytes
            new_sums = part_sums(block, stride, 0, x + column, unpack, sums_of)
            acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
            sums, x_scale, x_sum = new_sums, x_scales + column // 8, x_sums + column // 8
            scales, minima = scales_of(block, stride)
            block += block_bytes
        acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
        finish(acc, to, row, whole)
        row += ROWS if whole else 1


@inlined
def rows_of_256(
    row, last, a, weights, x, x_scales, x_sums, to, table,
    list_scales, listed, per_part, part_sums, unpack, sums_of, bias, block_bytes,
):  # fmt: skip
    """The same for blocks of 256. The scales of a block are listed in a table for eight rows at a time."""
    while row < last:
        whole = row + ROWS <= a.rows
        stride = a.row_bytes if whole else 0
        block, acc = weights + row * a.row_bytes, zero_f32x8()
        ahead = block + ROWS * stride
        sums = cleared(part_sums(block, stride, 0, x, unpack, sums_of))
        scales, minima = cleared(listed(table, 0)[0]), cleared(listed(table, 0)[1])
        x_scale, x_sum = x_scales, x_sums
        for column in range(0, a.columns, 256):
            list_scales(block, stride, table, unpack)
            for four in range(0, 8, 4):
                # written out: what a part does is then known when it is compiled
                at = column + 32 * four
                fetch(ahead, ROWS * block_bytes // 8)
                new_sums = part_sums(block, stride, four, x + at, unpack, sums_of)
                acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
                sums, x_scale, x_sum = new_sums, x_scales + at // 8, x_sums + per_part * (at // 8)
                scales, minima = listed(table, four)

                fetch(ahead + 1 * ROWS * block_bytes // 8, ROWS * block_bytes // 8)
                new_sums = part_sums(block, stride, four + 1, x + at + 32, unpack, sums_of)
                acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
                sums, x_scale, x_sum = new_sums, x_scale + 4, x_sum + 4 * per_part
                scales, minima = listed(table, four + 1)

                fetch(ahead + 2 * ROWS * block_bytes // 8, ROWS * block_bytes // 8)
                new_sums = part_sums(block, stride, four + 2, x + at + 64, unpack, sums_of)
                acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
                sums, x_scale, x_sum = new_sums, x_scale + 4, x_sum + 4 * per_part
                scales, minima = listed(table, four + 2)

                fetch(ahead + 3 * ROWS * block_bytes // 8, ROWS * block_bytes // 8)
                new_sums = part_sums(block, stride, four + 3, x + at + 96, unpack, sums_of)
                acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
                sums, x_scale, x_sum = new_sums, x_scale + 4, x_sum + 4 * per_part
                scales, minima = listed(table, four + 3)
                ahead += ROWS * block_bytes // 2
            block += block_bytes
        acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
        finish(acc, to, row, whole)
        row += ROWS if whole else 1


@inlined
def matvec_32(thread, threads, pointer, scales_of, part_sums, unpack, sums_of, bias, block_bytes):
    """Blocks of 32 weights with one scale each."""
    matvec(thread, threads, pointer, rows_of_32, scales_of, r.listed, 1, part_sums, unpack, sums_of, bias, block_bytes)


@inlined
def matvec_256(thread, threads, pointer, list_scales, listed, unpack, sums_of, bias, block_bytes):
    """Blocks of 256 weights with a scale for each 32."""
    matvec(
        thread, threads, pointer, rows_of_256, list_scales, listed, 1, sums_of_all, unpack, sums_of, bias, block_bytes
    )


@inlined
def matvec_256_halves(thread, threads, pointer, list_scales, listed, unpack, sums_of, bias, block_bytes):
    """Blocks of 256 weights with a scale for each 16."""
    matvec(
        thread,
        threads,
        pointer,
        rows_of_256,
        list_scales,
        listed,
        2,
        sums_in_halves,
        unpack,
        sums_of,
        bias,
        block_bytes,
    )


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
    matvec_32(thread, threads, pointer, r.one_half, sums_of_nibbles, 2, sums_u5, u.BIAS_Q4_0, 18)


@kernel(MATMUL)
def matvec_q4_1(thread, threads, pointer):
    matvec_32(thread, threads, pointer, r.two_halves, sums_of_nibbles, 4, sums_u5, u.NO_BIAS, 20)


@kernel(MATMUL)
def matvec_q5_0(thread, threads, pointer):
    matvec_32(thread, threads, pointer, r.one_half, sums_of_all, u.unpack_q5_0, sums_u5, u.BIAS_Q5_0, 22)


@kernel(MATMUL)
def matvec_q5_1(thread, threads, pointer):
    matvec_32(thread, threads, pointer, r.two_halves, sums_of_all, u.unpack_q5_1, sums_u5, u.NO_BIAS, 24)


@kernel(MATMUL)
def matvec_q8_0(thread, threads, pointer):
    matvec_32(thread, threads, pointer, r.one_half, sums_of_all, u.unpack_q8_0, sums_s8, u.BIAS_Q8_0, 34)


@kernel(MATMUL)
def matvec_q4_k(thread, threads, pointer):
    matvec_256(thread, threads, pointer, r.list_q4_k, r.listed, u.unpack_q4_k, sums_u5, u.NO_BIAS, 144)


@kernel(MATMUL)
def matvec_q6_k(thread, threads, pointer):
    matvec_256_halves(thread, threads, pointer, r.list_q6_k, r.listed_halves, u.unpack_q6_k, sums_u6, u.BIAS_Q6_K, 210)
