"""The scores step of attention for each type of K: scores[t][key] = q_t . k, for 1 to 4 queries and a page of 64 keys.

Queries lie side by side as `ready_query` leaves them: scaled, and quantized where K is in q8_0. Then products are
integer, and a block's sum is scaled once: by the key's scale and the query's. K in q4_0 has a scale for each element
instead: it is multiplied with the query, which is then quantized, page by page. Each score is summed in one order,
whatever the number of queries.

scores: float32 [count][64], and behind four of them room for a quantized query.

ahead: what the cache is asked for meanwhile, about as many bytes as the page of keys has. Where nothing comes next that
is the page itself: a test in the inner loop costs more than asking for what is there.
"""

import numpy as np

from tinyllm_engine.jit import inlined, native, shared, step
from tinyllm_engine.kernels.cached_blocks import BLOCK, code_query, query_bytes
from tinyllm_engine.simd import (
    SIGNED_BIAS,
    and_byte,
    dot_s8,
    fma,
    load_bf16x8,
    load_f16x8,
    load_f32x8,
    load_i8x32,
    mul,
    narrow_dot,
    prefetch,
    shift_left,
    shift_right_words,
    splat4_at_i8x32,
    splat_at_f32x8,
    splat_at_i32x8,
    splat_f32x8,
    store,
    sub,
    to_f32,
    widen,
    xor_byte,
    zero_f32x8,
    zero_i32x8,
    zero_products,
)

PAGE = 64
FOUR, FIFTEEN, SIGN = np.int8(4), np.int8(15), np.int8(-128)


@inlined
def store4(out, a, b, c, d):
    store(out, a)
    store(out + 32, b)
    store(out + 64, c)
    store(out + 96, d)


# --- floats ----------------------------------------------------------------------------------------------------------


