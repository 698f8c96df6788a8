"""TensorView: one tensor of an open file, its bytes in place."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tinyllm_engine.quants import QuantType

_SEARCHED_ELEMENTS = 1 << 29  # so many weights are looked through for one that is no number
_CHUNK_ELEMENTS = 1 << 20  # dequantize in pieces of this size: temporaries stay in the cache


@dataclass(frozen=True, eq=False)
class TensorView:
    """A tensor without a copy: valid as long as it is referenced, even after its file was closed.

    dims: in GGUF order: dims[0] is the row length (fastest), at least one
    data: uint8 [nbytes], read-only
    """

    name: str
    dims: tuple[int, ...]
    type: QuantType
    data: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        if self.dims[0] % self.type.block_elements or self.data.shape != (self.row_bytes * self.rows,):
            raise ValueError(f"{self!r}: {self.data.shape} bytes do not make up these dimensions")

    @property
    def row_bytes(self) -> int:
        return self.dims[0] // self.type.block_elements * self.type.block_bytes

    @property
    def rows(self) -> int:
        """Number of rows: the product of all dimensions but the first."""
        return math.prod(self.dims[1:])

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def address(self) -> int:
        """Address of the first byte; keep the view referenced while it is in use."""
        return self.data.ctypes.data

    def row(self, i: int) -> npt.NDArray[np.uint8]:
        """uint8 [row_bytes]: the bytes of row i, 0 <= i < rows; IndexError otherwise."""
        if not 0 <= i < self.rows:
            raise IndexError(f"tensor {self.name!r} has {self.rows} rows, asked for row {i}")
        return self.data[i * self.row_bytes : (i + 1) * self.row_bytes]

    def rows_between(self, start: int, stop: int) -> TensorView:
        """The rows from start up to stop as a tensor of their own, dims [dims[0], stop - start], without a copy."""
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"tensor {self.name!r} has {self.rows} rows, asked for {start} to {stop}")
        data = self.data[start * self.row_bytes : stop * self.row_bytes]
        return TensorView(self.name, (self.dims[0], stop - start), self.type, data)

    def taken(self, rows: npt.NDArray[np.integer]) -> TensorView:
        """These rows in this order as a tensor of their own, dims [dims[0], len(rows)]: a copy."""
        data = self.data.reshape(self.rows, self.row_bytes)[rows].reshape(-1)
        return TensorView(self.name, (self.dims[0], len(rows)), self.type, data)

    def dequantize(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float32]:
        """float32 [stop - start, dims[0]]: the rows from start up to stop (all by default), as new memory."""
        stop = self.rows if stop is None else stop
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"tensor {self.name!r} has {self.rows} rows, asked for {start} to {stop}")
        out = np.empty((stop - start, self.dims[0]), np.float32)
        blocks = self.data[start * self.row_bytes : stop * self.row_bytes].reshape(-1, self.type.block_bytes)
        values = out.reshape(-1, self.type.block_elements)
        step = max(1, _CHUNK_ELEMENTS // self.type.block_elements)
        for first in range(0, len(blocks), step):
            values[first : first + step] = self.type.dequantize(blocks[first : first + step])
        return out

    def __repr__(self) -> str:
        return f"<TensorView {self.name!r} {self.type.name} {list(self.dims)}>"


def first_not_finite(tensors: Iterable[TensorView]) -> TensorView | None:
    """A tensor with weights that are NaN or infinite, the small ones first; None where none is found."""
    left = _SEARCHED_ELEMENTS
    for tensor in sorted(tensors, key=lambda tensor: tensor.nbytes):
        step = max(1, _CHUNK_ELEMENTS // max(1, tensor.dims[0]))
        for start in range(0, tensor.rows, step):
            if left <= 0:
                return None
            values = tensor.dequantize(start, min(start + step, tensor.rows))
            left -= values.size
            if not np.isfinite(values).all():
                return tensor
    return None
