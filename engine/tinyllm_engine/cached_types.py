"""The types of cached keys and values, and what a head's part of a page of 64 rows looks like, said in NumPy.

K lies element by element, so that neighbouring keys are neighbours, and V row by row:

    f32, f16, bf16  K [size][64], V [64][size]
    q8_0            K int8 [size / 4][64][4], V int8 [64][size]; then f16 scales [size / 32][64] in both
    q4_0            K [size / 8][64][4 bytes], then f16 scales [size] and middles [size];
                    V [64][size / 16][8 bytes], then f16 scales [size / 32][64]. The low nibbles hold the first half of
                    8 (K) or 16 elements (V), the high ones the second: code + 8 in K, code in V

A number of a quantized type is code * scale, and what is quantized is the row turned, block of 32 by block, by a
Hadamard matrix (see kernels.cached_blocks). K in q4_0 is not turned: each element has its own scale and middle for the
64 rows of the page, for elements differ from each other more than rows do (arXiv:2402.02750), and a number is
middle + code * scale. Such a page is quantized when it is full. Until then, and for good where it is the first of its
sequence, its rows are in an exact part beside it: f16, with V turned (see kv_cache).

`pack_k` and `pack_v` write what the kernels write, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.errors import UnsupportedModelError

PAGE = 64
BLOCK = 32
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Order = Callable[[NDArray[Any]], Any]  # of the elements of a page


@dataclass(frozen=True)
class CachedType:
    """A type by its name in GGUF. block: elements that share a scale, in `block_bytes` with it.

    exact: that of pages' exact parts, if pages are quantized when they are full; empty: rows are written as they stay
    """

    name: str
    block: int
    block_bytes: int
    exact: str = ""

    @property
    def is_quantized(self) -> bool:
        return self.block > 1

    @property
    def k_turned(self) -> bool:
        """Whether keys are turned, and queries have to be. Values are wherever the type is quantized."""
        return self.is_quantized and not self.exact

    def exact_bytes(self, size: int) -> int:
        """What the exact part of a page takes for one head."""
        return CACHED_TYPES[self.exact].head_bytes(size) if self.exact else 0

    def head_bytes(self, size: int) -> int:
        """What a page takes for one head of so many elements. UnsupportedModelError where they make no whole blocks."""
        if size % self.block:
            raise UnsupportedModelError(
                f"KV cache type {self.name}: expected heads of a multiple of {self.block} elements, found {size}"
            )
        return PAGE * size // self.block * self.block_bytes


CACHED_TYPES = {
    kind.name: kind
    for kind in (
        CachedType("f32", 1, 4),
        CachedType("f16", 1, 2),
        CachedType("bf16", 1, 2),
        CachedType("q8_0", BLOCK, 34),
        CachedType("q4_0", BLOCK, 18, exact="f16"),
    )
}
ELEMENTS: dict[str, type[np.generic]] = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}


def cached_type(name: str) -> CachedType:
    """UnsupportedModelError for a name that is none."""
    if name not in CACHED_TYPES:
        raise UnsupportedModelError(f"KV cache type: expected one of {', '.join(CACHED_TYPES)}; found {name!r}")
    return CACHED_TYPES[name]


# --- pages as kernels see them: quantized ones hold turned rows -------------------------------------------------------


def turned(rows: Floats) -> Floats:
    """Rows [..., size] times the normalized Hadamard matrix, block by block; twice is back."""
    x = rows.astype(np.float32).reshape(-1, BLOCK)
    for distance in (8, 16, 1, 2, 4):  # the order in which the kernel adds
        pairs = x.reshape(-1, BLOCK // (2 * distance), 2, distance)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        x = np.stack((first + second, first - second), axis=2)
    return (x.reshape(rows.shape) * np.float32(BLOCK**-0.5)).astype(np.float32)


def quantized(kind: CachedType, rows: Floats) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Codes [..., size] and scales [..., size / 32] of turned rows."""
    blocks = rows.reshape(*rows.shape[:-1], -1, BLOCK)
    largest = np.abs(blocks).max(axis=-1)
    if kind.name == "q8_0":
        lowest, top, wanted = -127, 127, largest / np.float32(127)
    else:
        lowest, top = -8, 7
        wanted = np.where(-blocks.min(axis=-1) >= blocks.max(axis=-1), largest, -largest) / np.float32(8)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scales = wanted.astype(np.float16)
        kept = scales.astype(np.float32)
        scaled = blocks * np.where(kept == 0, 0, np.float32(1) / kept)[..., None].astype(np.float32)
    codes = np.rint(np.clip(np.where(np.isnan(scaled), lowest, scaled), lowest, top))
    return codes.astype(np.int8).reshape(rows.shape), scales


