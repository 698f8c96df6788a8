"""The K-quants: blocks of 256 values in sub-blocks of 16 or 32, whose scales are themselves quantized."""

from __future__ import annotations

import numpy as np

from tinyllm_engine.quants.base import Blocks, Floats, column, nibbles, quant_type


def _q6_k(b: Blocks) -> Floats:
    """Per half block of 128: 64 bytes of low nibbles, 32 of high bits, two each; a signed scale per 16 values."""
    n = len(b)
    low = nibbles(b["ql"].reshape(n, 2, 64)).reshape(n, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = (b["qh"].reshape(n, 2, 1, 32) >> shifts) & 3
    q = (low | (high << 4)).astype(np.float32) - 32
    scales = column(b["d"]) * b["scales"].astype(np.float32)  # [n, 16]
    return q.reshape(n, 16, 16) * scales[:, :, None]


Q6_K = quant_type(
    14, "Q6_K", 256, 210, [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")], _q6_k
)

TYPES = (Q6_K,)
