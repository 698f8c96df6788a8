"""Types of one or two bits, or one of three values, times one scale: TQ1_0, TQ2_0, Q1_0, Q2_0."""

from __future__ import annotations

import numpy as np

from tinyllm_engine.quants.base import Blocks, Bytes, Floats, bit_fields, column, quant_type


def _trits(packed: Bytes, count: int) -> Bytes:
    """[n, k] -> [n, count * k], 0...2: the first base-3 digit of all bytes, then the second, and so on.

    A byte is the fraction byte/256 in base 3; multiplied by 3^i (modulo 256) it starts with digit i.
    """
    powers = np.array([1, 3, 9, 27, 81][:count], np.uint8)[:, None]
    shifted = packed[:, None, :] * powers  # wraps on purpose
    return (shifted.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(packed), count * packed.shape[1])


def _tq1_0(b: Blocks) -> Floats:
    digits = [_trits(b["qs"][:, :32], 5), _trits(b["qs"][:, 32:], 5), _trits(b["qh"], 4)]
    return (np.concatenate(digits, axis=1).astype(np.float32) - 1) * column(b["d"])


def _tq2_0(b: Blocks) -> Floats:
    q = bit_fields(b["qs"].reshape(len(b), 2, 32), 2).reshape(len(b), 256)
    return (q.astype(np.float32) - 1) * column(b["d"])


def _q1_0(b: Blocks) -> Floats:
    """Bit i is the sign of value i, set for plus."""
    bits = np.unpackbits(b["qs"], axis=1, bitorder="little")
    return (bits.astype(np.float32) * 2 - 1) * column(b["d"])


def _q2_0(b: Blocks) -> Floats:
    """Four values in a byte, lowest bits first: -1, 0, 1, 2."""
    q = b["qs"][:, :, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    return (q.reshape(len(b), 64).astype(np.float32) - 1) * column(b["d"])


TQ1_0 = quant_type(34, "TQ1_0", 256, 54, [("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2")], _tq1_0)
TQ2_0 = quant_type(35, "TQ2_0", 256, 66, [("qs", "u1", 64), ("d", "<f2")], _tq2_0)
Q1_0 = quant_type(41, "Q1_0", 128, 18, [("d", "<f2"), ("qs", "u1", 16)], _q1_0)
Q2_0 = quant_type(42, "Q2_0", 64, 18, [("d", "<f2"), ("qs", "u1", 16)], _q2_0)

TYPES = (TQ1_0, TQ2_0, Q1_0, Q2_0)
