"""Mixtures of experts: each row goes through a few of many feed-forward networks, chosen by a router."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyllm_engine.parts.base import Linear
from tinyllm_engine.parts.feed_forward import FeedForward
from tinyllm_engine.parts.stack import Stack


@dataclass(frozen=True, eq=False)
class Routing:
    """How a router's scores become the `used` experts of a row, of `experts`, and their weights.

    gating: makes weights of scores; ranking: makes of them what decides (see kernels.experts)
    bias: float32 [experts], added to what decides, or None
    sections: neighbouring experts are looked at together, and only the best sections further; 1: all experts are
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

    router: [embedding_length -> experts]; gate, up, down: a matrix for each expert; without a gate up is activated
    weighted_inputs: what an expert reads is weighed, not what it gives
    shared: a network that all rows go through; shared_gate: [embedding_length -> 1], its sigmoid is how much it counts
    """

    router: Linear
    routing: Routing
    gate: Stack | None
    up: Stack
    down: Stack
    activation: str
    weighted_inputs: bool = False
    shared: FeedForward | None = None
    shared_gate: Linear | None = None