@native
def scores4(q, keys, size, load8, element_bytes, scores, ahead):
    """For 4 queries."""
    q1, q2, q3 = q + 4 * size, q + 8 * size, q + 12 * size
    for key in range(0, PAGE, 16):
        a0, a1, b0, b1 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        c0, c1, d0, d1 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for i in range(size):
            at = keys + (i * PAGE + key) * element_bytes
            if key % 32 == 0:
                prefetch(ahead + 64 * (i + key // 32 * size))
            k0, k1 = load8(at), load8(at + 8 * element_bytes)
            x = splat_at_f32x8(q + 4 * i)
            a0, a1 = fma(k0, x, a0), fma(k1, x, a1)
            x = splat_at_f32x8(q1 + 4 * i)
            b0, b1 = fma(k0, x, b0), fma(k1, x, b1)
            x = splat_at_f32x8(q2 + 4 * i)
            c0, c1 = fma(k0, x, c0), fma(k1, x, c1)
            x = splat_at_f32x8(q3 + 4 * i)
            d0, d1 = fma(k0, x, d0), fma(k1, x, d1)
        out = scores + 4 * key
        store(out, a0)
        store(out + 32, a1)
        store(out + 4 * PAGE, b0)
        store(out + 4 * PAGE + 32, b1)
        store(out + 8 * PAGE, c0)
        store(out + 8 * PAGE + 32, c1)
        store(out + 12 * PAGE, d0)
        store(out + 12 * PAGE + 32, d1)


@native
def scores3(q, keys, size, load8, element_bytes, scores, ahead):
    """For 3 queries."""
    q1, q2 = q + 4 * size, q + 8 * size
    for key in range(0, PAGE, 32):
        a0, a1, a2, a3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        b0, b1, b2, b3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        c0, c1, c2, c3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for i in range(size):
            at = keys + (i * PAGE + key) * element_bytes
            prefetch(ahead + 64 * (i + key // 32 * size))
            a, b, c = splat_at_f32x8(q + 4 * i), splat_at_f32x8(q1 + 4 * i), splat_at_f32x8(q2 + 4 * i)
            k = load8(at)
            a0, b0, c0 = fma(k, a, a0), fma(k, b, b0), fma(k, c, c0)
            k = load8(at + 8 * element_bytes)
            a1, b1, c1 = fma(k, a, a1), fma(k, b, b1), fma(k, c, c1)
            k = load8(at + 16 * element_bytes)
            a2, b2, c2 = fma(k, a, a2), fma(k, b, b2), fma(k, c, c2)
            k = load8(at + 24 * element_bytes)
            a3, b3, c3 = fma(k, a, a3), fma(k, b, b3), fma(k, c, c3)
        out = scores + 4 * key
        store4(out, a0, a1, a2, a3)
        store4(out + 4 * PAGE, b0, b1, b2, b3)
        store4(out + 8 * PAGE, c0, c1, c2, c3)


@native
def scores1(q, keys, size, load8, element_bytes, scores, ahead):
    """For one query."""
    for key in range(0, PAGE, 32):
        s0, s1, s2, s3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for i in range(size):
            at = keys + (i * PAGE + key) * element_bytes
            prefetch(ahead + 64 * (i + key // 32 * size))
            element = splat_at_f32x8(q + 4 * i)
            s0 = fma(load8(at), element, s0)
            s1 = fma(load8(at + 8 * element_bytes), element, s1)
            s2 = fma(load8(at + 16 * element_bytes), element, s2)
            s3 = fma(load8(at + 24 * element_bytes), element, s3)
        store4(scores + 4 * key, s0, s1, s2, s3)


@shared
def scores_of_floats(count, q, keys, size, scores, ahead, load8, element_bytes):
    if count == 1:
        scores1(q, keys, size, load8, element_bytes, scores, ahead)
    elif count < 4:
        scores3(q, keys, size, load8, element_bytes, scores, ahead)
    else:
        scores4(q, keys, size, load8, element_bytes, scores, ahead)


# --- codes -----------------------------------------------------------------------------------------------------------


@inlined
def eights_q8_0(at):
    """Codes of 8 keys: 4 elements, and the 4 that follow."""
    if SIGNED_BIAS != 0:
        return xor_byte(load_i8x32(at), SIGN), xor_byte(load_i8x32(at + 4 * PAGE), SIGN)
    return load_i8x32(at), load_i8x32(at + 4 * PAGE)


@inlined
def eights_q4_0(at):
    packed = load_i8x32(at)
    return and_byte(packed, FIFTEEN), and_byte(shift_right_words(packed, FOUR), FIFTEEN)


@inlined
def as_it_is(products):
    return products


@inlined
def query_as_it_is(q, t, keys, size, scores):
    return q + t * query_bytes(1, size), np.float32(0.0)


@inlined
def query_by_element(q, t, keys, size, scores):
    scales, out = keys + PAGE * size // 2, scores + 16 * PAGE
    return out, code_query(q + 4 * t * size, scales, scales + 2 * size, size, out)


@inlined
def add_scaled(out, products, key_scales, query_scale, before):
    """Adds a block's part to 8 scores."""
    store(out, fma(to_f32(products), mul(load_f16x8(key_scales), query_scale), before))


@inlined
def add_products(out, products, key_scales, query_scale, before):
    store(out, fma(to_f32(products), query_scale, before))


@inlined
def before_block(out, block, start):
    """What 8 scores are before a block's part is added."""
    return load_f32x8(out) if block > 0 else splat_f32x8(start)


@shared
def scores_of_codes(
    count, q, keys, size, scores, ahead, coded, eights, dot, zero, widened, add_part, bias_bits, element_bits
):
    """eights: codes of 8 keys and 8 elements; bias_bits: codes are too large by 1 << bias_bits, 0: they are not

    coded: where a query's codes are, and what its scores begin with
    """
    key_scales = keys + PAGE * size * element_bits // 8
    for t in range(count):
        codes, start = coded(q, t, keys, size, scores)
        query_scales, code_sums = codes + size, codes + size + size // 8
        for block in range(size // BLOCK):
            query_scale, offset = splat_at_f32x8(query_scales + 4 * block), zero_i32x8()
            if bias_bits != 0:
                offset = shift_left(splat_at_i32x8(code_sums + 4 * block), bias_bits)
            for key in range(0, PAGE, 32):
                a, b, c, d = zero(), zero(), zero(), zero()
                for eight in range(4 * block, 4 * block + 4):
                    at = keys + PAGE * eight * element_bits + 4 * key
                    if t == 0:
                        next_bytes = ahead + element_bits * (64 * eight + key)
                        prefetch(next_bytes)
                        prefetch(next_bytes + 64)
                        if element_bits == 8:
                            prefetch(next_bytes + 128)
                            prefetch(next_bytes + 192)
                    x, y = splat4_at_i8x32(codes + 8 * eight), splat4_at_i8x32(codes + 8 * eight + 4)
                    first, second = eights(at)
                    a = dot(dot(a, first, x), second, y)
                    first, second = eights(at + 32)
                    b = dot(dot(b, first, x), second, y)
                    first, second = eights(at + 64)
                    c = dot(dot(c, first, x), second, y)
                    first, second = eights(at + 96)
                    d = dot(dot(d, first, x), second, y)
                out, scales = scores + 4 * (t * PAGE + key), key_scales + 2 * (block * PAGE + key)
                add_part(out, sub(widened(a), offset), scales, query_scale, before_block(out, block, start))
                out, scales = out + 32, scales + 16
                add_part(out, sub(widened(b), offset), scales, query_scale, before_block(out, block, start))
                out, scales = out + 32, scales + 16
                add_part(out, sub(widened(c), offset), scales, query_scale, before_block(out, block, start))
                out, scales = out + 32, scales + 16
                add_part(out, sub(widened(d), offset), scales, query_scale, before_block(out, block, start))


# --- types -----------------------------------------------------------------------------------------------------------


@step
def scores_f32(count, q, keys, size, scores, ahead):
    scores_of_floats(count, q, keys, size, scores, ahead, load_f32x8, 4)


@step
def scores_f16(count, q, keys, size, scores, ahead):
    scores_of_floats(count, q, keys, size, scores, ahead, load_f16x8, 2)


@step
def scores_bf16(count, q, keys, size, scores, ahead):
    scores_of_floats(count, q, keys, size, scores, ahead, load_bf16x8, 2)


@step
def scores_q8_0(count, q, keys, size, scores, ahead):
    coded, bias = query_as_it_is, 7 if SIGNED_BIAS != 0 else 0
    scores_of_codes(
        count, q, keys, size, scores, ahead, coded, eights_q8_0, dot_s8, zero_i32x8, as_it_is, add_scaled, bias, 8
    )


@step
def scores_q4_0(count, q, keys, size, scores, ahead):
    coded, dot, zero = query_by_element, narrow_dot, zero_products
    scores_of_codes(count, q, keys, size, scores, ahead, coded, eights_q4_0, dot, zero, widen, add_products, 3, 4)
