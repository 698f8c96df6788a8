"""Scales and minima of eight stored rows at once, one row a lane.

Types with a few bytes of header take them straight into vectors. Types with 8 or 16 packed scales a block of 256 list
them in a table first: float32 [group][8 rows] of scales, and from MINIMA on the same of minima.
"""

import numpy as np

from tinyllm_engine.jit import inlined
from tinyllm_engine.simd import (
    bit_or,
    bits_of,
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
    to_f32,
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
def one_half(block, stride):
    """Blocks that begin with an f16 scale."""
    return halves8(block, stride), None


@inlined
def two_halves(block, stride):
    """Blocks that begin with an f16 scale and an f16 minimum."""
    return split_halves(load8_words(block, stride))


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
