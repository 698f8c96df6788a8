"""Decode: one activation row against a weight matrix, read in place from the mapped file.

Eight stored rows advance together, so that a block's eight integer sums lie in one vector and are scaled at once. Each
output sees the same operations in the same order as in a batch (see matmul): the bits of a result depend neither on
the number of threads nor on how many rows were computed with it.
"""

import numpy as np
from numba import types
from numba.extending import overload

from tinyllm_engine.jit import inlined, kernel, record, shared
from tinyllm_engine.kernels import row_scales as r
from tinyllm_engine.kernels import unpack as u
from tinyllm_engine.kernels import unpack_grids as g
from tinyllm_engine.kernels.arguments import MATMUL
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.kernels.row_scales import ROWS
from tinyllm_engine.kernels.row_sums import (
    fp4_nibbles,
    iq4_nibbles,
    sums_in_halves,
    sums_of_all,
    sums_of_nibble_pairs,
    sums_of_nibbles,
    sums_s8,
    sums_u5,
    sums_u6,
    sums_u7,
    u4_fours,
    u4_nibbles,
)
from tinyllm_engine.kernels.scales import cleared, first_half, second_half
from tinyllm_engine.kernels.stacks import first_input, group_at, group_count, target
from tinyllm_engine.simd import (
    add,
    first_lane,
    fma,
    horizontal_sum,
    load_bf16x8,
    load_f16x8,
    load_f32,
    load_f32x8,
    load_f64x8,
    mul,
    prefetch,
    splat_at_f32x8,
    splat_f32x8,
    store,
    store_f32,
    to_f32,
    zero_f32x8,
)

FIRST = np.int64(0)  # of the parts of a block; for a literal everything would be compiled once more
AHEAD = 4096  # bytes; the hardware prefetcher alone does not keep up with blocks of odd sizes


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
def owned_outputs(a, thread, threads):
    """A thread's part of the outputs of all groups, counted on from group to group; and the groups it lies in."""
    total = group_count(a) * a.rows
    first, last = owned(total, thread, threads)
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


@shared
def matvec(
    thread, threads, pointer, rows_of,
    scales_of, listed, per_part, part_sums, unpack, sums_of, bias, block_bytes, in_block,
):  # fmt: skip
    """out = W x for weights stored in blocks; rows_of does the rows of one matrix."""
    a = record(pointer)
    copy = thread * a.copy_bytes
    first, last, groups = owned_outputs(a, thread, threads)
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
            scales_of, listed, per_part, part_sums, unpack, sums_of, bias, block_bytes, in_block,
        )  # fmt: skip


@inlined
def finish(acc, to, row, whole):
    if whole:
        finish8(to, row, acc)
    else:
        finish1(to, row, first_lane(acc))


