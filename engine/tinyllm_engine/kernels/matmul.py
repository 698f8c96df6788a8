"""Prefill: many activation rows against a weight matrix.

LANES weight rows are unpacked at once into a panel that stays in the first-level cache, and every activation row of
the batch runs over it, TILE = 4 rows at a time. So a weight is unpacked once for up to 512 tokens. Panel layouts:

    codes    int8    [part][k / 4][lane][4]    one load holds 4 consecutive codes of each lane's row
    scales   float32 [group][lane]             group: 32 elements, or 16 where each half has its own scale
    offsets  float32 [group][lane]
    floats   float32 [k][2 * lane]             for weights that are floats themselves, two panels side by side
"""

from tinyllm_engine.agreed import TILE
from tinyllm_engine.jit import inlined, kernel, record, shared
from tinyllm_engine.kernels import unpack as u
from tinyllm_engine.kernels import unpack_grids as g
from tinyllm_engine.kernels.arguments import BATCH, MATMUL
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.kernels.scales import as_f32, first_half, second_half
from tinyllm_engine.kernels.stacks import first_input, group_at, group_count, target
from tinyllm_engine.simd import (
    LANES,
    add,
    atomic_load_i32,
    dot_s8,
    fma,
    load_bf16x8,
    load_f16x8,
    load_f32,
    load_f32w,
    load_f32x8,
    load_f64x8,
    load_i8w,
    load_i64,
    mul,
    narrow_dot,
    scatter_words,
    splat4_at,
    splat_at_f32w,
    splat_f32w,
    store,
    store_f32,
    to_f32,
    transpose_store,
    widen_add,
    zero_f32w,
    zero_i32w,
    zero_narrow,
)

