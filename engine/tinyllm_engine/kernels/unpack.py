"""The one step in which weight types differ: a stored block becomes codes, a scale and a minimum.

    weight = scale * (code - bias) + minimum

`unpack(block, part)` takes the address of a stored block and which 32 of its elements are wanted (0 where a block has
32). It returns the codes in element order, the scale (the bits of an f16, or a float32; a pair where each 16 elements
have their own) and the minimum in the same form, or None where the type has none. The bias is a constant of the type.
What follows is the same for every type.
"""

import numpy as np

from tinyllm_engine.jit import inlined
from tinyllm_engine.simd import (
    SIGNED_BIAS,
    and_byte,
    bit_or,
    bits_to_bytes,
    load_f16,
    load_i8,
    load_i8x16,
    load_i8x32,
    load_u8,
    load_u16,
    load_u32,
    nibbles,
    shift_right_words,
    shift_words,
    xor_byte,
)

LOW4 = np.int8(15)


@inlined
def unpack_q4_0(block, part):
    return nibbles(load_i8x16(block + 2)), load_u16(block), None


@inlined
def header_q4_0(block):
    """Scale and minimum alone, for kernels that take the nibbles of two rows at a time; with where those begin."""
    return load_u16(block), None, block + 2


@inlined
def header_q4_1(block):
    return load_u16(block), load_u16(block + 2), block + 4


@inlined
def unpack_q4_1(block, part):
    return nibbles(load_i8x16(block + 4)), load_u16(block), load_u16(block + 2)


@inlined
def fifth_bits(address):
    """32 single bits -> 0 or 16 in each byte."""
    return and_byte(bits_to_bytes(load_u32(address)), np.int8(16))


@inlined
def unpack_q5_0(block, part):
    return bit_or(nibbles(load_i8x16(block + 6)), fifth_bits(block + 2)), load_u16(block), None


@inlined
def unpack_q5_1(block, part):
    return bit_or(nibbles(load_i8x16(block + 8)), fifth_bits(block + 4)), load_u16(block), load_u16(block + 2)


if SIGNED_BIAS:

    @inlined
    def signed_codes(codes):
        """Where the hardware multiplies unsigned by signed, w + 128 is multiplied and 128 is the bias."""
        return xor_byte(codes, np.int8(-128))
else:

    @inlined
    def signed_codes(codes):
        return codes


@inlined
def unpack_q8_0(block, part):
    return signed_codes(load_i8x32(block + 2)), load_u16(block), None


@inlined
def six_bit_pair(scales, part):
    """Scale and minimum number `part` (0..7) of the twelve packed bytes of Q4_K and Q5_K."""
    low, high = load_u8(scales + (part & 3)), load_u8(scales + 4 + (part & 3))
    if part < 4:
        return np.float32(low & 63), np.float32(high & 63)
    last = load_u8(scales + 4 + part)
    return np.float32((last & 15) | (low >> 6) << 4), np.float32((last >> 4) | (high >> 6) << 4)


@inlined
def unpack_q4_k(block, part):
    scale, minimum = six_bit_pair(block + 4, part)
    packed = load_i8x32(block + 16 + 32 * (part >> 1))
    codes = and_byte(shift_right_words(packed, np.int8(4 * (part & 1))), LOW4)
    return codes, load_f16(block) * scale, -load_f16(block + 2) * minimum


@inlined
def unpack_q6_k(block, part):
    half, quarter = part >> 2, part & 3
    low = load_i8x32(block + 64 * half + 32 * (quarter & 1))
    low = and_byte(shift_right_words(low, np.int8(4 * (quarter >> 1))), LOW4)
    high = and_byte(shift_words(load_i8x32(block + 128 + 32 * half), 4 - 2 * quarter), np.int8(48))
    codes = bit_or(low, high)
    d = load_f16(block + 208)
    s0 = d * np.float32(load_i8(block + 192 + 2 * part))
    s1 = d * np.float32(load_i8(block + 193 + 2 * part))
    return codes, (s0, s1), None


# Biases of the types, by the name of their unpack step.
BIAS_Q4_0, BIAS_Q5_0, BIAS_Q8_0, BIAS_Q6_K = (np.float32(b) for b in (8, 16, SIGNED_BIAS, 32))
NO_BIAS = np.float32(0)
