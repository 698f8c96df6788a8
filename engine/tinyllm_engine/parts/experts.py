"""Mixtures of experts: each row goes through a few of many feed-forward networks, chosen by a router."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.agreed import SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN, SQRT_SOFTPLUS, UNIT
from tinyllm_engine.config import MAX_EXPERTS, MAX_LENGTH, ModelConfig
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.facts import Architecture
from tinyllm_engine.mixture import Mixture
from tinyllm_engine.parts.base import Linear, Tensors
from tinyllm_engine.parts.feed_forward import FeedForward
from tinyllm_engine.parts.stack import Stack, read_stacks

GATING = {
    SOFTMAX: "softmax",
    SIGMOID: "sigmoid",
    SOFTMAX_OF_CHOSEN: "softmax of the chosen",
    SQRT_SOFTPLUS: "root of softplus",
}


@dataclass(frozen=True, eq=False)
class Routing:
    """How a router's scores become the `used` experts of a row, of `experts`, and their weights.

    gating: makes weights of scores; ranking: makes of them what decides (see kernels.experts)
    bias: float32 [experts], added to what decides, or None
    sections: neighbouring experts are looked at together, and only the best sections further; 1: all experts are. The
        file's keys call them groups: expert_group_count, expert_group_used_count
    normalized: the weights of a row add up to 1; scale: what they are multiplied with then
    """

    experts: int
    used: int
    gating: int
    ranking: int
    bias: np.ndarray | None = None
    sections: int = 1
    sections_used: int = 1
    normalized: bool = False
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Experts:
    """The sum of weight * down(activation(gate(x)) * up(x)) over the experts of a row, and of what all rows share.

    router: [embedding_length -> experts]; gate, up, down: a matrix for each expert; gate None: activation(up(x))
    narrow, widen: between what rows are and what experts read and give, or None
    weighted_inputs: what an expert reads is weighed, not what it gives
    shared: a network that all rows go through; shared_gate: [embedding_length -> 1], its sigmoid is how much it counts
    """

    router: Linear
    routing: Routing
    gate: Stack | None
    up: Stack
    down: Stack
    activation: str
    narrow: Linear | None = None
    widen: Linear | None = None
    weighted_inputs: bool = False
    shared: FeedForward | None = None
    shared_gate: Linear | None = None

    def scaled(self, factor: float) -> Experts:
        shared = None if self.shared is None else self.shared.scaled(factor)
        if self.widen is not None:
            return replace(self, widen=self.widen.scaled(factor), shared=shared)
        return replace(self, down=self.down.scaled(factor), shared=shared)


def has_experts(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> bool:
    """Whether a block has experts in place of a dense network."""
    mixture = facts.experts
    if mixture is None or (not mixture.required and not config.expert_count):
        return False
    if mixture.by_router:
        return f"blk.{block}.ffn_gate_inp.weight" in tensors
    return mixture.layers(config, block)


def read_experts(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> Experts:
    """The experts of a block that has some. ModelError for what is missing or of another shape."""
    mixture = facts.experts
    assert mixture is not None
    blk, embedding, count = f"blk.{block}", config.embedding_length, config.expert_count
    keys = config.keys
    if not count:
        config.keys.refuse("expert_count", "a number of experts above 0", None)
    width = mixture.width(config, block)
    if not width or width % UNIT:
        raise UnsupportedModelError(
            f"{tensors.path}: blk.{block}: expected experts of a width that is a multiple of {UNIT}, found {width}"
        )

    def stacks(name: str, inputs: int, *outputs: int) -> list[Stack]:
        return read_stacks(tensors, f"{blk}.{name}", inputs, outputs, count, mixture.scales, mixture.biases)

    inner = keys.integer("moe_latent_size", 0, MAX_LENGTH, default=0) if mixture.narrowed else 0
    whole, embedding = embedding, inner or embedding
    gate: Stack | None
    if facts.gate == "none":
        gate, (up,) = None, stacks("ffn_up_exps", embedding, width)
    elif mixture.fused and f"{blk}.ffn_gate_up_exps.weight" in tensors:
        gate, up = stacks("ffn_gate_up_exps", embedding, width, width)
    else:
        (gate,), (up,) = stacks("ffn_gate_exps", embedding, width), stacks("ffn_up_exps", embedding, width)
    (down,) = stacks("ffn_down_exps", width, embedding)
    return Experts(
        router=tensors.linear(f"{blk}.ffn_gate_inp", whole, count, scaled=not mixture.beside_network),
        routing=_routing(tensors, mixture, config, block),
        gate=gate,
        up=up,
        down=down,
        activation=mixture.activation or facts.activation,
        narrow=tensors.linear(f"{blk}.ffn_latent_down", whole, inner) if inner else None,
        widen=tensors.linear(f"{blk}.ffn_latent_up", inner, whole) if inner else None,
        weighted_inputs=mixture.weighted_inputs,
        shared=_shared(tensors, facts, config, block),
        shared_gate=_shared_gate(tensors, config, block) if mixture.shared_gated else None,
    )


def _routing(tensors: Tensors, mixture: Mixture, config: ModelConfig, block: int) -> Routing:
    keys, experts = config.keys, config.expert_count
    gating = mixture.gating
    if mixture.gating_key:
        gating = keys.integer("expert_gating_func", 0, MAX_EXPERTS, default=0) or gating
    if gating not in GATING:
        key = keys.key("expert_gating_func")
        known = ", ".join(f"{number} ({name})" for number, name in GATING.items())
        raise UnsupportedModelError(f"{tensors.path}: {key}: expected one of {known}; found {gating}")
    sections = max(1, keys.integer("expert_group_count", 0, experts, default=0))
    if experts % sections:
        keys.refuse("expert_group_count", f"a divisor of expert_count {experts}", sections)
    normalized = mixture.normalized
    return Routing(
        experts=experts,
        used=config.expert_used_count,
        gating=gating,
        ranking=mixture.ranking or gating,
        bias=tensors.optional(f"blk.{block}.exp_probs_b.bias", experts) if mixture.bias else None,
        sections=sections,
        sections_used=keys.integer("expert_group_used_count", 1, sections) if sections > 1 else 1,
        normalized=keys.flag("expert_weights_norm", False) if normalized is None else normalized,
        scale=(keys.number("expert_weights_scale") or 1.0) if mixture.scale_key else 1.0,
    )


def _shared(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> FeedForward | None:
    mixture, blk, embedding = facts.experts, f"blk.{block}", config.embedding_length
    width = mixture.shared(config, block) if mixture is not None else 0
    if mixture is None or not width:
        return None

    def linear(name: str, inputs: int, outputs: int) -> Linear:
        return tensors.linear(f"{blk}.{name}_shexp", inputs, outputs, scaled=mixture.scales, scale_bias=True)

    return FeedForward(
        gate=None if facts.gate == "none" else linear("ffn_gate", embedding, width),
        up=linear("ffn_up", embedding, width),
        down=linear("ffn_down", width, embedding),
        activation=mixture.activation or facts.activation,
    )


def _shared_gate(tensors: Tensors, config: ModelConfig, block: int) -> Linear:
    """One row, which the file has as a vector."""
    weight = tensors.view(f"blk.{block}.ffn_gate_inp_shexp.weight")
    if weight.dims[0] != config.embedding_length or weight.rows != 1:
        raise tensors.wrong_shape(weight, [config.embedding_length])
    return Linear(weight)
