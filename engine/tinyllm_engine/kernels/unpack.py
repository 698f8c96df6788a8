"""The one step in which weight types differ: a stored block becomes codes, a scale and a minimum.

    weight = scale * (code - bias) + minimum

`unpack(block, part)` takes the address of a stored block and which 32 of its elements are wanted (0 where a block has
32). It returns the codes in element order, the scale (the bits of an f16, or a float32; a pair where each 16 elements
have their own) and the minimum in the same form, or None where the type has none. The bias is a constant of the type.
What follows is the same for every type.
"""

import numpy as np

from tinyllm_engine.jit import inlined
from tinyllm_engine.quants import lookup4
from tinyllm_engine.simd import (
    SIGNED_BIAS,
    and_byte,
    bit_or,
    bits_to_bytes,
    first_digits,
    join_i8x16,
    load_f16,
    load_f32,
    load_i8,
    load_i8x4_repeated,
    load_i8x16,
    load_i8x16_twice,
    load_i8x32,
    load_two_bit_codes,
    load_u8,
    load_u16,
    load_u32,
    lookup16,
    mul,
    nibbles,
    nibbles_by_eights,
    shift_right_words,
    shift_words,
    table,
    xor_byte,
)

LOW2, LOW4 = np.int8(3), np.int8(15)


# --- blocks of 32 ----------------------------------------------------------------------------------------------------


@inlined
def unpack_q4_0(block, part):
    return nibbles(load_i8x16(block + 2)), load_u16(block), None


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


# --- K-quants --------------------------------------------------------------------------------------------------------


@inlined
def two_bits(packed, part):
    """Two bits of each of 32 bytes: part 0 the lowest of the first 32, part 7 the highest of the last."""
    half = load_i8x32(packed + 32 * (part >> 2))
    return and_byte(shift_right_words(half, np.int8(2 * (part & 3))), LOW2)


@inlined
def single_bits(packed, part, to):
    """Bit number `part` of each of 32 bytes, as bit number `to`."""
    return and_byte(shift_words(load_i8x32(packed), to - part), np.int8(1 << to))


@inlined
def pair_of_nibbles(pairs, part):
    """Nibbles of 32 bytes: the low ones for even parts, the high ones for odd."""
    packed = load_i8x32(pairs + 32 * (part >> 1))
    return and_byte(shift_right_words(packed, np.int8(4 * (part & 1))), LOW4)


@inlined
def unpack_q2_k(block, part):
    first, second = load_u8(block + 2 * part), load_u8(block + 2 * part + 1)
    d, dmin = load_f16(block + 80), -load_f16(block + 82)
    scales = d * np.float32(first & 15), d * np.float32(second & 15)
    return two_bits(block + 16, part), scales, (dmin * np.float32(first >> 4), dmin * np.float32(second >> 4))


@inlined
def unpack_q3_k(block, part):
    codes = bit_or(two_bits(block + 32, part), single_bits(block, part, 2))
    d, scales = load_f16(block + 108), block + 96
    return codes, (d * six_bit_scale(scales, 2 * part), d * six_bit_scale(scales, 2 * part + 1)), None


@inlined
def six_bit_scale(scales, index):
    """Scale number `index` (0..15) of the twelve packed bytes of Q3_K: -32..31."""
    low = (load_u8(scales + (index & 7)) >> 4 * (index >> 3)) & 15
    high = (load_u8(scales + 8 + (index & 3)) >> 2 * (index >> 2)) & 3
    return np.float32((low | high << 4) - 32)


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
    return pair_of_nibbles(block + 16, part), load_f16(block) * scale, -load_f16(block + 2) * minimum


@inlined
def unpack_q5_k(block, part):
    scale, minimum = six_bit_pair(block + 4, part)
    codes = bit_or(pair_of_nibbles(block + 48, part), single_bits(block + 16, part, 4))
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


# --- four bits that are looked up -------------------------------------------------------------------------------------


@table
def iq4_values():
    """The values of IQ4_NL and IQ4_XS, as `signed_codes` has them."""
    return (lookup4.IQ4_VALUES.astype(np.int16) + SIGNED_BIAS).astype(np.uint8)


@table
def fp4_codes():
    """The values of MXFP4 and NVFP4 above the lowest of them: 0..24."""
    return lookup4.FP4_VALUES - lookup4.FP4_VALUES.min()


@table
def e8m0_scales():
    return lookup4.E8M0_HALVES


@table
def ue4m3_scales():
    return lookup4.UE4M3_HALVES


@inlined
def iq4_codes(packed):
    return lookup16(load_i8x16_twice(iq4_values()), nibbles(load_i8x16(packed)))


@inlined
def unpack_iq4_nl(block, part):
    return iq4_codes(block + 2), load_u16(block), None


@inlined
def unpack_iq4_xs(block, part):
    low = (load_u8(block + 4 + (part >> 1)) >> 4 * (part & 1)) & 15
    high = (load_u16(block + 2) >> 2 * part) & 3
    scale = load_f16(block) * np.float32((low | high << 4) - 32)
    return iq4_codes(block + 8 + 16 * part), scale, None


@inlined
def unpack_mxfp4(block, part):
    codes = lookup16(load_i8x16_twice(fp4_codes()), nibbles(load_i8x16(block + 1)))
    return codes, load_f32(e8m0_scales() + 4 * load_u8(block)), None


@inlined
def unpack_nvfp4(block, part):
    codes = lookup16(load_i8x16_twice(fp4_codes()), nibbles_by_eights(load_i8x16(block + 4 + 16 * part)))
    scales, d = ue4m3_scales(), block + 2 * part
    return codes, (load_f32(scales + 4 * load_u8(d)), load_f32(scales + 4 * load_u8(d + 1))), None


# --- one or two bits, or one of three values --------------------------------------------------------------------------


@table
def trit_powers():
    """uint8 [8, 32]: for each element of a block of TQ1_0 3^i, i the number of its digit in its byte."""
    digits = np.zeros((8, 2, 16), np.int64)
    digits[:5] = np.arange(5)[:, None, None]  # 32 bytes of five digits
    digits[5:].reshape(6, 16)[:5] = np.arange(5)[:, None]  # 16 bytes of five
    digits[7, 1] = np.repeat(np.arange(4), 4)  # 4 bytes of four
    return (3**digits).astype(np.uint8)


@inlined
def unpack_tq1_0(block, part):
    low = load_i8x16(block if part < 5 else block + 32)
    high = load_i8x4_repeated(block + 48) if part == 7 else load_i8x16(block + 16 if part < 5 else block + 32)
    fractions = mul(join_i8x16(low, high), load_i8x32(trit_powers() + 32 * part))
    return first_digits(fractions), load_u16(block + 52), None


@inlined
def unpack_tq2_0(block, part):
    return two_bits(block, part), load_u16(block + 64), None


@inlined
def unpack_q1_0(block, part):
    return and_byte(bits_to_bytes(load_u32(block + 2 + 4 * part)), np.int8(2)), load_u16(block), None


@inlined
def unpack_q2_0(block, part):
    return load_two_bit_codes(block + 2 + 8 * part), load_u16(block), None


# Biases of the types, by the name of their unpack step.
NO_BIAS, BIAS_TERNARY = np.float32(0), np.float32(1)
BIAS_Q4_0, BIAS_Q5_0, BIAS_Q8_0, BIAS_Q3_K, BIAS_Q6_K = (np.float32(b) for b in (8, 16, SIGNED_BIAS, 4, 32))
BIAS_IQ4, BIAS_FP4 = np.float32(SIGNED_BIAS), np.float32(-int(lookup4.FP4_VALUES.min()))