def quantized_elements(rows: Floats) -> tuple[NDArray[np.uint8], NDArray[np.float16], NDArray[np.float16]]:
    """Codes + 8 [..., 64, size] of full pages of K, and the scale and the middle of each element [..., size]."""
    lowest, highest = np.fmin.reduce(rows, axis=-2), np.fmax.reduce(rows, axis=-2)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scales = ((highest - lowest) / np.float32(15)).astype(np.float16)
        kept = scales.astype(np.float32)
        middles = (lowest + np.float32(8) * kept).astype(np.float16)
        inverse = np.where(kept == 0, 0, np.float32(1) / kept).astype(np.float32)
        places = (rows - middles.astype(np.float32)[..., None, :]) * inverse[..., None, :] + np.float32(8)
    return np.rint(np.clip(np.where(np.isnan(places), 0, places), 0, 15)).astype(np.uint8), scales, middles


def scaled(codes: NDArray[np.int8], scales: NDArray[np.float16]) -> Floats:
    """The opposite of `quantized`: codes [..., size] times scales [..., size / 32]"""
    return codes.astype(np.float32) * np.repeat(scales.astype(np.float32), BLOCK, axis=-1)


def bf16_bits(x: Floats) -> NDArray[np.uint16]:
    """Rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (np.where(np.isnan(x), bits | np.uint32(0x400000), rounded) >> np.uint32(16)).astype(np.uint16)


def of_bf16(bits: NDArray[np.uint16]) -> Floats:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def k_slots(kind: CachedType, size: int) -> NDArray[np.int64]:
    """[head_bytes]: the row of the page that each byte of K belongs to, of types that write row by row"""
    codes, scales = _parts(kind, size)
    return np.concatenate((codes // (4 if kind.is_quantized else kind.block_bytes) % PAGE, scales // 2 % PAGE))


def v_slots(kind: CachedType, size: int) -> NDArray[np.int64]:
    """The same for V."""
    codes, scales = _parts(kind, size)
    return np.concatenate((codes // (len(codes) // PAGE), scales // 2 % PAGE))


def _parts(kind: CachedType, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bytes of a page's codes, and those of its scales, each counted from 0."""
    scales = 2 * PAGE * size // BLOCK if kind.is_quantized else 0
    return np.arange(kind.head_bytes(size) - scales), np.arange(scales)


def write_k(kind: CachedType, rows: Floats) -> Bytes:
    """Rows [..., 64, size], turned where the type turns them -> pages [..., head_bytes]"""
    if kind.exact:
        codes, scales, middles = quantized_elements(rows)
        fours: NDArray[Any] = np.swapaxes(codes.reshape(*codes.shape[:-1], -1, 4), -2, -3)  # [..., size / 4, 64, 4]
        packed = np.ascontiguousarray(fours[..., 0::2, :, :] | fours[..., 1::2, :, :] << 4)
        parts = packed.reshape(*codes.shape[:-2], -1), scales.view(np.uint8), middles.view(np.uint8)
        return np.concatenate(parts, axis=-1)
    return _written(kind, rows, _k_codes, lambda x: np.swapaxes(x, -1, -2))


def write_v(kind: CachedType, rows: Floats) -> Bytes:
    return _written(kind, rows, _v_codes, lambda x: x)


def read_k(kind: CachedType, pages: Bytes, size: int) -> Floats:
    """Pages [..., head_bytes] -> rows [..., 64, size], turned where the type turns them."""
    if kind.exact:
        codes, scales, middles = read_elements(pages, size)
        return codes.astype(np.float32) * scales[..., None, :] + middles[..., None, :]
    return _read(kind, pages, size, _k_codes_back, (size, PAGE), lambda x: np.swapaxes(x, -1, -2))


def read_v(kind: CachedType, pages: Bytes, size: int) -> Floats:
    return _read(kind, pages, size, _v_codes_back, (PAGE, size), lambda x: x)


