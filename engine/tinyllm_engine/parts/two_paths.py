"""A dense network and a mixture of experts side by side, each between norms of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Norm, Tensors
from tinyllm_engine.parts.experts import Experts, read_experts
from tinyllm_engine.parts.feed_forward import FeedForward, read_feed_forward


@dataclass(frozen=True, eq=False)
class TwoPaths:
    """network_after(network(xb)) + experts_after(experts(experts_before(x))), xb being the norm of x.

    router_before: of x, for the router of the experts
    """

    network: FeedForward
    network_after: Norm
    experts: Experts
    experts_before: Norm
    router_before: Norm
    experts_after: Norm

    def scaled(self, factor: float) -> TwoPaths:
        """The norms undo a scale of what they read: it has to be in them."""

        def scaled(norm: Norm) -> Norm:
            return replace(norm, weight=norm.weight * np.float32(factor), bias=norm.bias * np.float32(factor))

        if factor == 1.0:
            return self
        return replace(self, network_after=scaled(self.network_after), experts_after=scaled(self.experts_after))


def read_two_paths(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> TwoPaths:
    """ModelError for what is missing or of another shape."""
    blk, embedding, epsilon = f"blk.{block}", config.embedding_length, config.epsilon(facts.norm)

    def norm(name: str) -> Norm:
        return tensors.norm(f"{blk}.{name}", embedding, facts.norm, epsilon)

    router_weight = tensors.vector(f"{blk}.ffn_gate_inp.scale", embedding) * np.float32(embedding**-0.5)
    return TwoPaths(
        network=read_feed_forward(tensors, facts, config, block),
        network_after=norm("post_ffw_norm_1"),
        experts=read_experts(tensors, facts, config, block),
        experts_before=norm("pre_ffw_norm_2"),
        router_before=Norm(facts.norm, router_weight, np.zeros(embedding, np.float32), epsilon),
        experts_after=norm("post_ffw_norm_2"),
    )
