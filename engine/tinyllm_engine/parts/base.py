"""The pieces that all parts share, and checked access to the tensors of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyllm_engine.errors import ModelError
from tinyllm_engine.tensor import TensorView


@dataclass(frozen=True, eq=False)
class Linear:
    """A matrix and what is added to its product: x -> scale * (W x) + bias.

    weight: dims [inputs, outputs], read in place
    bias: float32 [outputs] or None
    """

    weight: TensorView
    bias: np.ndarray | None = None
    scale: float = 1.0

    @property
    def inputs(self) -> int:
        return self.weight.dims[0]

    @property
    def outputs(self) -> int:
        return self.weight.rows

    def rows(self, start: int, stop: int) -> Linear:
        """The outputs from `start` up to `stop`, without a copy."""
        bias = None if self.bias is None else self.bias[start:stop]
        return Linear(self.weight.rows_between(start, stop), bias, self.scale)

    def scaled(self, factor: float) -> Linear:
        """The same with its result multiplied: a scale of a whole block costs nothing there."""
        if factor == 1.0:
            return self
        bias = None if self.bias is None else self.bias * np.float32(factor)
        return Linear(self.weight, bias, self.scale * factor)


@dataclass(frozen=True, eq=False)
class Norm:
    """weight * x / sqrt(mean(x^2) + epsilon). weight: float32 [columns]"""

    weight: np.ndarray
    epsilon: float


class Tensors:
    """The tensors of one file by name, each checked when it is asked for.

    ModelError names file, tensor, expected and found shape.
    """

    def __init__(self, tensors: Mapping[str, TensorView], path: str):
        self.tensors, self.path = tensors, path

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def view(self, name: str) -> TensorView:
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelError(f"{self.path}: tensor {name!r} is missing") from None

    def wrong_shape(self, tensor: TensorView, expected: Sequence[Any]) -> ModelError:
        wanted = " x ".join(str(dim) for dim in expected)
        found = " x ".join(str(dim) for dim in tensor.dims)
        return ModelError(f"{self.path}: tensor {tensor.name!r}: expected {wanted}, found {found}")

    def vector(self, name: str, length: int) -> np.ndarray:
        """float32 [length]"""
        tensor = self.view(name)
        if math.prod(tensor.dims) != length or tensor.dims[0] != length:
            raise self.wrong_shape(tensor, [length])
        return np.ascontiguousarray(tensor.dequantize().reshape(-1))

    def optional(self, name: str, length: int) -> np.ndarray | None:
        """The same, or None where the file has no such tensor."""
        return self.vector(name, length) if name in self else None

    def norm(self, name: str, length: int, epsilon: float) -> Norm:
        """`name`.weight as a norm of rows of this length."""
        return Norm(self.vector(f"{name}.weight", length), epsilon)

    def linear(self, name: str, inputs: int, outputs: int, scale_bias: bool = False) -> Linear:
        """`name`.weight with its optional .bias and .scale.

        A scale multiplies the product; with `scale_bias` it multiplies the bias too (as in feed-forward blocks).
        """
        weight = self.view(f"{name}.weight")
        if weight.dims != (inputs, outputs):
            raise self.wrong_shape(weight, [inputs, outputs])
        bias = self.optional(f"{name}.bias", outputs)
        scale = float(self.vector(f"{name}.scale", 1)[0]) if f"{name}.scale" in self else 1.0
        if bias is not None and scale_bias:
            bias = bias * np.float32(scale)
        return Linear(weight, bias, scale)

    def stacked(self, name: str, inputs: int, outputs: Sequence[int]) -> list[Linear]:
        """Matrices of these numbers of outputs that lie below one another in one tensor."""
        whole = self.linear(name, inputs, sum(outputs))
        ends = np.cumsum(outputs).tolist()
        return [whole.rows(end - count, end) for count, end in zip(outputs, ends, strict=True)]
