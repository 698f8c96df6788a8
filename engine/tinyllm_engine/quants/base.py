"""QuantType: what one GGUF tensor type is: its id, its block, and how a block becomes float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Blocks = npt.NDArray[Any]  # [n_blocks], structured as the type's layout says


@dataclass(frozen=True, eq=False)
class QuantType:
    """One tensor type of the format; there is one object per type, so identity is equality.

    id: the number that stands in the file
    block_elements: values in one block; a row is a whole number of blocks
    block_bytes: bytes of one block, fields without padding between them
    layout: the block as a NumPy dtype, fields in file order (little-endian)
    dequantize: uint8 [n_blocks, block_bytes] -> float32 [n_blocks, block_elements]
    weight: whether a matrix of this type may be multiplied; False for integers and the activation types
    """

    id: int
    name: str
    block_elements: int
    block_bytes: int
    layout: np.dtype[Any]
    dequantize: Callable[[Bytes], Floats]
    weight: bool = True

    def __repr__(self) -> str:
        return f"<QuantType {self.name}>"


def quant_type(
    type_id: int,
    name: str,
    elements: int,
    size: int,
    layout: Any,
    unpack: Callable[[Blocks], npt.NDArray[Any]],
    weight: bool = True,
) -> QuantType:
    """Build one table entry. `unpack` gets the blocks as an array of `layout` and returns their values [n, elements].

    `size` repeats the byte count of the format's definition, so that a slip in the layout cannot go unseen.
    """
    dtype = np.dtype(layout)
    if dtype.itemsize != size:
        raise AssertionError(f"{name}: the layout has {dtype.itemsize} bytes, the format says {size}")

    def dequantize(blocks: Bytes) -> Floats:
        if blocks.dtype != np.uint8 or blocks.ndim != 2 or blocks.shape[1] != size:
            raise ValueError(f"{name}: expected uint8 [n, {size}], found {blocks.dtype} {list(blocks.shape)}")
        records = np.ascontiguousarray(blocks).reshape(-1).view(dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # a scale may be infinite or NaN: so are the values then
            values = unpack(records)
        return values.astype(np.float32, copy=False).reshape(len(blocks), elements)

    return QuantType(type_id, name, elements, size, dtype, dequantize, weight)


def nibbles(packed: Bytes) -> Bytes:
    """uint8 [..., k] -> uint8 [..., 2k]: all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def bit_fields(packed: Bytes, bits: int) -> Bytes:
    """uint8 [..., k] -> uint8 [..., 8 // bits, k]: the lowest `bits` bits of all bytes, then the next ones."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return (packed[..., None, :] >> shifts) & np.uint8((1 << bits) - 1)


def column(values: npt.NDArray[Any]) -> Floats:
    """One number per block as float32 [n, 1], ready to scale the block's values."""
    return values.astype(np.float32)[:, None]
