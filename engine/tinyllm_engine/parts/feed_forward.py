"""The feed-forward network: each row by itself, widened, activated, narrowed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Norm, Tensors


@dataclass(frozen=True)
class XIELU:
    """x > 0: alpha_p x^2 + beta x; else alpha_n (e^min(x, epsilon) - 1 - x) + beta x (arXiv:2411.13010)."""

    alpha_n: float
    alpha_p: float
    beta: float
    epsilon: float


@dataclass(frozen=True, eq=False)
class FeedForward:
    """down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.

    gate, up: [embedding_length -> feed_forward_length]; down: back again
    activation: "silu", "gelu", "relu2" or an XIELU
    divisor: float32 [feed_forward_length] of what is activated; None: there is none
    sub_norm: of what `down` multiplies
    sparsity: deviations above its row's mean from which on something counts before it is activated; 0: all does
    """

    gate: Linear | None
    up: Linear
    down: Linear
    activation: str | XIELU
    divisor: np.ndarray | None = None
    sub_norm: Norm | None = None
    sparsity: float = 0.0

    def scaled(self, factor: float) -> FeedForward:
        return replace(self, down=self.down.scaled(factor))


def read_feed_forward(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> FeedForward:
    """The network of a block. ModelError for what is missing or of another shape."""
    blk, embedding = f"blk.{block}", config.embedding_length
    width = config.feed_forward_length[block] // (2 if facts.ffn_half else 1)

    def linear(name: str, inputs: int, outputs: int) -> Linear:
        return tensors.linear(f"{blk}.{name}", inputs, outputs, scaled=facts.ffn_scales, scale_bias=True)

    gate: Linear | None = None
    if facts.gate == "fused":
        gate, up = tensors.stacked(f"{blk}.ffn_up", embedding, (width, width), scaled=facts.ffn_scales, scale_bias=True)
    else:
        up = linear("ffn_up", embedding, width)
        gate = linear("ffn_gate", embedding, width) if facts.gate == "split" else None
    sub_norm = None
    if facts.sub_norms:
        sub_norm = tensors.norm(f"{blk}.ffn_sub_norm", width, facts.norm, config.epsilon(facts.norm))
    return FeedForward(
        gate=gate,
        up=up,
        down=linear("ffn_down", width, embedding),
        activation=_xielu(config, block) if facts.activation == "xielu" else facts.activation,
        divisor=tensors.optional(f"{blk}.ffn.act.scales", width) if facts.act_scales else None,
        sub_norm=sub_norm,
        sparsity=facts.sparsity(block),
    )


def _xielu(config: ModelConfig, block: int) -> XIELU:
    """The file has what a softplus makes positive."""
    alpha_n, alpha_p, beta, epsilon = (
        config.keys.numbers(f"xielu.{name}", config.block_count)[block]
        for name in ("alpha_n", "alpha_p", "beta", "eps")
    )
    return XIELU(beta + _softplus(alpha_n), _softplus(alpha_p), beta, epsilon)


def _softplus(x: float) -> float:
    return x if x > 20 else math.log1p(math.exp(x))
