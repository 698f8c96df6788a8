"""PLaMo 2's state space: the heads of Mamba-2, what goes in and out of them made of what the convolution gives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.parts.recurrent import check_divisor, check_multiple, read_taps, ssm_size

SMALLEST_RANK, RANK_SHARE = 64, 16


@dataclass(frozen=True, eq=False)
class Plamo2:
    """scan(u, norm(b(u)), norm(c(u)), dt(norm(dt_rank(u)))) * silu(z), where u = silu(convolution(x)).

    zx: [embedding_length -> heads of z and x]; b, c: [inner_size -> numbers of a state]
    dt_rank: [inner_size -> a few]; dt: [a few -> heads]
    taps: float32 [rows that the convolution sees, inner_size]; a, d: float32 [heads], a negative
    """

    zx: Linear
    b: Linear
    c: Linear
    dt_rank: Linear
    dt: Linear
    b_norm: Norm
    c_norm: Norm
    dt_norm: Norm
    taps: np.ndarray
    a: np.ndarray
    d: np.ndarray
    output: Linear

    @property
    def state_length(self) -> int:
        return self.b.outputs

    @property
    def state_size(self) -> int:
        """float32 values that it remembers of a sequence."""
        return self.taps[1:].size + self.output.inputs * self.state_length

    def scaled(self, factor: float) -> Plamo2:
        return replace(self, output=self.output.scaled(factor))


def read_plamo2(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> Plamo2:
    """ModelError for sizes that do not belong together."""
    blk, embedding = f"blk.{block}", config.embedding_length
    inner, heads = ssm_size(config, "inner_size"), ssm_size(config, "time_step_rank")
    numbers, rank = ssm_size(config, "state_size", 4), max(SMALLEST_RANK, embedding // RANK_SHARE)
    check_divisor(config, "time_step_rank", heads, "inner_size", inner)
    check_multiple(config, "ssm.inner_size / ssm.time_step_rank", inner // heads, 8)
    b, c, dt_rank = tensors.stacked(f"{blk}.ssm_x", inner, (numbers, numbers, rank))

    def norm(name: str, length: int) -> Norm:
        return tensors.norm(f"{blk}.ssm_{name}_norm", length, "rms", config.epsilon("rms"))

    return Plamo2(
        zx=tensors.linear(f"{blk}.ssm_in", embedding, 2 * inner, scaled=facts.recurrent_scales),
        b=b,
        c=c,
        dt_rank=dt_rank,
        dt=tensors.linear(f"{blk}.ssm_dt", rank, heads),
        b_norm=norm("b", numbers),
        c_norm=norm("c", numbers),
        dt_norm=norm("dt", rank),
        taps=read_taps(tensors, f"{blk}.ssm_conv1d.weight", ssm_size(config, "conv_kernel"), inner),
        a=tensors.values(f"{blk}.ssm_a", heads),
        d=tensors.values(f"{blk}.ssm_d", heads),
        output=tensors.linear(f"{blk}.ssm_out", inner, embedding, scaled=facts.recurrent_scales),
    )
