"""Types with blocks of 32 values and one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1.

d is the scale, m the offset. In `qs`, byte j holds value j in its low and value j + 16 in its high nibble; bit i of
`qh` is the fifth bit of value i.
"""

from __future__ import annotations

import numpy as np

from tinyllm_engine.quants.base import Blocks, Bytes, Floats, column, nibbles, quant_type


def _q4_0(b: Blocks) -> Floats:
    return (nibbles(b["qs"]).astype(np.float32) - 8) * column(b["d"])


def _q4_1(b: Blocks) -> Floats:
    return nibbles(b["qs"]).astype(np.float32) * column(b["d"]) + column(b["m"])


def _five_bits(b: Blocks) -> Bytes:
    """[n, 32] values 0...31."""
    high = np.unpackbits(b["qh"], axis=1, bitorder="little")
    return nibbles(b["qs"]) | high << np.uint8(4)


def _q5_0(b: Blocks) -> Floats:
    return (_five_bits(b).astype(np.float32) - 16) * column(b["d"])


def _q5_1(b: Blocks) -> Floats:
    return _five_bits(b).astype(np.float32) * column(b["d"]) + column(b["m"])


def _q8(b: Blocks) -> Floats:
    return b["qs"].astype(np.float32) * column(b["d"])


Q4_0 = quant_type(2, "Q4_0", 32, 18, [("d", "<f2"), ("qs", "u1", 16)], _q4_0)
Q4_1 = quant_type(3, "Q4_1", 32, 20, [("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)], _q4_1)
Q5_0 = quant_type(6, "Q5_0", 32, 22, [("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)], _q5_0)
Q5_1 = quant_type(7, "Q5_1", 32, 24, [("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)], _q5_1)
Q8_0 = quant_type(8, "Q8_0", 32, 34, [("d", "<f2"), ("qs", "i1", 32)], _q8)
# s = d * sum(qs), which only a dot product against Q4_1 or Q5_1 needs.
Q8_1 = quant_type(9, "Q8_1", 32, 36, [("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32)], _q8, weight=False)

TYPES = (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1)
