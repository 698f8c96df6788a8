"""Unpack steps (see unpack) of the types whose bits choose groups of 4 or 8 codes at once from a grid: IQ1, IQ2, IQ3.

The grids stand beside the machine code, as codes: what the format has as -m and m lies as far below and above the bias.
"""

import numpy as np

from tinyllm_engine.jit import inlined
from tinyllm_engine.quants.codebook import EVEN_SIGNS, grid
from tinyllm_engine.simd import (
    add,
    and_byte,
    bit_xor,
    bits_to_bytes,
    half_bits_to_f32,
    join_i8x16,
    load_f16,
    load_four_eights,
    load_four_fours,
    load_i8x32,
    load_u8,
    load_u16,
    load_u32,
    sub,
    subtract_byte,
    table,
)

QUARTER, HALF = np.float32(0.25), np.float32(0.5)


# --- signs -----------------------------------------------------------------------------------------------------------


@table
def even_sign_masks():
    """uint8 [128, 8]: for seven stored sign bits eight bytes, all bits set where the sign is minus."""
    return np.unpackbits(EVEN_SIGNS[:, None], axis=1, bitorder="little") * np.uint8(255)


@inlined
def even_signs(a, b, c, d):
    """Four times seven sign bits (higher bits are ignored) -> 0x00 or 0xFF in each of 32 bytes."""
    masks = even_sign_masks()
    return load_four_eights(masks + 8 * (a & 127), masks + 8 * (b & 127), masks + 8 * (c & 127), masks + 8 * (d & 127))


@inlined
def even_signs_of(word):
    """The same of a word that holds the four, and something else in its upper four bits."""
    return even_signs(word, word >> 7, word >> 14, word >> 21)


@inlined
def signed(magnitudes, minus, bias):
    """bias + m, or bias - m where the mask says so."""
    return sub(bit_xor(magnitudes, minus), subtract_byte(minus, bias))


# --- IQ2: magnitudes 8, 25 and 43 ------------------------------------------------------------------------------------


@table
def iq2_xxs_grid():
    return grid("iq2_xxs")


@table
def iq2_xs_grid():
    return grid("iq2_xs")


@table
def iq2_s_grid():
    return grid("iq2_s")


IQ2_LARGEST = np.int8(43)


@inlined
def unpack_iq2_xxs(block, part):
    at, entries = block + 2 + 8 * part, iq2_xxs_grid()
    word = load_u32(at + 4)
    magnitudes = load_four_eights(
        entries + 8 * load_u8(at),
        entries + 8 * load_u8(at + 1),
        entries + 8 * load_u8(at + 2),
        entries + 8 * load_u8(at + 3),
    )
    scale = load_f16(block) * ((HALF + np.float32(word >> 28)) * QUARTER)
    return signed(magnitudes, even_signs_of(word), IQ2_LARGEST), scale, None


@inlined
def iq2_scales(block, scales, part):
    """A nibble for each 16 weights."""
    d, both = load_f16(block), load_u8(scales + part)
    return d * ((HALF + np.float32(both & 15)) * QUARTER), d * ((HALF + np.float32(both >> 4)) * QUARTER)


@inlined
def unpack_iq2_xs(block, part):
    at, entries = block + 2 + 8 * part, iq2_xs_grid()
    a, b, c, d = load_u16(at), load_u16(at + 2), load_u16(at + 4), load_u16(at + 6)
    magnitudes = load_four_eights(
        entries + 8 * (a & 511), entries + 8 * (b & 511), entries + 8 * (c & 511), entries + 8 * (d & 511)
    )
    signs = even_signs(a >> 9, b >> 9, c >> 9, d >> 9)
    return signed(magnitudes, signs, IQ2_LARGEST), iq2_scales(block, block + 66, part), None


@inlined
def unpack_iq2_s(block, part):
    at, entries, high = block + 2 + 4 * part, iq2_s_grid(), load_u8(block + 66 + part)
    magnitudes = load_four_eights(
        entries + 8 * (load_u8(at) | (high & 3) << 8),
        entries + 8 * (load_u8(at + 1) | (high & 12) << 6),
        entries + 8 * (load_u8(at + 2) | (high & 48) << 4),
        entries + 8 * (load_u8(at + 3) | (high & 192) << 2),
    )
    signs = bits_to_bytes(load_u32(block + 34 + 4 * part))
    return signed(magnitudes, signs, IQ2_LARGEST), iq2_scales(block, block + 74, part), None


# --- IQ3 -------------------------------------------------------------------------------------------------------------


@table
def iq3_xxs_grid():
    """Halves: the magnitudes are even, up to 62."""
    return grid("iq3_xxs") >> 1


@table
def iq3_s_grid():
    """The magnitudes are odd: 2k + 1, k in 0..7. As code k + 8 that is 2 * (code - 7.5)."""
    return (grid("iq3_s") >> 1) + np.uint8(8)


IQ3_XXS_LARGEST = np.int8(31)