@shared
def rows_of_small(
    row, last, a, weights, x, x_scales, x_sums, to, table,
    scales_of, listed, per_part, part_sums, unpack, sums_of, bias, block_bytes, in_block,
):  # fmt: skip
    """Rows from `row` up to `last` of a matrix in blocks of 32, or of a few times 32 (in_block).

    The sums of a part are scaled while those of the next are under way: what takes long keeps nothing waiting.
    """
    while row < last:
        # the last few rows of a matrix whose height is no multiple of 8 go one by one, each in all eight lanes
        whole = row + ROWS <= a.rows
        stride = a.row_bytes if whole else 0
        block, acc = weights + row * a.row_bytes, zero_f32x8()
        ahead = block + ROWS * stride
        sums = cleared(part_sums(block, stride, FIRST, x, unpack, sums_of))
        scales, minima = scales_of(block, stride, FIRST)
        scales, minima = cleared(scales), cleared(minima)
        x_scale, x_sum = x_scales, x_sums
        for column in range(0, a.columns, 32 * in_block):
            for part in range(in_block):
                at = column + 32 * part
                fetch(ahead, ROWS * block_bytes // in_block)
                ahead += ROWS * block_bytes // in_block
                new_sums = part_sums(block, stride, part, x + at, unpack, sums_of)
                acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
                sums, x_scale, x_sum = new_sums, x_scales + at // 8, x_sums + per_part * (at // 8)
                scales, minima = scales_of(block, stride, part)
            block += block_bytes
        acc = scaled(acc, sums, scales, minima, bias, x_scale, x_sum)
        finish(acc, to, row, whole)
        row += ROWS if whole else 1


@shared
def rows_of_256(
    row, last, a, weights, x, x_scales, x_sums, to, table,
    list_scales, listed, per_part, part_sums, unpack, sums_of, bias, block_bytes, in_block,
):  # fmt: skip
    """The same for blocks of 256. The scales of a block are listed in a table for eight rows at a time."""
    while row < last:
        whole = row + ROWS <= a.rows
        stride = a.row_bytes if whole else 0
        block, acc = weights + row * a.row_bytes, zero_f32x8()
        ahead = block + ROWS * stride
        sums = cleared(part_sums(block, stride, FIRST, x, unpack, sums_of))
        scales, minima = listed(table, FIRST)
        scales, minima = cleared(scales), cleared(minima)
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


@shared
def matvec_small(thread, threads, pointer, scales_of, part_sums, unpack, sums_of, bias, block_bytes, in_block):
    """Blocks of 32, 64 or 128 weights with a scale for each 32."""
    matvec(
        thread, threads, pointer, rows_of_small,
        scales_of, r.listed, 1, part_sums, unpack, sums_of, bias, block_bytes, in_block,
    )  # fmt: skip


@shared
def matvec_256(thread, threads, pointer, list_scales, listed, unpack, sums_of, bias, block_bytes):
    """Blocks of 256 weights with a scale for each 32."""
    matvec(
        thread, threads, pointer, rows_of_256,
        list_scales, listed, 1, sums_of_all, unpack, sums_of, bias, block_bytes, 8,
    )  # fmt: skip


@shared
def matvec_halves(thread, threads, pointer, list_scales, listed, unpack, sums_of, bias, block_bytes):
    """Blocks of 256 weights with a scale for each 16."""
    matvec(
        thread, threads, pointer, rows_of_256,
        list_scales, listed, 2, sums_in_halves, unpack, sums_of, bias, block_bytes, 8,
    )  # fmt: skip


@shared
def matvec_float(thread, threads, pointer, load8, element_bytes):
    """out = W x for weights that are floats themselves, 32 at a time."""
    a = record(pointer)
    first, last, groups = owned_outputs(a, thread, threads)
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
            for line in range(0, 32 * element_bytes, 64):
                prefetch(w + AHEAD + line)
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
def matvec_f64(thread, threads, pointer):
    matvec_float(thread, threads, pointer, load_f64x8, 8)


@kernel(MATMUL)
def matvec_q4_0(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.one_half, sums_of_nibbles, 2, u4_nibbles, u.BIAS_Q4_0, 18, 1)


@kernel(MATMUL)
def matvec_q4_1(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.two_halves, sums_of_nibbles, 4, u4_nibbles, u.NO_BIAS, 20, 1)


@kernel(MATMUL)
def matvec_q5_0(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.one_half, sums_of_all, u.unpack_q5_0, sums_u5, u.BIAS_Q5_0, 22, 1)


@kernel(MATMUL)
def matvec_q5_1(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.two_halves, sums_of_all, u.unpack_q5_1, sums_u5, u.NO_BIAS, 24, 1)


@kernel(MATMUL)
def matvec_q8_0(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.one_half, sums_of_all, u.unpack_q8_0, sums_s8, u.BIAS_Q8_0, 34, 1)


@kernel(MATMUL)
def matvec_q2_k(thread, threads, pointer):
    matvec_halves(thread, threads, pointer, r.list_q2_k, r.listed_halves_minima, u.unpack_q2_k, sums_u5, u.NO_BIAS, 84)


@kernel(MATMUL)
def matvec_q3_k(thread, threads, pointer):
    matvec_halves(thread, threads, pointer, r.list_q3_k, r.listed_halves, u.unpack_q3_k, sums_u5, u.BIAS_Q3_K, 110)


@kernel(MATMUL)
def matvec_q4_k(thread, threads, pointer):
    matvec(
        thread, threads, pointer, rows_of_256,
        r.list_q4_k, r.listed, 1, sums_of_nibble_pairs, 16, u4_fours, u.NO_BIAS, 144, 8,
    )  # fmt: skip


@kernel(MATMUL)
def matvec_q5_k(thread, threads, pointer):
    matvec_256(thread, threads, pointer, r.list_q4_k, r.listed, u.unpack_q5_k, sums_u5, u.NO_BIAS, 176)


@kernel(MATMUL)
def matvec_q6_k(thread, threads, pointer):
    matvec_halves(thread, threads, pointer, r.list_q6_k, r.listed_halves, u.unpack_q6_k, sums_u6, u.BIAS_Q6_K, 210)


@kernel(MATMUL)
def matvec_iq1_s(thread, threads, pointer):
    matvec_256(thread, threads, pointer, r.list_iq1_s, r.listed, g.unpack_iq1_s, sums_u5, u.NO_BIAS, 50)


@kernel(MATMUL)
def matvec_iq1_m(thread, threads, pointer):
    matvec_halves(thread, threads, pointer, r.list_iq1_m, r.listed_halves, g.unpack_iq1_m, sums_u5, g.BIAS_IQ1_M, 56)


@kernel(MATMUL)
def matvec_iq2_xxs(thread, threads, pointer):
    matvec_256(thread, threads, pointer, r.list_iq2_xxs, r.listed_scales, g.unpack_iq2_xxs, sums_u7, g.BIAS_IQ2, 66)


@kernel(MATMUL)
def matvec_iq2_xs(thread, threads, pointer):
    matvec_halves(thread, threads, pointer, r.list_iq2_xs, r.listed_halves, g.unpack_iq2_xs, sums_u7, g.BIAS_IQ2, 74)


@kernel(MATMUL)
def matvec_iq2_s(thread, threads, pointer):
    matvec_halves(thread, threads, pointer, r.list_iq2_s, r.listed_halves, g.unpack_iq2_s, sums_u7, g.BIAS_IQ2, 82)


@kernel(MATMUL)
def matvec_iq3_xxs(thread, threads, pointer):
    matvec_256(thread, threads, pointer, r.list_iq3_xxs, r.listed_scales, g.unpack_iq3_xxs, sums_u6, g.BIAS_IQ3_XXS, 98)


@kernel(MATMUL)
def matvec_iq3_s(thread, threads, pointer):
    matvec_256(thread, threads, pointer, r.list_iq3_s, r.listed_scales, g.unpack_iq3_s, sums_u5, g.BIAS_IQ3_S, 110)


@kernel(MATMUL)
def matvec_iq4_nl(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.one_half, sums_of_nibbles, 2, iq4_nibbles, u.BIAS_IQ4, 18, 1)


@kernel(MATMUL)
def matvec_iq4_xs(thread, threads, pointer):
    matvec(
        thread, threads, pointer, rows_of_256,
        r.list_iq4_xs, r.listed_scales, 1, sums_of_nibbles, 8, iq4_nibbles, u.BIAS_IQ4, 136, 8,
    )  # fmt: skip


@kernel(MATMUL)
def matvec_mxfp4(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.mxfp4, sums_of_nibbles, 1, fp4_nibbles, u.BIAS_FP4, 17, 1)


@kernel(MATMUL)
def matvec_nvfp4(thread, threads, pointer):
    matvec(
        thread, threads, pointer, rows_of_small,
        r.nvfp4, r.listed, 2, sums_in_halves, u.unpack_nvfp4, sums_u5, u.BIAS_FP4, 36, 2,
    )  # fmt: skip


@kernel(MATMUL)
def matvec_tq1_0(thread, threads, pointer):
    matvec_256(thread, threads, pointer, r.list_tq1_0, r.listed_once, u.unpack_tq1_0, sums_u5, u.BIAS_TERNARY, 54)


@kernel(MATMUL)
def matvec_tq2_0(thread, threads, pointer):
    matvec_256(thread, threads, pointer, r.list_tq2_0, r.listed_once, u.unpack_tq2_0, sums_u5, u.BIAS_TERNARY, 66)


@kernel(MATMUL)
def matvec_q1_0(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.one_half, sums_of_all, u.unpack_q1_0, sums_u5, u.BIAS_TERNARY, 18, 4)


@kernel(MATMUL)
def matvec_q2_0(thread, threads, pointer):
    matvec_small(thread, threads, pointer, r.one_half, sums_of_all, u.unpack_q2_0, sums_u5, u.BIAS_TERNARY, 18, 2)
