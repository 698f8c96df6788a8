"""The pieces that all parts share, and checked access to the tensors of a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tinyllm_engine.agreed import UNIT
from tinyllm_engine.errors import ModelError
from tinyllm_engine.tensor import TensorView


@dataclass(frozen=True, eq=False)
class LowRank:
    """What an adapter adds to a product: scale * B (A x).

    a: float32 [rank, inputs]; b: float32 [outputs, rank]
    """

    a: np.ndarray
    b: np.ndarray
    scale: float

    @property
    def rank(self) -> int:
        return self.b.shape[1]

    @cached_property
    def packed(self) -> np.ndarray:
        """float32 [blocks, rank, UNIT]: b as the kernels read it, in blocks of UNIT outputs, the last one filled up."""
        blocks = -(-len(self.b) // UNIT)
        whole = np.zeros((blocks * UNIT, self.rank), np.float32)
        whole[: len(self.b)] = self.b
        return np.ascontiguousarray(whole.reshape(blocks, UNIT, self.rank).transpose(0, 2, 1))

    def rows(self, chosen: slice | np.ndarray) -> LowRank:
        """These outputs in this order."""
        return LowRank(self.a, self.b[chosen], self.scale)

    def scaled(self, factor: float) -> LowRank:
        """The same with its result multiplied."""
        return LowRank(self.a, self.b, self.scale * factor)


@dataclass(frozen=True, eq=False)
class Linear:
    """A matrix and what is added to its product: x -> scale * (W x) + bias, and what adapters add.

    weight: dims [inputs, outputs], read in place
    bias: float32 [outputs] or None
    """

    weight: TensorView
    bias: np.ndarray | None = None
    scale: float = 1.0
    adapters: tuple[LowRank, ...] = ()

    @property
    def inputs(self) -> int:
        return self.weight.dims[0]

    @property
    def outputs(self) -> int:
        return self.weight.rows

    def rows(self, start: int, stop: int) -> Linear:
        """The outputs from `start` up to `stop`, without a copy."""
        bias = None if self.bias is None else self.bias[start:stop]
        adapters = tuple(each.rows(slice(start, stop)) for each in self.adapters)
        return Linear(self.weight.rows_between(start, stop), bias, self.scale, adapters)

    def taken(self, rows: np.ndarray) -> Linear:
        """These outputs in this order: a copy."""
        bias = None if self.bias is None else self.bias[rows]
        return Linear(self.weight.taken(rows), bias, self.scale, tuple(each.rows(rows) for each in self.adapters))

    def scaled(self, factor: float) -> Linear:
        """The same with its result multiplied: there the scale of a whole block costs nothing."""
        if factor == 1.0:
            return self
        bias = None if self.bias is None else self.bias * np.float32(factor)
        adapters = tuple(each.scaled(factor) for each in self.adapters)
        return Linear(self.weight, bias, self.scale * factor, adapters)


@dataclass(frozen=True, eq=False)
class Norm:
    """What makes rows comparable before they are multiplied.

    kind: "rms", weight * x / sqrt(mean(x^2) + epsilon), or "layer": as distances from the row's mean, and with a bias
    weight: float32 [columns], or [heads * columns] where each head has its own; bias: the same, zero for "rms"
    """

    kind: str
    weight: np.ndarray
    bias: np.ndarray
    epsilon: float


def role_of(name: str) -> str:
    """blk.3.attn_q.weight -> attn_q.weight; output.weight stays."""
    return name.split(".", 2)[-1] if name.startswith("blk.") else name


class Tensors:
    """The tensors of one file by name, each checked when it is asked for.

    unused: those to be passed over, in any block ("attn_output.bias")
    low_rank: what adapters add to the products of a tensor
    ModelError names file, tensor, expected and found shape.
    """

    def __init__(
        self,
        tensors: Mapping[str, TensorView],
        path: str,
        unused: Collection[str] = (),
        low_rank: Callable[[str], tuple[LowRank, ...]] = lambda name: (),
    ):
        self.path = path
        self.tensors = {name: view for name, view in tensors.items() if role_of(name) not in unused}
        self._low_rank = low_rank
        self.adapted: set[str] = set()  # tensors for whose adapters there was a place

    def low_rank(self, name: str) -> tuple[LowRank, ...]:
        """What adapters add to the products of the tensor."""
        self.adapted.add(name)
        return self._low_rank(name)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def view(self, name: str) -> TensorView:
        """The tensor itself, of whatever shape."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelError(f"{self.path}: tensor {name!r} is missing") from None

    def wrong_shape(self, tensor: TensorView, expected: Sequence[Any]) -> ModelError:
        """The error to raise: dims as the file counts them, the row length first."""
        wanted = " x ".join(str(dim) for dim in expected)
        found = " x ".join(str(dim) for dim in tensor.dims)
        return ModelError(f"{self.path}: tensor {tensor.name!r}: expected {wanted}, found {found}")

    def _numbers(self, tensor: TensorView) -> np.ndarray:
        """float32 [rows, dims[0]]; ModelError where they are not finite, which factors of rotations may be."""
        values = tensor.dequantize()
        if "rope" not in tensor.name and not np.isfinite(values).all():
            raise ModelError(f"{self.path}: tensor {tensor.name!r}: expected finite numbers, found NaN or infinity")
        return values

    def vector(self, name: str, length: int) -> np.ndarray:
        """float32 [length]"""
        tensor = self.view(name)
        if math.prod(tensor.dims) != length or tensor.dims[0] != length:
            raise self.wrong_shape(tensor, [length])
        return np.ascontiguousarray(self._numbers(tensor).reshape(-1))

    def optional(self, name: str, length: int) -> np.ndarray | None:
        """The same, or None where the file has no such tensor."""
        return self.vector(name, length) if name in self else None

    def values(self, name: str, count: int) -> np.ndarray:
        """float32 [count], in whatever shape the file has them."""
        tensor = self.view(name)
        if math.prod(tensor.dims) != count:
            raise self.wrong_shape(tensor, [count])
        return np.ascontiguousarray(self._numbers(tensor).reshape(-1))

    def matrix(self, name: str, inputs: int, outputs: int) -> np.ndarray:
        """float32 [outputs, inputs], of a small one that multiplies nothing."""
        tensor = self.view(name)
        if tensor.dims != (inputs, outputs):
            raise self.wrong_shape(tensor, [inputs, outputs])
        return self._numbers(tensor)

    def norm(self, name: str, length: int, kind: str, epsilon: float, weights: bool = True, heads: int = 1) -> Norm:
        """`name`.weight (or `name` itself, as some files have it), with `name`.bias where a layer norm has one.

        weights: whether the family has any; heads: so many weights of this length there may be instead of one
        """
        if not weights:
            return Norm(kind, np.ones(length, np.float32), np.zeros(length, np.float32), epsilon)
        stored = name if f"{name}.weight" not in self and name in self else f"{name}.weight"
        if heads > 1 and stored in self and math.prod(self.view(stored).dims) == length * heads:
            weight = np.ascontiguousarray(self._numbers(self.view(stored)).reshape(-1))
        else:
            weight = self.vector(stored, length)
        bias = np.zeros(len(weight), np.float32)
        if kind == "layer" and f"{name}.bias" in self:
            bias = np.ascontiguousarray(self._numbers(self.view(f"{name}.bias")).reshape(-1))
            if len(bias) != len(weight):
                raise self.wrong_shape(self.view(f"{name}.bias"), [len(weight)])
        return Norm(kind, weight, bias, epsilon)

    def linear(
        self,
        name: str,
        inputs: int,
        outputs: int,
        scaled: bool = True,
        scale_bias: bool = False,
        tied: TensorView | None = None,
    ) -> Linear:
        """`name`.weight with its optional .bias and .scale.

        A scale multiplies the product (if the family has it, `scaled`); with `scale_bias` it multiplies the bias too,
        as in feed-forward networks. `tied` is the weight where the file has none of the name.
        """
        weight = tied if tied is not None and f"{name}.weight" not in self else self.view(f"{name}.weight")
        if weight.dims != (inputs, outputs):
            raise self.wrong_shape(weight, [inputs, outputs])
        bias = self.optional(f"{name}.bias", outputs)
        scale = float(self.vector(f"{name}.scale", 1)[0]) if scaled and f"{name}.scale" in self else 1.0
        if bias is not None and scale_bias:
            bias = bias * np.float32(scale)
        return Linear(weight, bias, scale, self.low_rank(weight.name))

    def stacked(self, name: str, inputs: int, outputs: Sequence[int], **options: Any) -> list[Linear]:
        """Matrices of these numbers of outputs that lie below one another in one tensor; options as of `linear`."""
        whole = self.linear(name, inputs, sum(outputs), **options)
        ends = np.cumsum(outputs).tolist()
        return [whole.rows(end - count, end) for count, end in zip(outputs, ends, strict=True)]
