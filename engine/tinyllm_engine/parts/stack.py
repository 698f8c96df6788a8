"""Stacks: as many matrices of one shape as there are experts, or heads, in one tensor."""

from __future__ import annotations

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


def read_stack(tensors: Tensors, name: str, inputs: int, outputs: int, matrices: int, scaled: bool = False) -> Stack:
    """`name`.weight with its optional .bias and, if `scaled`, .scale. ModelError for another shape."""
    (stack,) = read_stacks(tensors, name, inputs, (outputs,), matrices, scaled)
    return stack


def read_stacks(
    tensors: Tensors, name: str, inputs: int, outputs: tuple[int, ...], matrices: int, scaled: bool = False
) -> list[Stack]:
    """The same for matrices that lie below one another in each matrix of the tensor."""
    height = sum(outputs)
    weight = tensors.view(f"{name}.weight")
    if _without_ones(weight.dims) != _without_ones((inputs, height, matrices)):
        raise tensors.wrong_shape(weight, [inputs, height, matrices])
    bias = _optional(tensors, f"{name}.bias", (height, matrices))
    scales = _optional(tensors, f"{name}.scale", (matrices,)) if scaled else None
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


def _optional(tensors: Tensors, name: str, dims: tuple[int, ...]) -> np.ndarray | None:
    """float32, all values in a row; None where the file has no such tensor."""
    if name not in tensors:
        return None
    tensor = tensors.view(name)
    if _without_ones(tensor.dims) != _without_ones(dims):
        raise tensors.wrong_shape(tensor, dims)
    return np.ascontiguousarray(tensor.dequantize().reshape(-1))


def _without_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    """A file may leave trailing dimensions of 1 out."""
    while dims and dims[-1] == 1:
        dims = dims[:-1]
    return dims
