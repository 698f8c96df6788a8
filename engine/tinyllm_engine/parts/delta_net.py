"""Gated delta net: heads that correct what they remember under a key (arXiv:2412.06464)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.parts.recurrent import check_divisor, read_taps, ssm_size


@dataclass(frozen=True, eq=False)
class GatedDeltaNet:
    """norm(delta rule of silu(convolution(qkv(x)))) * silu(z(x)).

    qkv: [embedding_length -> (2 * key_heads + heads) * size]: queries, keys, values; z: [-> heads * size]
    alpha, beta: [-> heads]: how much of the state fades, and how much of a correction is made
    taps: float32 [rows that the convolution sees, columns of qkv]
    a: float32 [heads], negative; norm: of a head
    tiled: head h uses key h % key_heads, as opposed to one shared by heads / key_heads neighbours
    """

    qkv: Linear
    z: Linear
    alpha: Linear
    beta: Linear
    taps: np.ndarray
    a: np.ndarray
    norm: Norm
    key_heads: int
    tiled: bool
    output: Linear

    @property
    def heads(self) -> int:
        return len(self.a)

    @property
    def size(self) -> int:
        return len(self.norm.weight)

    @property
    def state_size(self) -> int:
        """float32 values that it remembers of a sequence."""
        return self.taps[1:].size + self.heads * self.size**2

    def scaled(self, factor: float) -> GatedDeltaNet:
        return replace(self, output=self.output.scaled(factor))


def read_delta_net(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> GatedDeltaNet:
    """ModelError for sizes that do not belong together."""
    blk, embedding, size = f"blk.{block}", config.embedding_length, ssm_size(config, "state_size", 8)
    heads, key_heads = ssm_size(config, "time_step_rank"), ssm_size(config, "group_count")
    check_divisor(config, "group_count", key_heads, "time_step_rank", heads)
    columns = (2 * key_heads + heads) * size

    def linear(name: str, outputs: int, inputs: int = embedding) -> Linear:
        return tensors.linear(f"{blk}.{name}", inputs, outputs, scaled=facts.recurrent_scales)

    if f"{blk}.attn_qkv.weight" in tensors:
        qkv, z = linear("attn_qkv", columns), linear("attn_gate", heads * size)
    else:
        qkv, z = _by_key(linear("ssm_in", columns + heads * size), size, heads, key_heads)
    if f"{blk}.ssm_ba.weight" in tensors:
        beta, alpha = _interleaved(linear("ssm_ba", 2 * heads), key_heads)
    else:
        beta, alpha = linear("ssm_beta", heads), linear("ssm_alpha", heads)
    return GatedDeltaNet(
        qkv=qkv,
        z=z,
        alpha=replace(alpha, bias=tensors.values(f"{blk}.ssm_dt.bias", heads)),
        beta=beta,
        taps=read_taps(tensors, f"{blk}.ssm_conv1d.weight", ssm_size(config, "conv_kernel"), columns),
        a=tensors.values(f"{blk}.ssm_a", heads),
        norm=tensors.norm(f"{blk}.ssm_norm", size, "rms", config.epsilon("rms")),
        key_heads=key_heads,
        tiled=facts.tiled_keys,
        output=linear("ssm_out", embedding, heads * size),
    )


def _interleaved(both: Linear, key_heads: int) -> tuple[Linear, Linear]:
    """Two matrices whose rows alternate, as many of each at a time as heads share a key."""
    rows = np.arange(both.outputs).reshape(key_heads, 2, -1)
    return both.taken(rows[:, 0].reshape(-1)), both.taken(rows[:, 1].reshape(-1))


def _by_key(mixed: Linear, size: int, heads: int, key_heads: int) -> tuple[Linear, Linear]:
    """qkv and z of early files: for each key head its query, its key, the values and the z of its heads."""
    rows = np.arange(mixed.outputs).reshape(key_heads, -1)
    values = heads // key_heads * size
    parts = np.split(rows, np.cumsum([size, size, values]), axis=1)
    q, k, v, z = (part.reshape(-1) for part in parts)
    return mixed.taken(np.concatenate((q, k, v))), mixed.taken(z)
