"""Gated short convolution (LFM2): a few neighbouring rows meet, channel by channel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Tensors
from tinyllm_engine.parts.recurrent import MAX_TAPS, read_taps


@dataclass(frozen=True, eq=False)
class ShortConvolution:
    """c(x) * convolution(b(x) * x(x)).

    b, c, x: [embedding_length -> embedding_length]
    taps: float32 [rows that it sees, embedding_length], what the oldest is multiplied with first
    """

    b: Linear
    c: Linear
    x: Linear
    taps: np.ndarray
    output: Linear

    @property
    def state_size(self) -> int:
        """float32 values that it remembers of a sequence."""
        return self.taps[1:].size

    def scaled(self, factor: float) -> ShortConvolution:
        return replace(self, output=self.output.scaled(factor))


def read_short_convolution(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> ShortConvolution:
    """ModelError for what is missing or of another shape."""
    blk, embedding = f"blk.{block}.shortconv", config.embedding_length
    b, c, x = tensors.stacked(f"{blk}.in_proj", embedding, [embedding] * 3)
    taps = config.keys.integer("shortconv.l_cache", 1, MAX_TAPS)
    return ShortConvolution(
        b=b,
        c=c,
        x=x,
        taps=read_taps(tensors, f"{blk}.conv.weight", taps, embedding),
        output=tensors.linear(f"{blk}.out_proj", embedding, embedding),
    )