CHUNK = 2048  # columns packed at a time: the panel then fits the first-level cache
PART_BYTES = 32 * LANES  # codes of one part of a panel
SCALES_AT = CHUNK * LANES  # the codes come first
OFFSETS_AT = SCALES_AT + CHUNK // 16 * LANES * 4
SUMS_AT = max(OFFSETS_AT + CHUNK // 16 * LANES * 4, CHUNK * LANES * 4)  # float32 [batch][lane]: results of the panel
SCRATCH_BYTES = SUMS_AT + 2 * BATCH * LANES * 4  # per thread
FLOAT_CHUNK = 256  # the same for two panels of floats side by side


@inlined
def store_group(panel, lane, group, scale, minimum, bias):
    """One scale and one offset of a group of elements of one row."""
    at = 4 * (group * LANES + lane)
    store_f32(panel + SCALES_AT + at, scale)
    store_f32(panel + OFFSETS_AT + at, scale * -bias if bias != 0 else minimum)


@inlined
def store_whole(panel, lane, part, scale, minimum, bias):
    """Types with one scale for 32 elements."""
    store_group(panel, lane, part, as_f32(scale), as_f32(minimum), bias)


@inlined
def store_halves(panel, lane, part, scale, minimum, bias):
    """Types with a scale for each 16 elements."""
    store_group(panel, lane, 2 * part, as_f32(first_half(scale)), as_f32(first_half(minimum)), bias)
    store_group(panel, lane, 2 * part + 1, as_f32(second_half(scale)), as_f32(second_half(minimum)), bias)


@inlined
def pack_panel(panel, weights, row_bytes, rows, first_part, parts, unpack, bias, store_scales, block_bytes, in_block):
    """Unpacks `parts` parts of `rows` stored rows into the panel; missing rows repeat the last one."""
    for lane in range(LANES):
        row = weights + min(lane, rows - 1) * row_bytes
        for part in range(parts):
            at = first_part + part
            codes, scale, minimum = unpack(row + at // in_block * block_bytes, at % in_block)
            scatter_words(panel + part * PART_BYTES + 4 * lane, 4 * LANES, codes)
            store_scales(panel, lane, part, scale, minimum, bias)


# --- the products of one group: TILE activation rows by LANES weight rows ----------------------------------------


@inlined
def products(panel, x0, x1, x2, x3, words, narrow_words):
    """Sums over `words` groups of 4 codes, widened every `narrow_words` before 16 bits could overflow."""
    s0, s1, s2, s3 = zero_i32w(), zero_i32w(), zero_i32w(), zero_i32w()
    for first in range(0, words, narrow_words):
        n0, n1, n2, n3 = zero_narrow(), zero_narrow(), zero_narrow(), zero_narrow()
        for word in range(first, first + narrow_words):
            weights = load_i8w(panel + 4 * LANES * word)
            n0 = narrow_dot(n0, weights, splat4_at(x0 + 4 * word))
            n1 = narrow_dot(n1, weights, splat4_at(x1 + 4 * word))
            n2 = narrow_dot(n2, weights, splat4_at(x2 + 4 * word))
            n3 = narrow_dot(n3, weights, splat4_at(x3 + 4 * word))
        s0, s1, s2, s3 = widen_add(s0, n0), widen_add(s1, n1), widen_add(s2, n2), widen_add(s3, n3)
    return s0, s1, s2, s3


@inlined
def products_u4(panel, x0, x1, x2, x3, words):
    """Codes up to 15: eight products of 15 * 127, twice, stay below 2**15."""
    return products(panel, x0, x1, x2, x3, words, words)


@inlined
def products_u5(panel, x0, x1, x2, x3, words):
    return products(panel, x0, x1, x2, x3, words, 4)


@inlined
def products_u6(panel, x0, x1, x2, x3, words):
    return products(panel, x0, x1, x2, x3, words, 2)


@inlined
def products_u7(panel, x0, x1, x2, x3, words):
    return products(panel, x0, x1, x2, x3, words, 1)


@inlined
def products_s8(panel, x0, x1, x2, x3, words):
    s0, s1, s2, s3 = zero_i32w(), zero_i32w(), zero_i32w(), zero_i32w()
    for word in range(words):
        weights = load_i8w(panel + 4 * LANES * word)
        s0 = dot_s8(s0, weights, splat4_at(x0 + 4 * word))
        s1 = dot_s8(s1, weights, splat4_at(x1 + 4 * word))
        s2 = dot_s8(s2, weights, splat4_at(x2 + 4 * word))
        s3 = dot_s8(s3, weights, splat4_at(x3 + 4 * word))
    return s0, s1, s2, s3


@inlined
def scaled(acc, products_of_group, scales, x_scale):
    return fma(to_f32(products_of_group), mul(scales, splat_at_f32w(x_scale)), acc)


@inlined
def with_offset(acc, offsets, sums):
    return fma(load_f32w(offsets), splat_at_f32w(sums), acc)


@inlined
def without_offset(acc, offsets, sums):
    return acc


@inlined
def tile(panel, parts, codes, stride, scales, sums, sum_stride, groups, products_of, offset_of, results, is_first):
    """TILE activation rows by LANES weight rows over all parts of a panel, added to results float32 [TILE][lane].

    stride: columns between activation rows; the scales lie at stride / 32, the sums at sum_stride elements.
    """
    a0, a1, a2, a3 = begin(results, is_first)
    x1 = codes + stride
    x2 = x1 + stride
    x3 = x2 + stride
    scale_bytes, sum_bytes = stride // 32 * 4, sum_stride * 4
    words = 8 // groups
    for part in range(parts):
        scale = scales + 4 * part
        for half in range(groups):
            at = 32 * part + 4 * words * half
            group = groups * part + half
            p0, p1, p2, p3 = products_of(
                panel + part * PART_BYTES + half * words * 4 * LANES, codes + at, x1 + at, x2 + at, x3 + at, words
            )
            weight_scales = load_f32w(panel + SCALES_AT + 4 * LANES * group)
            a0 = scaled(a0, p0, weight_scales, scale)
            a1 = scaled(a1, p1, weight_scales, scale + scale_bytes)
            a2 = scaled(a2, p2, weight_scales, scale + 2 * scale_bytes)
            a3 = scaled(a3, p3, weight_scales, scale + 3 * scale_bytes)
            offsets, total = panel + OFFSETS_AT + 4 * LANES * group, sums + 4 * group
            a0 = offset_of(a0, offsets, total)
            a1 = offset_of(a1, offsets, total + sum_bytes)
            a2 = offset_of(a2, offsets, total + 2 * sum_bytes)
            a3 = offset_of(a3, offsets, total + 3 * sum_bytes)
    end(results, a0, a1, a2, a3)


@inlined
def begin(results, is_first):
    """The sums so far of a tile: none at the first chunk of columns."""
    if is_first:
        return zero_f32w(), zero_f32w(), zero_f32w(), zero_f32w()
    row = 4 * LANES
    return load_f32w(results), load_f32w(results + row), load_f32w(results + 2 * row), load_f32w(results + 3 * row)


@inlined
def end(results, a0, a1, a2, a3):
    store(results, a0)
    store(results + 4 * LANES, a1)
    store(results + 8 * LANES, a2)
    store(results + 12 * LANES, a3)


@inlined
def write_panel(to, stride, results, row, rows, tokens):
    """out = scale * results + bias + residual, for the weight rows of a panel that exist.

    to: what stacks.target gives; stride: elements from a row of the result to the next
    """
    scale, bias, residual, out = to
    count = min(LANES, rows)
    for token in range(tokens):
        at, result = 4 * (token * stride + row), results + 4 * LANES * token
        if count == LANES:
            value = mul(load_f32w(result), splat_f32w(scale))
            if bias != 0:
                value = add(value, load_f32w(bias + 4 * row))
            if residual != 0:
                value = add(value, load_f32w(residual + at))
            store(out + at, value)
        else:
            for i in range(0, 4 * count, 4):
                single = load_f32(result + i) * scale
                if bias != 0:
                    single += load_f32(bias + 4 * row + i)
                if residual != 0:
                    single += load_f32(residual + at + i)
                store_f32(out + at + i, single)


@shared
def matmul(thread, threads, pointer, unpack, products_of, bias, store_scales, offset_of, groups, block_bytes, in_block):
    """out = x W^T for weights stored in blocks. The activation buffers are padded to a multiple of TILE rows."""
    a = record(pointer)
    panel = a.scratch + thread * a.scratch_bytes
    results = panel + SUMS_AT
    parts, stride = a.columns // 32, a.x_stride
    sums, sum_stride = (a.sums, stride // 32) if groups == 1 else (a.half_sums, stride // 16)
    first_row, last_row = owned(a.rows, thread, threads)
    for index in range(group_count(a)):
        matrix, x_row, tokens = group_at(a, index)
        at, to = first_input(a, matrix, x_row), target(a, matrix, x_row)
        for row in range(first_row, last_row, LANES):
            if atomic_load_i32(load_i64(a.cancel)) != 0:
                return
            weights, rows = a.weights + matrix * a.matrix_bytes + row * a.row_bytes, a.rows - row
            for first in range(0, parts, CHUNK // 32):
                chunk = min(CHUNK // 32, parts - first)
                pack_panel(
                    panel, weights, a.row_bytes, rows, first, chunk, unpack, bias, store_scales, block_bytes, in_block
                )
                for token in range(0, tokens, TILE):
                    begins = at + token * stride + 32 * first
                    tile(
                        panel,
                        chunk,
                        a.codes + begins,
                        stride,
                        a.scales + begins // 8,
                        sums + begins // 8 * groups,
                        sum_stride,
                        groups,
                        products_of,
                        offset_of,
                        results + 4 * LANES * token,
                        first == 0,
                    )
            write_panel(to, a.out_stride, results, row, rows, tokens)


# --- weights that are floats themselves --------------------------------------------------------------------------


@inlined
def pack_floats(panel, weights, row_bytes, rows, first, columns, load8, element_bytes):
    """Transposes `columns` columns of 2 * LANES stored rows into floats[k][lane]."""
    for lane in range(2 * LANES):
        row = weights + min(lane, rows - 1) * row_bytes + first * element_bytes
        for k in range(0, columns, 8):
            transpose_store(panel + 4 * (2 * k * LANES + lane), 8 * LANES, load8(row + k * element_bytes))


@inlined
def tile_floats(panel, columns, x, stride, low, high, is_first):
    """TILE activation rows by 2 * LANES weight rows: eight sums under way hide how long a multiply-add takes."""
    a0, a1, a2, a3 = begin(low, is_first)
    b0, b1, b2, b3 = begin(high, is_first)
    x1 = x + 4 * stride
    x2 = x1 + 4 * stride
    x3 = x2 + 4 * stride
    for k in range(columns):
        w0, w1 = load_f32w(panel + 8 * LANES * k), load_f32w(panel + 8 * LANES * k + 4 * LANES)
        value = splat_at_f32w(x + 4 * k)
        a0, b0 = fma(w0, value, a0), fma(w1, value, b0)
        value = splat_at_f32w(x1 + 4 * k)
        a1, b1 = fma(w0, value, a1), fma(w1, value, b1)
        value = splat_at_f32w(x2 + 4 * k)
        a2, b2 = fma(w0, value, a2), fma(w1, value, b2)
        value = splat_at_f32w(x3 + 4 * k)
        a3, b3 = fma(w0, value, a3), fma(w1, value, b3)
    end(low, a0, a1, a2, a3)
    end(high, b0, b1, b2, b3)


@shared
def matmul_float(thread, threads, pointer, load8, element_bytes):
    """out = x W^T for float weights and float32 activations (padded to a multiple of TILE rows)."""
    a = record(pointer)
    panel = a.scratch + thread * a.scratch_bytes
    low = panel + SUMS_AT
    high = low + BATCH * LANES * 4
    first_row, last_row = owned(a.rows, thread, threads)
    for index in range(group_count(a)):
        matrix, x_row, tokens = group_at(a, index)
        at, to = first_input(a, matrix, x_row), target(a, matrix, x_row)
        for row in range(first_row, last_row, 2 * LANES):
            if atomic_load_i32(load_i64(a.cancel)) != 0:
                return
            weights, rows = a.weights + matrix * a.matrix_bytes + row * a.row_bytes, a.rows - row
            for first in range(0, a.columns, FLOAT_CHUNK):
                chunk = min(FLOAT_CHUNK, a.columns - first)
                pack_floats(panel, weights, a.row_bytes, rows, first, chunk, load8, element_bytes)
                for token in range(0, tokens, TILE):
                    x, result = a.x + 4 * (at + token * a.x_stride + first), 4 * LANES * token
                    tile_floats(panel, chunk, x, a.x_stride, low + result, high + result, first == 0)
            write_panel(to, a.out_stride, low, row, rows, tokens)
            if rows > LANES:
                write_panel(to, a.out_stride, high, row + LANES, rows - LANES, tokens)


@kernel(MATMUL)
def matmul_f32(thread, threads, pointer):
    matmul_float(thread, threads, pointer, load_f32x8, 4)


@kernel(MATMUL)
def matmul_f16(thread, threads, pointer):
    matmul_float(thread, threads, pointer, load_f16x8, 2)


@kernel(MATMUL)
def matmul_bf16(thread, threads, pointer):
    matmul_float(thread, threads, pointer, load_bf16x8, 2)


@kernel(MATMUL)
def matmul_f64(thread, threads, pointer):
    matmul_float(thread, threads, pointer, load_f64x8, 8)


@shared
def matmul_whole(thread, threads, pointer, unpack, products_of, bias, offset_of, block_bytes, in_block):
    """Types with one scale for 32 elements."""
    matmul(thread, threads, pointer, unpack, products_of, bias, store_whole, offset_of, 1, block_bytes, in_block)


@shared
def matmul_halves(thread, threads, pointer, unpack, products_of, bias, offset_of, block_bytes, in_block):
    """Types with a scale for each 16 elements."""
    matmul(thread, threads, pointer, unpack, products_of, bias, store_halves, offset_of, 2, block_bytes, in_block)


@kernel(MATMUL)
def matmul_q4_0(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q4_0, products_u4, u.BIAS_Q4_0, with_offset, 18, 1)


@kernel(MATMUL)
def matmul_q4_1(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q4_1, products_u4, u.NO_BIAS, with_offset, 20, 1)


@kernel(MATMUL)
def matmul_q5_0(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q5_0, products_u5, u.BIAS_Q5_0, with_offset, 22, 1)


@kernel(MATMUL)
def matmul_q5_1(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q5_1, products_u5, u.NO_BIAS, with_offset, 24, 1)


signed_offset = with_offset if u.BIAS_Q8_0 else without_offset


@kernel(MATMUL)
def matmul_q8_0(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q8_0, products_s8, u.BIAS_Q8_0, signed_offset, 34, 1)


@kernel(MATMUL)
def matmul_q4_k(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q4_k, products_u4, u.NO_BIAS, with_offset, 144, 8)


@kernel(MATMUL)
def matmul_q6_k(thread, threads, pointer):
    matmul_halves(thread, threads, pointer, u.unpack_q6_k, products_u6, u.BIAS_Q6_K, with_offset, 210, 8)


@kernel(MATMUL)
def matmul_q2_k(thread, threads, pointer):
    matmul_halves(thread, threads, pointer, u.unpack_q2_k, products_u4, u.NO_BIAS, with_offset, 84, 8)


@kernel(MATMUL)
def matmul_q3_k(thread, threads, pointer):
    matmul_halves(thread, threads, pointer, u.unpack_q3_k, products_u4, u.BIAS_Q3_K, with_offset, 110, 8)


@kernel(MATMUL)
def matmul_q5_k(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q5_k, products_u5, u.NO_BIAS, with_offset, 176, 8)


@kernel(MATMUL)
def matmul_iq1_s(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, g.unpack_iq1_s, products_u4, u.NO_BIAS, with_offset, 50, 8)


@kernel(MATMUL)
def matmul_iq1_m(thread, threads, pointer):
    matmul_halves(thread, threads, pointer, g.unpack_iq1_m, products_u5, g.BIAS_IQ1_M, with_offset, 56, 8)


@kernel(MATMUL)
def matmul_iq2_xxs(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, g.unpack_iq2_xxs, products_u7, g.BIAS_IQ2, with_offset, 66, 8)


@kernel(MATMUL)
def matmul_iq2_xs(thread, threads, pointer):
    matmul_halves(thread, threads, pointer, g.unpack_iq2_xs, products_u7, g.BIAS_IQ2, with_offset, 74, 8)


@kernel(MATMUL)
def matmul_iq2_s(thread, threads, pointer):
    matmul_halves(thread, threads, pointer, g.unpack_iq2_s, products_u7, g.BIAS_IQ2, with_offset, 82, 8)


@kernel(MATMUL)
def matmul_iq3_xxs(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, g.unpack_iq3_xxs, products_u6, g.BIAS_IQ3_XXS, with_offset, 98, 8)


@kernel(MATMUL)
def matmul_iq3_s(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, g.unpack_iq3_s, products_u4, g.BIAS_IQ3_S, with_offset, 110, 8)


@kernel(MATMUL)
def matmul_iq4_nl(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_iq4_nl, products_s8, u.BIAS_IQ4, signed_offset, 18, 1)


@kernel(MATMUL)
def matmul_iq4_xs(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_iq4_xs, products_s8, u.BIAS_IQ4, signed_offset, 136, 8)


@kernel(MATMUL)
def matmul_mxfp4(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_mxfp4, products_u5, u.BIAS_FP4, with_offset, 17, 1)


@kernel(MATMUL)
def matmul_nvfp4(thread, threads, pointer):
    matmul_halves(thread, threads, pointer, u.unpack_nvfp4, products_u5, u.BIAS_FP4, with_offset, 36, 2)


@kernel(MATMUL)
def matmul_tq1_0(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_tq1_0, products_u4, u.BIAS_TERNARY, with_offset, 54, 8)


@kernel(MATMUL)
def matmul_tq2_0(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_tq2_0, products_u4, u.BIAS_TERNARY, with_offset, 66, 8)


@kernel(MATMUL)
def matmul_q1_0(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q1_0, products_u4, u.BIAS_TERNARY, with_offset, 18, 4)


@kernel(MATMUL)
def matmul_q2_0(thread, threads, pointer):
    matmul_whole(thread, threads, pointer, u.unpack_q2_0, products_u4, u.BIAS_TERNARY, with_offset, 18, 2)
