"""The feed-forward network: each row by itself, widened, activated, narrowed."""

from __future__ import annotations

from dataclasses import dataclass

from tinyllm_engine.architectures import Architecture
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.parts.base import Linear, Tensors


@dataclass(frozen=True, eq=False)
class FeedForward:
    """down(activation(gate(x)) * up(x)).

    gate, up: [embedding_length -> feed_forward_length]; down: back again
    """

    gate: Linear
    up: Linear
    down: Linear


def read_feed_forward(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> FeedForward:
    blk, embedding, width = f"blk.{block}", config.embedding_length, config.feed_forward_length[block]
    return FeedForward(
        gate=tensors.linear(f"{blk}.ffn_gate", embedding, width, scale_bias=True),
        up=tensors.linear(f"{blk}.ffn_up", embedding, width, scale_bias=True),
        down=tensors.linear(f"{blk}.ffn_down", width, embedding, scale_bias=True),
    )
