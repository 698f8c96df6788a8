"""Integer sums of products of eight stored rows with one of activations: a part of 32 elements, a lane for each row.

What adds up in 16 bits is widened before it could overflow, which depends on how large the codes of a type are.
"""

import numpy as np

from tinyllm_engine.jit import inlined
from tinyllm_engine.kernels.unpack import LOW4, fp4_codes, iq4_values
from tinyllm_engine.simd import (
    and_byte,
    dot_s8,
    high_halves,
    load_i8x16_twice,
    load_i8x32,
    load_two_i8x16,
    lookup16,
    low_halves,
    nibble_products,
    row_products,
    shift_right_words,
    sum_fours,
    sum_halves,
    sum_pairs,
    widen,
    zero_i32x8,
)

# --- codes of eight rows -> sums of rows 0-3 and of rows 4-7: of elements 0-15 in the low half, 16-31 in the high -----


@inlined
def sums_u5(a, b, c, d, e, f, g, h, x):
    """Codes up to 31: the eight products of a lane of a sum of fours stay below 2**15."""
    low = sum_fours(
        sum_pairs(row_products(a, x), row_products(b, x)), sum_pairs(row_products(c, x), row_products(d, x))
    )
    high = sum_fours(
        sum_pairs(row_products(e, x), row_products(f, x)), sum_pairs(row_products(g, x), row_products(h, x))
    )
    return widen(low), widen(high)


@inlined
def sums_u6(a, b, c, d, e, f, g, h, x):
    """Codes up to 63: the four products of a lane of a sum of pairs do."""
    ab = widen(sum_pairs(row_products(a, x), row_products(b, x)))
    cd = widen(sum_pairs(row_products(c, x), row_products(d, x)))
    ef = widen(sum_pairs(row_products(e, x), row_products(f, x)))
    gh = widen(sum_pairs(row_products(g, x), row_products(h, x)))
    return fours(ab, cd, ef, gh)


@inlined
def sums_u7(a, b, c, d, e, f, g, h, x):
    """Codes up to 127: two products do."""
    ab = sum_pairs(widen(row_products(a, x)), widen(row_products(b, x)))
    cd = sum_pairs(widen(row_products(c, x)), widen(row_products(d, x)))
    ef = sum_pairs(widen(row_products(e, x)), widen(row_products(f, x)))
    gh = sum_pairs(widen(row_products(g, x)), widen(row_products(h, x)))
    return fours(ab, cd, ef, gh)


@inlined
def sums_s8(a, b, c, d, e, f, g, h, x):
    """Signed codes."""
    zero = zero_i32x8()
    ab = sum_pairs(dot_s8(zero, a, x), dot_s8(zero, b, x))
    cd = sum_pairs(dot_s8(zero, c, x), dot_s8(zero, d, x))
    ef = sum_pairs(dot_s8(zero, e, x), dot_s8(zero, f, x))
    gh = sum_pairs(dot_s8(zero, g, x), dot_s8(zero, h, x))
    return fours(ab, cd, ef, gh)


@inlined
def fours(ab, cd, ef, gh):
    return sum_fours(ab, cd), sum_fours(ef, gh)


# --- a part of eight stored blocks, `stride` bytes apart -------------------------------------------------------------


@inlined
def fours_of(block, stride, part, x, unpack, sums_of):
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
def sums_in_halves(block, stride, part, x, unpack, sums_of):
    """Integer sums of eight rows: of elements 0-15 and of elements 16-31."""
    first, last = fours_of(block, stride, part, x, unpack, sums_of)
    return low_halves(first, last), high_halves(first, last)


@inlined
def sums_of_all(block, stride, part, x, unpack, sums_of):
    """The same of all 32 elements."""
    first, last = fours_of(block, stride, part, x, unpack, sums_of)
    return sum_halves(first, last)


