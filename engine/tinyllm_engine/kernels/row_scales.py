"""Scales and minima of eight stored rows at once, one row a lane.

Types with a few bytes of header take them straight into vectors. Types with 8 or 16 packed scales a block of 256 list
them in a table first: float32 [group][8 rows] of scales, and from MINIMA on the same of minima.
"""

import numpy as np

from tinyllm_engine.jit import inlined
from tinyllm_engine.simd import (
    add,
    bit_or,
    bits_of,
    e8m0_halves,
    join8_halves,
    load8_words,
    load_f32x8,
    load_u16,
    mul,
    shift_left,
    signed_byte_of,
    splat_f32x8,
    split_halves,
    store,
    sub,
    to_f32,
    ue4m3_halves,
)

ROWS = 8
MINIMA = 16 * 4 * ROWS  # bytes of a table of scales


@inlined
def halves8(address, stride):
    """The f16 at `address` of each of eight rows."""
    return join8_halves(
        load_u16(address),
        load_u16(address + stride),
        load_u16(address + 2 * stride),
        load_u16(address + 3 * stride),
        load_u16(address + 4 * stride),
        load_u16(address + 5 * stride),
        load_u16(address + 6 * stride),
        load_u16(address + 7 * stride),
    )


@inlined
def one_half(block, stride, part):
    """Blocks that begin with an f16 scale."""
    return halves8(block, stride), None


@inlined
def two_halves(block, stride, part):
    """Blocks that begin with an f16 scale and an f16 minimum."""
    return split_halves(load8_words(block, stride))


@inlined
def mxfp4(block, stride, part):
    """Blocks that begin with an exponent."""
    return e8m0_halves(bits_of(load8_words(block, stride), 0, 8)), None


@inlined
def nvfp4(block, stride, part):
    """Blocks that begin with four small floats, two for each part of 32."""
    words = load8_words(block, stride)
    return (ue4m3_halves(bits_of(words, 16 * part, 8)), ue4m3_halves(bits_of(words, 16 * part + 8, 8))), None


# What a part of 32 finds in the table: scales and minima.


@inlined
def listed(table, part):
    """One of each."""
    at = table + 4 * ROWS * part
    return load_f32x8(at), load_f32x8(at + MINIMA)


@inlined
def listed_halves(table, part):
    """A scale for each 16, and no minimum."""
    at = table + 8 * ROWS * part
    return (load_f32x8(at), load_f32x8(at + 4 * ROWS)), None


@inlined
def listed_scales(table, part):
    """A scale, and no minimum."""
    return load_f32x8(table + 4 * ROWS * part), None


@inlined
def listed_once(table, part):
    """A scale for the whole block."""
    return load_f32x8(table), None


@inlined
def listed_halves_minima(table, part):
    """A scale and a minimum for each 16."""
    at = table + 8 * ROWS * part
    low, high = at + MINIMA, at + MINIMA + 4 * ROWS
    return (load_f32x8(at), load_f32x8(at + 4 * ROWS)), (load_f32x8(low), load_f32x8(high))


# What is written there. `unpack` is the type's own step.


@inlined
def list_q4_k(block, stride, table, unpack):
    """Q4_K and Q5_K: eight scales and minima of 6 bits in twelve bytes, times the two f16 of the block."""
    d, dmin = split_halves(load8_words(block, stride))
    dmin = mul(dmin, splat_f32x8(np.float32(-1)))
    low_scales, low_minima = load8_words(block + 4, stride), load8_words(block + 8, stride)
    high = load8_words(block + 12, stride)
    for part in range(4):
        bit, at = 8 * part, table + 4 * ROWS * part
        store(at, mul(d, to_f32(bits_of(low_scales, bit, 6))))
        store(at + MINIMA, mul(dmin, to_f32(bits_of(low_minima, bit, 6))))
        scale = bit_or(bits_of(high, bit, 4), shift_left(bits_of(low_scales, bit + 6, 2), 4))
        minimum = bit_or(bits_of(high, bit + 4, 4), shift_left(bits_of(low_minima, bit + 6, 2), 4))
        store(at + 16 * ROWS, mul(d, to_f32(scale)))
        store(at + 16 * ROWS + MINIMA, mul(dmin, to_f32(minimum)))


@inlined
def list_q6_k(block, stride, table, unpack):
    """Sixteen signed bytes, times the f16 of the block."""
    d = halves8(block + 208, stride)
    for four in range(4):
        words = load8_words(block + 192 + 4 * four, stride)
        for i in range(4):
            store(table + 4 * ROWS * (4 * four + i), mul(d, to_f32(signed_byte_of(words, i))))


@inlined
def list_q2_k(block, stride, table, unpack):
    """A byte for each 16: scale in the low nibble, minimum in the high one."""
    d, dmin = split_halves(load8_words(block + 80, stride))
    dmin = mul(dmin, splat_f32x8(np.float32(-1)))
    for four in range(4):
        words = load8_words(block + 4 * four, stride)
        for i in range(4):
            at = table + 4 * ROWS * (4 * four + i)
            store(at, mul(d, to_f32(bits_of(words, 8 * i, 4))))
            store(at + MINIMA, mul(dmin, to_f32(bits_of(words, 8 * i + 4, 4))))