def read_elements(pages: Bytes, size: int) -> tuple[NDArray[np.int8], Floats, Floats]:
    """Codes [..., 64, size], scales and middles [..., size] of pages of K in q4_0."""
    whole, end = pages.shape[:-1], PAGE * size // 2
    eights = pages[..., :end].reshape(*whole, size // 8, PAGE, 4)
    halves = np.stack((eights & 15, eights >> 4), axis=-3)  # [..., size / 8, 2, 64, 4]
    fours = halves.reshape(*whole, size // 4, PAGE, 4).astype(np.int8) - np.int8(8)
    numbers = np.ascontiguousarray(pages[..., end:]).view(np.float16).astype(np.float32)
    return np.swapaxes(fours, -2, -3).reshape(*whole, PAGE, size), numbers[..., :size], numbers[..., size:]


def _written(kind: CachedType, rows: Floats, codes_of: Callable[[CachedType, Any], Bytes], ordered: Order) -> Bytes:
    if kind.is_quantized:
        codes, scales = quantized(kind, rows)
        parts = codes_of(kind, codes), _bytes(np.swapaxes(scales, -1, -2))
        return np.concatenate(parts, axis=-1)
    with np.errstate(over="ignore"):
        stored = (
            bf16_bits(rows) if kind.name == "bf16" else rows.astype({"f32": np.float32, "f16": np.float16}[kind.name])
        )
    return _bytes(ordered(stored))


def _read(
    kind: CachedType,
    pages: Bytes,
    size: int,
    codes_back: Callable[[CachedType, Bytes, int], Any],
    shape: tuple[int, int],
    ordered: Order,
) -> Floats:
    whole = pages.shape[:-1]
    if kind.is_quantized:
        codes = pages[..., : PAGE * size // BLOCK * (kind.block_bytes - 2)]
        stored = np.ascontiguousarray(pages[..., codes.shape[-1] :]).view(np.float16)
        scales = np.swapaxes(stored.reshape(*whole, size // BLOCK, PAGE), -1, -2)
        return scaled(codes_back(kind, codes, size), scales)
    numbers: NDArray[Any] = np.ascontiguousarray(pages).view(ELEMENTS[kind.name]).reshape(*whole, *shape)
    return ordered(of_bf16(numbers) if kind.name == "bf16" else numbers.astype(np.float32))


def _bytes(x: NDArray[Any]) -> Bytes:
    """[..., a, b] -> [..., bytes]"""
    flat = np.ascontiguousarray(x).reshape(*x.shape[:-2], -1)
    return flat.view(np.uint8)


def _k_codes(kind: CachedType, codes: NDArray[np.int8]) -> Bytes:
    fours: NDArray[Any] = np.swapaxes(codes.reshape(*codes.shape[:-1], -1, 4), -2, -3)  # [..., size / 4, 64, 4]
    return np.ascontiguousarray(fours).reshape(*codes.shape[:-2], -1).view(np.uint8)


def _k_codes_back(kind: CachedType, stored: Bytes, size: int) -> NDArray[np.int8]:
    whole = stored.shape[:-1]
    fours = np.ascontiguousarray(stored).view(np.int8).reshape(*whole, size // 4, PAGE, 4)
    return np.swapaxes(fours, -2, -3).reshape(*whole, PAGE, size)


def _v_codes(kind: CachedType, codes: NDArray[np.int8]) -> Bytes:
    stored: NDArray[Any] = np.ascontiguousarray(codes).view(np.uint8)
    if kind.name == "q4_0":
        eights = stored.reshape(*codes.shape[:-1], -1, 2, 8)
        stored = eights[..., 0, :] & 15 | eights[..., 1, :] << 4
    return np.ascontiguousarray(stored).reshape(*codes.shape[:-2], -1)


def _v_codes_back(kind: CachedType, stored: Bytes, size: int) -> NDArray[np.int8]:
    whole = stored.shape[:-1]
    if kind.name == "q8_0":
        return np.ascontiguousarray(stored).view(np.int8).reshape(*whole, PAGE, size)
    packed = stored.reshape(*whole, PAGE, size // 16, 1, 8)
    nibbles = np.concatenate((packed & 15, packed >> 4), axis=-2)
    return ((nibbles ^ 8).astype(np.int8) - np.int8(8)).reshape(*whole, PAGE, size)


# --- pages as the model means them ------------------------------------------------------------------------------------


def pack_k(kind: CachedType, rows: Floats) -> Bytes:
    """K float32 [..., 64, size] -> pages uint8 [..., head_bytes]"""
    return write_k(kind, turned(rows) if kind.k_turned else rows)


def pack_v(kind: CachedType, rows: Floats) -> Bytes:
    """V float32 [..., 64, size] -> pages uint8 [..., head_bytes]"""
    return write_v(kind, turned(rows) if kind.is_quantized else rows)


def unpack_k(kind: CachedType, pages: Bytes, size: int) -> Floats:
    """Pages uint8 [..., head_bytes] -> K float32 [..., 64, size]"""
    rows = read_k(kind, pages, size)
    return turned(rows) if kind.k_turned else rows


def unpack_v(kind: CachedType, pages: Bytes, size: int) -> Floats:
    """Pages uint8 [..., head_bytes] -> V float32 [..., 64, size]"""
    rows = read_v(kind, pages, size)
    return turned(rows) if kind.is_quantized else rows