@inlined
def sums_of_nibbles(block, stride, part, x, nibbles_at, sums_of):
    """The same where a part is 16 bytes of nibbles, low ones first, all parts behind a header of `nibbles_at` bytes.

    Two rows go in one vector, a row in each half: no element has to move before it is multiplied.
    """
    q0 = block + nibbles_at + 16 * part
    q1, q2, q3, q4 = q0 + stride, q0 + 2 * stride, q0 + 3 * stride, q0 + 4 * stride
    return sums_of(
        load_two_i8x16(q0, q4),
        load_two_i8x16(q1, q4 + stride),
        load_two_i8x16(q2, q4 + 2 * stride),
        load_two_i8x16(q3, q4 + 3 * stride),
        load_i8x16_twice(x),
        load_i8x16_twice(x + 16),
    )


@inlined
def sums_of_nibble_pairs(block, stride, part, x, nibbles_at, sums_of):
    """The same where 32 bytes hold the nibbles of two parts, those of the even one in the low halves of the bytes."""
    q0 = block + nibbles_at + 32 * (part >> 1)
    q1, q2, q3, q4 = q0 + stride, q0 + 2 * stride, q0 + 3 * stride, q0 + 4 * stride
    shift, x_low, x_high = np.int8(4 * (part & 1)), load_i8x16_twice(x), load_i8x16_twice(x + 16)
    return sums_of(
        one_of_two(q0, q4, shift, x_low, x_high),
        one_of_two(q1, q4 + stride, shift, x_low, x_high),
        one_of_two(q2, q4 + 2 * stride, shift, x_low, x_high),
        one_of_two(q3, q4 + 3 * stride, shift, x_low, x_high),
    )


@inlined
def one_of_two(first, second, shift, x_low, x_high):
    """Products of 32 nibbles of two rows."""
    low, high = load_two_i8x16(first, second), load_two_i8x16(first + 16, second + 16)
    low, high = and_byte(shift_right_words(low, shift), LOW4), and_byte(shift_right_words(high, shift), LOW4)
    return nibble_products(low, x_low, high, x_high)


@inlined
def u4_fours(ae, bf, cg, dh):
    """16 products of a lane, each up to 15 * 127, stay below 2**15."""
    return widen(sum_fours(sum_pairs(ae, bf), sum_pairs(cg, dh)))


# --- nibbles of eight rows, two in a vector -> sums of all elements --------------------------------------------------


@inlined
def high_nibbles(packed):
    return and_byte(shift_right_words(packed, np.int8(4)), LOW4)


@inlined
def u4_pair(packed, x_low, x_high):
    return nibble_products(and_byte(packed, LOW4), x_low, high_nibbles(packed), x_high)


@inlined
def u4_nibbles(ae, bf, cg, dh, x_low, x_high):
    """The nibbles are the codes."""
    return u4_fours(
        u4_pair(ae, x_low, x_high), u4_pair(bf, x_low, x_high), u4_pair(cg, x_low, x_high), u4_pair(dh, x_low, x_high)
    )


@inlined
def fp4_pair(packed, x_low, x_high):
    codes = load_i8x16_twice(fp4_codes())
    low, high = lookup16(codes, and_byte(packed, LOW4)), lookup16(codes, high_nibbles(packed))
    return nibble_products(low, x_low, high, x_high)


@inlined
def fp4_nibbles(ae, bf, cg, dh, x_low, x_high):
    """Codes up to 24: eight products do."""
    ab = widen(sum_pairs(fp4_pair(ae, x_low, x_high), fp4_pair(bf, x_low, x_high)))
    return sum_fours(ab, widen(sum_pairs(fp4_pair(cg, x_low, x_high), fp4_pair(dh, x_low, x_high))))


@inlined
def iq4_pair(packed, x_low, x_high):
    values = load_i8x16_twice(iq4_values())
    low, high = lookup16(values, and_byte(packed, LOW4)), lookup16(values, high_nibbles(packed))
    return dot_s8(dot_s8(zero_i32x8(), low, x_low), high, x_high)


@inlined
def iq4_nibbles(ae, bf, cg, dh, x_low, x_high):
    """Signed codes."""
    ab = sum_pairs(iq4_pair(ae, x_low, x_high), iq4_pair(bf, x_low, x_high))
    return sum_fours(ab, sum_pairs(iq4_pair(cg, x_low, x_high), iq4_pair(dh, x_low, x_high)))
