"""The K-quants: blocks of 256 values in sub-blocks of 16 or 32, whose scales are themselves quantized.

A value is d * scale * q, with dmin * min subtracted in Q2_K, Q4_K and Q5_K.
"""

from __future__ import annotations

import numpy as np

from tinyllm_engine.quants.base import Blocks, Bytes, Floats, bit_fields, column, nibbles, quant_type


def _two_bits(qs: Bytes) -> Bytes:
    """[n, 64] -> [n, 8, 32]: of every 32 bytes the lowest two bits of each, then the next two, and so on."""
    return bit_fields(qs.reshape(len(qs), 2, 32), 2).reshape(len(qs), 8, 32)


def _q2_k(b: Blocks) -> Floats:
    """Per 16 values one byte: scale in the low nibble, min in the high one."""
    q = _two_bits(b["qs"]).reshape(len(b), 16, 16)
    scales: Floats = column(b["d"]) * (b["scales"] & 15)
    mins: Floats = column(b["dmin"]) * (b["scales"] >> 4)
    return scales[:, :, None] * q - mins[:, :, None]


def _q3_k(b: Blocks) -> Floats:
    """The third bit of value i of sub-block k (of 32) is bit k of hmask[i], and means "do not subtract 4"."""
    high = bit_fields(b["hmask"], 1)  # [n, 8, 32]
    q = _two_bits(b["qs"]).astype(np.int8) - 4 + (high << 2).astype(np.int8)
    scales = column(b["d"]) * _q3_k_scales(b["scales"])
    return q.reshape(len(b), 16, 16) * scales[:, :, None]


def _q3_k_scales(packed: Bytes) -> Floats:
    """[n, 12] -> [n, 16], -32...31: low nibbles in the first 8 bytes, the upper two bits in the last 4."""
    low = nibbles(packed[:, :8])
    high = bit_fields(packed[:, 8:], 2).reshape(len(packed), 16)
    return (low | (high << 4)).astype(np.float32) - 32


def _six_bit_pairs(packed: Bytes) -> tuple[Bytes, Bytes]:
    """[n, 12] -> scales and mins [n, 8] of Q4_K and Q5_K, 0...63.

    The first four of both are the low six bits of bytes 0-3 and 4-7. The last four have their low nibbles in bytes 8-11
    (scale low, min high) and their upper two bits at the top of bytes 0-3 and 4-7.
    """
    a, b, c = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([a & 63, (c & 15) | (a >> 6 << 4)], axis=1)
    mins = np.concatenate([b & 63, (c >> 4) | (b >> 6 << 4)], axis=1)
    return scales, mins


def _scaled_with_min(b: Blocks, q: Bytes) -> Floats:
    """q: [n, 8, 32]"""
    scales, mins = _six_bit_pairs(b["scales"])
    return (column(b["d"]) * scales)[:, :, None] * q - (column(b["dmin"]) * mins)[:, :, None]


def _q4_k(b: Blocks) -> Floats:
    return _scaled_with_min(b, nibbles(b["qs"].reshape(len(b), 4, 32)).reshape(len(b), 8, 32))


def _q5_k(b: Blocks) -> Floats:
    """As Q4_K; the fifth bit of value i of sub-block k is bit k of qh[i]."""
    low = nibbles(b["qs"].reshape(len(b), 4, 32)).reshape(len(b), 8, 32)
    return _scaled_with_min(b, low | bit_fields(b["qh"], 1) << np.uint8(4))


def _q6_k(b: Blocks) -> Floats:
    """Per half block of 128: 64 bytes of low nibbles, 32 of high bits, two each; a signed scale per 16 values."""
    low = nibbles(b["ql"].reshape(len(b), 2, 64)).reshape(len(b), 8, 32)
    q = (low | (_two_bits(b["qh"]) << 4)).astype(np.int8) - np.int8(32)
    scales = column(b["d"]) * b["scales"]
    return q.reshape(len(b), 16, 16) * scales[:, :, None]


def _q8_k(b: Blocks) -> Floats:
    return column(b["d"]) * b["qs"]


Q2_K = quant_type(10, "Q2_K", 256, 84, [("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")], _q2_k)
Q3_K = quant_type(
    11, "Q3_K", 256, 110, [("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2")], _q3_k
)
Q4_K = quant_type(12, "Q4_K", 256, 144, [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)], _q4_k)
Q5_K = quant_type(
    13,
    "Q5_K",
    256,
    176,
    [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)],
    _q5_k,
)
Q6_K = quant_type(
    14, "Q6_K", 256, 210, [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")], _q6_k
)
# bsums holds the sums of 16 values each, which only dot products need.
Q8_K = quant_type(15, "Q8_K", 256, 292, [("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)], _q8_k, weight=False)

TYPES = (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K)
