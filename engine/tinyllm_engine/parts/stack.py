"""Stacks: as many matrices of one shape as there are experts, or heads, in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.parts.base import Tensors
from tinyllm_engine.tensor import TensorView


@dataclass(frozen=True, eq=False)
class Stack:
    """x -> scale * (W[i] x) + bias[i], with the matrix i that x goes to.

    weight: dims [inputs, stored rows, matrices], read in place; of a matrix's rows those from `first` on count
    bias: float32 [matrices, outputs] or None
    scales: float32 [matrices] in place of `scale`, or None
    """

    weight: TensorView
    first: int
    outputs: int
    matrices: int
    bias: np.ndarray | None = None
    scales: np.ndarray | None = None
    scale: float = 1.0

    @property
    def inputs(self) -> int:
        """Columns of each matrix."""
        return self.weight.dims[0]

    @property
    def address(self) -> int:
        """Of the first row of the first matrix."""
        return self.weight.address + self.first * self.weight.row_bytes

    @property
    def matrix_bytes(self) -> int:
        """From a matrix to the next."""
        return self.weight.nbytes // self.matrices

    def scaled(self, factor: float) -> Stack:
        """The same with its result multiplied."""
        if factor == 1.0:
            return self
        return replace(
            self,
            bias=None if self.bias is None else self.bias * np.float32(factor),
            scales=None if self.scales is None else self.scales * np.float32(factor),
            scale=self.scale * factor,
        )


def read_stacks(
    tensors: Tensors,
    name: str,
    inputs: int,
    outputs: Sequence[int],
    matrices: int,
    scaled: bool = False,
    biased: bool = False,
) -> list[Stack]:
    """`name`.weight, where matrices of so many outputs lie below one another in each matrix of the tensor.

    With a .bias if `biased`, and an optional .scale of each matrix if `scaled`. ModelError for other shapes.
    """
    height = sum(outputs)
    weight = tensors.view(f"{name}.weight")
    if _without_ones(weight.dims) != _without_ones((inputs, height, matrices)):
        raise tensors.wrong_shape(weight, [inputs, height, matrices])
    bias = _values(tensors, f"{name}.bias", (height, matrices)) if biased else None
    scales = _values(tensors, f"{name}.scale", (matrices,)) if scaled and f"{name}.scale" in tensors else None
    ends = np.cumsum(outputs).tolist()
    return [
        Stack(
            weight,
            end - count,
            count,
            matrices,
            bias=None if bias is None else np.ascontiguousarray(bias.reshape(matrices, height)[:, end - count : end]),
            scales=scales,
        )
        for count, end in zip(outputs, ends, strict=True)
    ]


def _values(tensors: Tensors, name: str, dims: tuple[int, ...]) -> np.ndarray:
    """float32, all values in a row."""
    tensor = tensors.view(name)
    if _without_ones(tensor.dims) != _without_ones(dims):
        raise tensors.wrong_shape(tensor, dims)
    return np.ascontiguousarray(tensor.dequantize().reshape(-1))


def _without_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    """A file may leave trailing dimensions of 1 out."""
    while dims and dims[-1] == 1:
        dims = dims[:-1]
    return dims