@inlined
def store_biased(at, d, low, high):
    """d times a number of four low and two high bits, less 32."""
    number = to_f32(bit_or(low, shift_left(high, 4)))
    store(at, mul(d, sub(number, splat_f32x8(np.float32(32)))))


@inlined
def list_q3_k(block, stride, table, unpack):
    """Low nibbles in eight bytes, numbers 0-7 below 8-15; the upper two bits in four more, every fourth in one."""
    d, high = halves8(block + 108, stride), load8_words(block + 104, stride)
    for four in range(4):
        low = load8_words(block + 96 + 4 * (four & 1), stride)
        for i in range(4):
            at = table + 4 * ROWS * (4 * four + i)
            store_biased(at, d, bits_of(low, 8 * i + 4 * (four >> 1), 4), bits_of(high, 8 * i + 2 * four, 2))


@inlined
def list_iq4_xs(block, stride, table, unpack):
    """The upper two bits share a word with d."""
    d, high, low = halves8(block, stride), load8_words(block, stride), load8_words(block + 4, stride)
    for part in range(8):
        store_biased(table + 4 * ROWS * part, d, bits_of(low, 4 * part, 4), bits_of(high, 16 + 2 * part, 2))


@inlined
def store_linear(at, d, number, factor, constant):
    """d * (factor * number + constant)"""
    number = mul(to_f32(number), splat_f32x8(np.float32(factor)))
    store(at, mul(d, add(number, splat_f32x8(np.float32(constant)))))


@inlined
def list_iq2_xxs(block, stride, table, unpack):
    """Four bits at the top of each part's second word."""
    d = halves8(block, stride)
    for part in range(8):
        number = bits_of(load8_words(block + 6 + 8 * part, stride), 28, 4)
        store_linear(table + 4 * ROWS * part, d, number, 0.25, 0.125)


@inlined
def list_iq3_xxs(block, stride, table, unpack):
    """Four bits at the top of each part's word."""
    d = halves8(block, stride)
    for part in range(8):
        number = bits_of(load8_words(block + 66 + 4 * part, stride), 28, 4)
        store_linear(table + 4 * ROWS * part, d, number, 1, 0.5)


@inlined
def list_nibbles(scales, d, stride, table):
    """Sixteen nibbles, low ones first."""
    for eight in range(2):
        words = load8_words(scales + 4 * eight, stride)
        for i in range(8):
            store_linear(table + 4 * ROWS * (8 * eight + i), d, bits_of(words, 4 * i, 4), 0.25, 0.125)


@inlined
def list_iq2_xs(block, stride, table, unpack):
    list_nibbles(block + 66, halves8(block, stride), stride, table)


@inlined
def list_iq2_s(block, stride, table, unpack):
    list_nibbles(block + 74, halves8(block, stride), stride, table)


@inlined
def list_iq3_s(block, stride, table, unpack):
    """Eight nibbles. The codes are half as large as the magnitudes of the grid."""
    d, words = halves8(block, stride), load8_words(block + 106, stride)
    for part in range(8):
        store_linear(table + 4 * ROWS * part, d, bits_of(words, 4 * part, 4), 4, 2)


@inlined
def list_iq1_s(block, stride, table, unpack):
    """Four bits at the top of each part's 16: scale and sign of the delta, which is part of the minimum."""
    d = halves8(block, stride)
    for part in range(8):
        words, bit, at = load8_words(block + 34 + 4 * (part >> 1), stride), 16 * (part & 1), table + 4 * ROWS * part
        store_linear(at, d, bits_of(words, bit + 12, 3), 2, 1)
        store_linear(at + MINIMA, load_f32x8(at), bits_of(words, bit + 15, 1), -0.25, -0.875)


@inlined
def list_iq1_m(block, stride, table, unpack):
    """Four words of 16 bits: four scales of three, and at the top a quarter of the block's own, an f16."""
    first, second = load8_words(block + 48, stride), load8_words(block + 52, stride)
    low = bit_or(bits_of(first, 12, 4), shift_left(bits_of(first, 28, 4), 4))
    high = bit_or(bits_of(second, 12, 4), shift_left(bits_of(second, 28, 4), 4))
    d, _ = split_halves(bit_or(low, shift_left(high, 8)))
    for eight in range(2):
        words = second if eight else first
        for i in range(8):
            number = bits_of(words, 16 * (i >> 2) + 3 * (i & 3), 3)
            store_linear(table + 4 * ROWS * (8 * eight + i), d, number, 0.25, 0.125)


@inlined
def list_tq1_0(block, stride, table, unpack):
    store(table, halves8(block + 52, stride))


@inlined
def list_tq2_0(block, stride, table, unpack):
    store(table, halves8(block + 64, stride))
