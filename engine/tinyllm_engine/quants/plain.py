"""Types without blocks: floating point numbers and integers, one value each."""

from __future__ import annotations

import numpy as np

from tinyllm_engine.quants.base import Blocks, Floats, quant_type


def _as_float32(values: Blocks) -> Floats:
    return values.astype(np.float32)


def _bf16(values: Blocks) -> Floats:
    """A bfloat16 is the upper half of a float32."""
    return (values.astype("<u4") << 16).view(np.float32)


F32 = quant_type(0, "F32", 1, 4, "<f4", _as_float32)
F16 = quant_type(1, "F16", 1, 2, "<f2", _as_float32)
BF16 = quant_type(30, "BF16", 1, 2, "<u2", _bf16)

I8 = quant_type(24, "I8", 1, 1, "<i1", _as_float32, weight=False)
I16 = quant_type(25, "I16", 1, 2, "<i2", _as_float32, weight=False)
I32 = quant_type(26, "I32", 1, 4, "<i4", _as_float32, weight=False)
I64 = quant_type(27, "I64", 1, 8, "<i8", _as_float32, weight=False)
F64 = quant_type(28, "F64", 1, 8, "<f8", _as_float32)

TYPES = (F32, F16, BF16, I8, I16, I32, I64, F64)
