"""Mamba: channels whose states fade, take rows in and answer them, each number at its own rate (arXiv:2312.00752)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.parts.recurrent import read_taps, ssm_size


@dataclass(frozen=True, eq=False)
class Mamba:
    """scan(u, b(u), c(u), dt(dt_rank(u))) * silu(z(x)), where u = silu(convolution(x(x))).

    x, z: [embedding_length -> inner_size]; b, c: [inner_size -> numbers of a state]; dt_rank: [inner_size -> a few]
    dt: [a few -> inner_size]
    taps: float32 [rows that the convolution sees, inner_size]; conv_bias: float32 [inner_size]
    a: float32 [inner_size / 8, numbers of a state, 8], negative; d: float32 [inner_size]
    dt_norm, b_norm, c_norm: of what dt_rank, b and c come to; not all models have them
    """

    x: Linear
    z: Linear
    dt_rank: Linear
    b: Linear
    c: Linear
    dt: Linear
    dt_norm: Norm | None
    b_norm: Norm | None
    c_norm: Norm | None
    taps: np.ndarray
    conv_bias: np.ndarray | None
    a: np.ndarray
    d: np.ndarray
    output: Linear

    @property
    def state_size(self) -> int:
        """float32 values that it remembers of a sequence."""
        return self.taps[1:].size + self.a.size

    def scaled(self, factor: float) -> Mamba:
        return replace(self, output=self.output.scaled(factor))


def read_mamba(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> Mamba:
    """ModelError for what is missing or of another shape, UnsupportedModelError for sizes that kernels cannot do."""
    blk, embedding = f"blk.{block}", config.embedding_length
    inner = ssm_size(config, "inner_size", 8)
    numbers, rank = ssm_size(config, "state_size"), ssm_size(config, "time_step_rank", 8)
    x, z = tensors.stacked(f"{blk}.ssm_in", embedding, (inner, inner))
    dt_rank, b, c = tensors.stacked(f"{blk}.ssm_x", inner, (rank, numbers, numbers))
    always_normed = config.keys.flag("ssm.dt_b_c_rms", False)

    def norm(name: str, length: int) -> Norm | None:
        stored = f"{blk}.ssm_{name}_norm"
        if f"{stored}.weight" in tensors or always_normed:
            return tensors.norm(stored, length, "rms", config.epsilon("rms"), weights=f"{stored}.weight" in tensors)
        return None

    rates = tensors.matrix(f"{blk}.ssm_a", numbers, inner)
    return Mamba(
        x=x,
        z=z,
        dt_rank=dt_rank,
        b=b,
        c=c,
        dt=tensors.linear(f"{blk}.ssm_dt", rank, inner),
        dt_norm=norm("dt", rank),
        b_norm=norm("b", numbers),
        c_norm=norm("c", numbers),
        taps=read_taps(tensors, f"{blk}.ssm_conv1d.weight", ssm_size(config, "conv_kernel"), inner),
        conv_bias=tensors.optional(f"{blk}.ssm_conv1d.bias", inner),
        a=np.ascontiguousarray(rates.reshape(inner // 8, 8, numbers).transpose(0, 2, 1)),
        d=tensors.values(f"{blk}.ssm_d", inner),
        output=tensors.linear(f"{blk}.ssm_out", inner, embedding),
    )