@inlined
def unpack_iq3_xxs(block, part):
    at, entries, word = block + 2 + 8 * part, iq3_xxs_grid(), load_u32(block + 66 + 4 * part)
    low = load_four_fours(
        entries + 4 * load_u8(at),
        entries + 4 * load_u8(at + 1),
        entries + 4 * load_u8(at + 2),
        entries + 4 * load_u8(at + 3),
    )
    high = load_four_fours(
        entries + 4 * load_u8(at + 4),
        entries + 4 * load_u8(at + 5),
        entries + 4 * load_u8(at + 6),
        entries + 4 * load_u8(at + 7),
    )
    codes = signed(join_i8x16(low, high), even_signs_of(word), IQ3_XXS_LARGEST)
    return codes, load_f16(block) * (HALF + np.float32(word >> 28)), None


@inlined
def unpack_iq3_s(block, part):
    at, entries, ninth = block + 2 + 8 * part, iq3_s_grid(), load_u8(block + 66 + part)
    low = load_four_fours(
        entries + 4 * (load_u8(at) | (ninth & 1) << 8),
        entries + 4 * (load_u8(at + 1) | (ninth & 2) << 7),
        entries + 4 * (load_u8(at + 2) | (ninth & 4) << 6),
        entries + 4 * (load_u8(at + 3) | (ninth & 8) << 5),
    )
    high = load_four_fours(
        entries + 4 * (load_u8(at + 4) | (ninth & 16) << 4),
        entries + 4 * (load_u8(at + 5) | (ninth & 32) << 3),
        entries + 4 * (load_u8(at + 6) | (ninth & 64) << 2),
        entries + 4 * (load_u8(at + 7) | (ninth & 128) << 1),
    )
    minus = and_byte(bits_to_bytes(load_u32(block + 74 + 4 * part)), np.int8(15))  # 15 - code: as far below 7.5
    scale = (load_u8(block + 106 + (part >> 1)) >> 4 * (part & 1)) & 15
    return bit_xor(join_i8x16(low, high), minus), load_f16(block) * np.float32(4 * scale + 2), None


# --- IQ1: -1, 0 and 1, and all eight of a group 1/8 more or less ------------------------------------------------------


@table
def iq1_s_grid():
    return grid("iq1") + np.int8(1)


@table
def iq1_m_grid():
    return 8 * grid("iq1") + np.int8(9)


@table
def iq1_m_deltas():
    """int8 [16, 32]: for the signs of four groups -1 or 1 for each of their weights."""
    signs = np.unpackbits(np.arange(16, dtype=np.uint8)[:, None], axis=1, bitorder="little")[:, :4]
    return np.repeat(1 - 2 * signs.astype(np.int8), 8, axis=1)


IQ1_LESS, IQ1_MORE, EIGHTH = np.float32(-1.125), np.float32(-0.875), np.float32(0.125)


@inlined
def unpack_iq1_s(block, part):
    """All groups of a part share their delta: it goes into the minimum."""
    at, entries, word = block + 2 + 4 * part, iq1_s_grid(), load_u16(block + 34 + 2 * part)
    codes = load_four_eights(
        entries + 8 * (load_u8(at) | (word & 7) << 8),
        entries + 8 * (load_u8(at + 1) | (word & 56) << 5),
        entries + 8 * (load_u8(at + 2) | (word & 448) << 2),
        entries + 8 * (load_u8(at + 3) | (word & 3584) >> 1),
    )
    scale = load_f16(block) * np.float32((word >> 12 & 7) * 2 + 1)
    return codes, scale, scale * (IQ1_LESS if word >> 15 else IQ1_MORE)


@inlined
def unpack_iq1_m(block, part):
    """Each group has a delta: the codes are eighths."""
    at, entries, high = block + 4 * part, iq1_m_grid(), load_u16(block + 32 + 2 * part)
    codes = load_four_eights(
        entries + 8 * (load_u8(at) | (high & 0x7) << 8),
        entries + 8 * (load_u8(at + 1) | (high & 0x70) << 4),
        entries + 8 * (load_u8(at + 2) | (high & 0x700)),
        entries + 8 * (load_u8(at + 3) | (high & 0x7000) >> 4),
    )
    signs = ((high >> 3 & 0x1111) * 0x1248 >> 12) & 15  # bits 3, 7, 11 and 15, side by side
    scales = block + 48
    d = half_bits_to_f32(iq1_m_scale(scales)) * EIGHTH
    three_bits = load_u16(scales + 2 * (part >> 1)) >> 6 * (part & 1)
    first, second = np.float32((three_bits & 7) * 2 + 1), np.float32((three_bits >> 3 & 7) * 2 + 1)
    return add(codes, load_i8x32(iq1_m_deltas() + 32 * signs)), (d * first, d * second), None


@inlined
def iq1_m_scale(scales):
    """The bits of a block's own scale: the top nibbles of four words."""
    a, b, c, d = load_u16(scales), load_u16(scales + 2), load_u16(scales + 4), load_u16(scales + 6)
    return np.uint16(a >> 12 | (b >> 8 & 0xF0) | (c >> 4 & 0xF00) | (d & 0xF000))


# Biases of the types, by the name of their unpack step.
BIAS_IQ2, BIAS_IQ3_XXS, BIAS_IQ3_S, BIAS_IQ1_M = (np.float32(b) for b in (IQ2_LARGEST, IQ3_XXS_LARGEST, 7.5, 9))
