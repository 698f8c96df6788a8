"""Several residual streams, of which a layer works on one: AltUp (arXiv:2301.13310), with LAuReL (arXiv:2411.07501)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.quants import QUANT_TYPES
from tinyllm_engine.tensor import TensorView

STREAMS = 4
LAUREL_RANK = 64
PADDED = 8  # rows of the router, whose results are multiplied eight at a time
_F32 = next(kind for kind in QUANT_TYPES.values() if kind.name == "F32")


@dataclass(frozen=True, eq=False)
class Streams:
    """How the other streams begin as projections of the first, and end: each [embedding_length -> embedding_length]."""

    begin: tuple[Linear, ...]
    end: tuple[Linear, ...]

    @property
    def count(self) -> int:
        return 1 + len(self.begin)


@dataclass(frozen=True, eq=False)
class LayerStreams:
    """How a layer reads and leaves the streams.

    router_norm, router: tanh(router(router_norm(x))) is what coefficients are made of, [PADDED]
    predict: [PADDED -> streams * streams]; correct: [PADDED -> streams]
    left, right, low_norm: x + low_norm(right(left(x))) stands beside attention
    divisor: float32 [embedding_length] of what reads the layer's own input of a token
    """

    router_norm: Norm
    router: Linear
    predict: Linear
    correct: Linear
    left: Linear
    right: Linear
    low_norm: Norm
    divisor: np.ndarray


def read_streams(tensors: Tensors, facts: Architecture, config: ModelConfig) -> Streams | None:
    """None for a family with one stream. ModelError for what is missing or of another shape."""
    if not facts.streams:
        return None
    length = config.embedding_length

    def stack(name: str) -> tuple[Linear, ...]:
        whole = tensors.view(f"{name}.weight")
        if whole.dims != (length, length, STREAMS - 1):
            raise tensors.wrong_shape(whole, [length, length, STREAMS - 1])
        return tuple(Linear(whole.rows_between(i * length, (i + 1) * length)) for i in range(STREAMS - 1))

    return Streams(stack("altup_proj"), stack("altup_unembd_proj"))


def read_layer_streams(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> LayerStreams | None:
    """None for a family with one stream. ModelError for what is missing or of another shape."""
    if not facts.streams:
        return None
    blk, length, epsilon = f"blk.{block}", config.embedding_length, config.epsilon(facts.norm)

    def matrix(name: str, inputs: int, outputs: int) -> Linear:
        """A small one, filled up with zeros where it meets what the router gives."""
        values = np.zeros((PADDED, length) if inputs == length else (outputs, PADDED), np.float32)
        values[:outputs, :inputs] = tensors.matrix(f"{blk}.{name}.weight", inputs, outputs)
        return Linear(TensorView(name, values.shape[::-1], _F32, values.reshape(-1).view(np.uint8)))

    router_norm = tensors.norm(f"{blk}.altup_router_norm", length, facts.norm, epsilon)
    scale = tensors.vector(f"{blk}.altup_correct_scale.weight", length)
    with np.errstate(divide="ignore"):
        divisor = (1 / scale).astype(np.float32)
    return LayerStreams(
        router_norm=Norm(router_norm.kind, router_norm.weight / np.float32(length), router_norm.bias, epsilon),
        router=matrix("altup_router", length, STREAMS),
        predict=matrix("altup_predict_coef", STREAMS, STREAMS * STREAMS),
        correct=matrix("altup_correct_coef", STREAMS, STREAMS),
        left=tensors.linear(f"{blk}.laurel_l", length, LAUREL_RANK),
        right=tensors.linear(f"{blk}.laurel_r", LAUREL_RANK, length),
        low_norm=tensors.norm(f"{blk}.laurel_post_norm", length, facts.norm, epsilon),
        divisor=divisor,
    )
