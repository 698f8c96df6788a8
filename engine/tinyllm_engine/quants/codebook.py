"""Types whose bits choose groups of 4 or 8 values at once from a codebook (grid): IQ1_*, IQ2_*, IQ3_*.

The grids are data of the format, kept unpacked in grids.npz. In IQ2 and IQ3 they hold magnitudes, the signs are stored
apart; in IQ1 they hold -1, 0 and 1, and a small delta is added to all eight values of a group.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyllm_engine.quants.base import Blocks, Bytes, Floats, column, quant_type

IQ1_DELTA = np.float32(0.125)


@cache
def grid(name: str) -> npt.NDArray[Any]:
    """The codebook of a family, one entry per row.

    iq1: int8 [2048, 8]; iq2_xxs: uint8 [256, 8]; iq2_xs: uint8 [512, 8]; iq2_s: uint8 [1024, 8];
    iq3_xxs: uint8 [256, 4]; iq3_s: uint8 [512, 4]
    """
    with np.load(Path(__file__).with_name("grids.npz"), allow_pickle=False) as grids:
        values = grids[name]
    values.setflags(write=False)
    return values


def _even_signs() -> Bytes:
    """uint8 [128]: seven stored sign bits, and an eighth that makes the number of minus signs even."""
    seven = np.arange(128, dtype=np.uint8)
    parity = np.unpackbits(seven[:, None], axis=1).sum(axis=1, dtype=np.uint8) & 1
    return seven | parity << 7


EVEN_SIGNS = _even_signs()


def _signs(masks: Bytes) -> npt.NDArray[np.int8]:
    """uint8 [..., k] -> [..., k, 8]: -1 where a bit is set, lowest bit first, else 1."""
    bits = np.unpackbits(masks[..., None], axis=-1, bitorder="little")
    return np.int8(1) - (bits << 1).astype(np.int8)


def _packed_signs(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.int8]:
    """uint32 [n, 8] -> [n, 8, 4, 8]: four groups of seven sign bits in a word."""
    return _signs(EVEN_SIGNS[words[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32) & 127])


def _nibble_scales(scales: Bytes) -> Floats:
    """uint8 [n, k] -> [n, 2k], 0...15, the low nibble first."""
    n, k = scales.shape
    return np.stack([scales & 15, scales >> 4], axis=2).reshape(n, 2 * k).astype(np.float32)


def _times_groups(scales: Floats, values: npt.NDArray[Any]) -> Floats:
    """scales [n, k], values [n, ...] in k runs per block -> [n, 256]."""
    n, k = scales.shape
    return (scales[:, :, None] * values.reshape(n, k, 256 // k)).reshape(n, 256)


def _iq2_xxs(b: Blocks) -> Floats:
    """Per 32 values 8 bytes: four grid indices, then a word of four times seven signs and a four-bit scale on top."""
    halves = b["qs"].reshape(len(b), 8, 8)
    words = np.ascontiguousarray(halves[:, :, 4:]).view("<u4").reshape(len(b), 8)
    scales = column(b["d"]) * (np.float32(0.5) + (words >> 28).astype(np.float32)) * np.float32(0.25)
    return _times_groups(scales, grid("iq2_xxs")[halves[:, :, :4]] * _packed_signs(words))


def _iq2_scales(b: Blocks) -> Floats:
    """[n, 16]: one per 16 values"""
    return column(b["d"]) * (np.float32(0.5) + _nibble_scales(b["scales"])) * np.float32(0.25)


def _iq2_xs(b: Blocks) -> Floats:
    """Per 8 values 16 bits: a grid index of nine bits, seven signs."""
    signs = _signs(EVEN_SIGNS[b["qs"] >> 9])
    return _times_groups(_iq2_scales(b), grid("iq2_xs")[b["qs"] & 511] * signs)


def _iq2_s(b: Blocks) -> Floats:
    """Per 8 values an index of ten bits (two of them in qh) and a byte of signs."""
    high = b["qh"][:, :, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    index = b["qs"] | high.reshape(len(b), 32).astype(np.uint16) << 8
    return _times_groups(_iq2_scales(b), grid("iq2_s")[index] * _signs(b["signs"]))


def _iq3_xxs(b: Blocks) -> Floats:
    """Per 32 values eight grid indices; a word of signs and scale as in IQ2_XXS."""
    words = b["words"]
    scales = column(b["d"]) * (np.float32(0.5) + (words >> 28).astype(np.float32)) * np.float32(0.5)
    values = grid("iq3_xxs")[b["qs"]].reshape(len(b), 8, 4, 8)
    return _times_groups(scales, values * _packed_signs(words))


def _iq3_s(b: Blocks) -> Floats:
    """Per 4 values an index of nine bits (the ninth in qh), a byte of signs for 8; a scale 2s + 1 for 32."""
    ninth = np.unpackbits(b["qh"], axis=1, bitorder="little")
    index = b["qs"] | ninth.astype(np.uint16) << 8
    scales = column(b["d"]) * (1 + 2 * _nibble_scales(b["scales"]))
    return _times_groups(scales, grid("iq3_s")[index].reshape(len(b), 32, 8) * _signs(b["signs"]))


def _iq1(scales: Floats, index: npt.NDArray[np.uint16], minus: npt.NDArray[np.bool_]) -> Floats:
    """scales [n, k]; index and sign of the delta [n, 32], one per 8 values"""
    delta = np.where(minus, -IQ1_DELTA, IQ1_DELTA)
    return _times_groups(scales, grid("iq1")[index].astype(np.float32) + delta[:, :, None])


def _iq1_s(b: Blocks) -> Floats:
    """Per 32 values a 16-bit word: four times three upper index bits, a three-bit scale, the delta's sign."""
    word = b["qh"][:, :, None]
    high = word >> np.array([0, 3, 6, 9], np.uint16) & 7
    index = b["qs"] | high.reshape(len(b), 32) << 8
    scales = column(b["d"]) * (2 * (b["qh"] >> 12 & 7) + 1).astype(np.float32)
    return _iq1(scales, index, np.repeat(b["qh"] >> 15 == 1, 4, axis=1))


