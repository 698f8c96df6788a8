"""Mamba-2: heads whose states fade, take rows in and answer them (arXiv:2405.21060)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.parts.recurrent import check_divisor, check_multiple, read_taps, ssm_size


@dataclass(frozen=True, eq=False)
class Mamba2:
    """norm(scan(silu(convolution(xbc(x))), dt(x)) * silu(z(x))).

    z: [embedding_length -> inner_size]; dt: [-> heads]
    xbc: [-> inner_size + 2 * groups * state_length]: x, then B and C, which heads / groups neighbouring heads share
    taps: float32 [rows that the convolution sees, columns of xbc]; conv_bias: float32 [columns of xbc] or None
    a, d: float32 [heads]; a is negative
    norm: of each group's part of a row, with weights for all parts; not all models have it
    """

    z: Linear
    xbc: Linear
    dt: Linear
    taps: np.ndarray
    conv_bias: np.ndarray | None
    a: np.ndarray
    d: np.ndarray
    norm: Norm | None
    groups: int
    state_length: int
    output: Linear

    @property
    def heads(self) -> int:
        return len(self.a)

    @property
    def inner_size(self) -> int:
        return self.z.outputs

    @property
    def state_size(self) -> int:
        """float32 values that it remembers of a sequence."""
        return self.taps[1:].size + self.inner_size * self.state_length

    def scaled(self, factor: float) -> Mamba2:
        return replace(self, output=self.output.scaled(factor))


def read_mamba2(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> Mamba2:
    """ModelError for sizes that do not belong together."""
    blk, embedding = f"blk.{block}", config.embedding_length
    inner, state_length = ssm_size(config, "inner_size"), ssm_size(config, "state_size", 4)
    heads, groups = ssm_size(config, "time_step_rank"), ssm_size(config, "group_count")
    check_divisor(config, "time_step_rank", heads, "inner_size", inner)
    check_divisor(config, "group_count", groups, "time_step_rank", heads)
    check_multiple(config, "ssm.inner_size / ssm.time_step_rank", inner // heads, 8)
    columns = inner + 2 * groups * state_length
    z, xbc, dt = tensors.stacked(f"{blk}.ssm_in", embedding, (inner, columns, heads))
    norm = f"{blk}.ssm_norm"
    return Mamba2(
        z=z,
        xbc=xbc,
        dt=replace(dt, bias=tensors.values(f"{blk}.ssm_dt.bias", heads)),
        taps=read_taps(tensors, f"{blk}.ssm_conv1d.weight", ssm_size(config, "conv_kernel"), columns),
        conv_bias=tensors.optional(f"{blk}.ssm_conv1d.bias", columns),
        a=tensors.values(f"{blk}.ssm_a", heads),
        d=tensors.values(f"{blk}.ssm_d", heads),
        norm=tensors.norm(norm, inner // groups, "rms", config.epsilon("rms"), heads=groups)
        if f"{norm}.weight" in tensors
        else None,
        groups=groups,
        state_length=state_length,
        output=tensors.linear(f"{blk}.ssm_out", inner, embedding),
    )
