"""Blocks of 32 numbers as the cache keeps them in q8_0 and q4_0, and queries as the scores step wants them.

A row is turned by a Hadamard matrix, block by block, before it is quantized: one large element would else take its
precision from 31 others (arXiv:2404.00456). Scores do not notice, for queries are turned likewise; what attention makes
of turned values is turned back, which is the same operation once more. Only K in q4_0 is not turned.
"""

import numpy as np

from tinyllm_engine.jit import inlined, native
from tinyllm_engine.simd import (
    add,
    butterfly1,
    butterfly2,
    butterfly4,
    fma,
    horizontal_max,
    horizontal_sum,
    join_i32x8,
    largest_magnitude,
    load_f16,
    load_f16x8,
    load_f32x8,
    maximum,
    minimum,
    mul,
    round_to_int,
    splat_f32x8,
    store,
    store_f32,
    store_half,
    store_i32,
    sub,
    zero_f32x8,
)

BLOCK = 32
NORMALIZE = np.float32(32**-0.5)
Q8_TOP = np.float32(127.0)
Q4_LOWEST, Q4_TOP = np.float32(-8.0), np.float32(7.0)


@inlined
def turned(address):
    """Four vectors: the 32 numbers at `address` times the normalized Hadamard matrix."""
    a, b, c, d = load_f32x8(address), load_f32x8(address + 32), load_f32x8(address + 64), load_f32x8(address + 96)
    a, b, c, d = add(a, b), sub(a, b), add(c, d), sub(c, d)
    a, b, c, d = add(a, c), add(b, d), sub(a, c), sub(b, d)
    a, b, c, d = butterfly1(a), butterfly1(b), butterfly1(c), butterfly1(d)
    a, b, c, d = butterfly2(a), butterfly2(b), butterfly2(c), butterfly2(d)
    a, b, c, d = butterfly4(a), butterfly4(b), butterfly4(c), butterfly4(d)
    factor = splat_f32x8(NORMALIZE)
    return mul(a, factor), mul(b, factor), mul(c, factor), mul(d, factor)


@native
def turn(row, size):
    """Turns a row in place; twice is back."""
    for i in range(0, size, BLOCK):
        at = row + 4 * i
        a, b, c, d = turned(at)
        store(at, a)
        store(at + 32, b)
        store(at + 64, c)
        store(at + 96, d)


@inlined
def rounded(vector, inverse, lowest, top):
    """Integers lowest..top; what is no number becomes one of them."""
    scaled = mul(vector, splat_f32x8(inverse))
    return round_to_int(minimum(maximum(scaled, splat_f32x8(lowest)), splat_f32x8(top)))


@native
def quantize_q8_0(row, scale):
    """32 codes -127..127 of the turned numbers at `row`; their scale goes to its place as f16."""
    a, b, c, d = turned(row)
    store_half(scale, largest_magnitude(a, b, c, d) / Q8_TOP)
    kept = load_f16(scale)  # codes are those of the rounded scale
    inverse = np.float32(1.0) / kept if kept > 0 else np.float32(0.0)
    return join_i32x8(
        rounded(a, inverse, -Q8_TOP, Q8_TOP),
        rounded(b, inverse, -Q8_TOP, Q8_TOP),
        rounded(c, inverse, -Q8_TOP, Q8_TOP),
        rounded(d, inverse, -Q8_TOP, Q8_TOP),
    )


@inlined
def quantize_q4_0(a, b, c, d, scale):
    """32 codes -8..7 of numbers: the one that is largest in magnitude becomes -8."""
    top = horizontal_max(maximum(maximum(a, b), maximum(c, d)))
    zero = zero_f32x8()
    low = horizontal_max(maximum(maximum(sub(zero, a), sub(zero, b)), maximum(sub(zero, c), sub(zero, d))))
    magnitude = largest_magnitude(a, b, c, d)  # not a number if one of them is none
    store_half(scale, (magnitude if low >= top else -magnitude) / -Q4_LOWEST)
    kept = load_f16(scale)
    inverse = np.float32(1.0) / kept if kept != 0 else np.float32(0.0)
    return join_i32x8(
        rounded(a, inverse, Q4_LOWEST, Q4_TOP),
        rounded(b, inverse, Q4_LOWEST, Q4_TOP),
        rounded(c, inverse, Q4_LOWEST, Q4_TOP),
        rounded(d, inverse, Q4_LOWEST, Q4_TOP),
    )


# --- queries ---------------------------------------------------------------------------------------------------------


@inlined
def query_bytes(coded, size):
    """Of a query as the scores step wants it: floats, or codes int8, then a scale and a sum of codes for each block."""
    return size + size // 4 if coded else 4 * size


@inlined
def code_query_block(a, b, c, d, size, i, out):
    """The 32 elements from `i` on of a query as `query_bytes` has it."""
    top = largest_magnitude(a, b, c, d)
    inverse = Q8_TOP / top if top > np.float32(1e-30) else np.float32(0.0)
    a, b, c, d = (
        rounded(a, inverse, -Q8_TOP, Q8_TOP),
        rounded(b, inverse, -Q8_TOP, Q8_TOP),
        rounded(c, inverse, -Q8_TOP, Q8_TOP),
        rounded(d, inverse, -Q8_TOP, Q8_TOP),
    )
    store(out + i, join_i32x8(a, b, c, d))
    store_f32(out + size + i // 8, top / Q8_TOP)
    store_i32(out + size + size // 8 + i // 8, horizontal_sum(add(add(a, b), add(c, d))))


@native
def ready_query(coded, query, size, scale, out):
    """scale * a query, as the scores step of the type of K wants it: as it is, or turned and quantized."""
    factor = splat_f32x8(scale)
    if not coded:
        for i in range(0, 4 * size, 32):
            store(out + i, mul(load_f32x8(query + i), factor))
        return
    for i in range(0, size, BLOCK):
        a, b, c, d = turned(query + 4 * i)
        a, b, c, d = mul(a, factor), mul(b, factor), mul(c, factor), mul(d, factor)
        code_query_block(a, b, c, d, size, i, out)


@native
def code_query(query, scales, middles, size, out):
    """The same of a query whose every element is multiplied with a scale; returns the query's product with `middles`.

    query: float32 [size], scales and middles: f16 [size]
    """
    total = zero_f32x8()
    for i in range(0, size, BLOCK):
        at, scale, middle = query + 4 * i, scales + 2 * i, middles + 2 * i
        a, b, c, d = load_f32x8(at), load_f32x8(at + 32), load_f32x8(at + 64), load_f32x8(at + 96)
        total = fma(a, load_f16x8(middle), total)
        total = fma(b, load_f16x8(middle + 16), total)
        total = fma(c, load_f16x8(middle + 32), total)
        total = fma(d, load_f16x8(middle + 48), total)
        a, b = mul(a, load_f16x8(scale)), mul(b, load_f16x8(scale + 16))
        c, d = mul(c, load_f16x8(scale + 32)), mul(d, load_f16x8(scale + 48))
        code_query_block(a, b, c, d, size, i, out)
    return horizontal_sum(total)