def _iq1_m(b: Blocks) -> Floats:
    """Per 8 values a nibble: three upper index bits, the delta's sign. Per 16 values a three-bit scale.

    The block's own scale is a float16 in four parts: the top nibbles of the four scale words, the lowest first.
    """
    words = b["scales"]
    d = (words >> 12) << np.arange(0, 16, 4, dtype=np.uint16)
    d = np.bitwise_or.reduce(d, axis=1).astype("<u2").view("<f2")
    three_bits = words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & 7
    scales = column(d) * (2 * three_bits + 1).reshape(len(b), 16).astype(np.float32)
    high = np.stack([b["qh"] & 15, b["qh"] >> 4], axis=2).reshape(len(b), 32)
    index = b["qs"] | (high & 7).astype(np.uint16) << 8
    return _iq1(scales, index, high >> 3 == 1)


IQ2_XXS = quant_type(16, "IQ2_XXS", 256, 66, [("d", "<f2"), ("qs", "u1", 64)], _iq2_xxs)
IQ2_XS = quant_type(17, "IQ2_XS", 256, 74, [("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)], _iq2_xs)
IQ3_XXS = quant_type(18, "IQ3_XXS", 256, 98, [("d", "<f2"), ("qs", "u1", 64), ("words", "<u4", 8)], _iq3_xxs)
IQ1_S = quant_type(19, "IQ1_S", 256, 50, [("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8)], _iq1_s)
IQ3_S = quant_type(
    21,
    "IQ3_S",
    256,
    110,
    [("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)],
    _iq3_s,
)
IQ2_S = quant_type(
    22,
    "IQ2_S",
    256,
    82,
    [("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)],
    _iq2_s,
)
IQ1_M = quant_type(29, "IQ1_M", 256, 56, [("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4)], _iq1_m)

TYPES = (IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S)
