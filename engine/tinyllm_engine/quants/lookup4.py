"""Types whose four bits are an index into a table of 16 values: IQ4_NL, IQ4_XS, MXFP4, NVFP4."""

from __future__ import annotations

import numpy as np

from tinyllm_engine.quants.base import Blocks, Bytes, Floats, column, nibbles, quant_type

# Denser around zero, where most weights are.
IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
# Twice the values of a four-bit float (sign, two bits of exponent, one of mantissa), so that they are integers.
FP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def _e8m0_halves() -> Floats:
    """float32 [256]: half of what an 8-bit exponent stands for, 2^(e - 128); this undoes the doubling of FP4_VALUES."""
    return np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)


def _ue4m3_halves() -> Floats:
    """float32 [256]: half the value of an unsigned 8-bit float, bias 7, its top bit ignored; 0x7f stands for 0."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    significand = np.where(exponent == 0, mantissa, mantissa + 8)
    values = np.ldexp(significand.astype(np.float32), np.maximum(exponent, 1) - 11)
    values[0x7F] = 0
    return values.astype(np.float32)


E8M0_HALVES = _e8m0_halves()
UE4M3_HALVES = _ue4m3_halves()


def _iq4_nl(b: Blocks) -> Floats:
    return IQ4_VALUES[nibbles(b["qs"])] * column(b["d"])


def _iq4_xs(b: Blocks) -> Floats:
    """Per 32 values a scale of six bits minus 32: the lower four in scales_l, two in scales_h."""
    scales = column(b["d"]) * _iq4_xs_scales(b)
    return IQ4_VALUES[nibbles(b["qs"].reshape(len(b), 8, 16))] * scales[:, :, None]


def _iq4_xs_scales(b: Blocks) -> Floats:
    low = np.stack([b["scales_l"] & 15, b["scales_l"] >> 4], axis=2).reshape(len(b), 8)
    high = b["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    return (low | (high << 4)).astype(np.float32) - 32


def _mxfp4(b: Blocks) -> Floats:
    return FP4_VALUES[nibbles(b["qs"])] * E8M0_HALVES[b["e"]][:, None]


def _nvfp4(b: Blocks) -> Floats:
    """Four sub-blocks of 16 values: a scale each, and 8 bytes with the values j and j + 8 in one byte."""
    q: Bytes = nibbles(b["qs"].reshape(len(b), 4, 8))
    return FP4_VALUES[q] * UE4M3_HALVES[b["d"]][:, :, None]


IQ4_NL = quant_type(20, "IQ4_NL", 32, 18, [("d", "<f2"), ("qs", "u1", 16)], _iq4_nl)
IQ4_XS = quant_type(
    23, "IQ4_XS", 256, 136, [("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)], _iq4_xs
)
MXFP4 = quant_type(39, "MXFP4", 32, 17, [("e", "u1"), ("qs", "u1", 16)], _mxfp4)
NVFP4 = quant_type(40, "NVFP4", 64, 36, [("d", "u1", 4), ("qs", "u1", 32)], _nvfp4)

TYPES = (IQ4_NL, IQ4_XS, MXFP4, NVFP4)
