"""Gated short convolution (LFM2): a few neighbouring rows meet, channel by channel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Tensors

MAX_TAPS = 256
MAX_SIZE = 1 << 20


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


def read_taps(tensors: Tensors, name: str, taps: int, channels: int) -> np.ndarray:
    """float32 [taps, channels]: the weights of a convolution, which a file has by channel."""
    return np.ascontiguousarray(tensors.matrix(name, taps, channels).T)


def ssm_size(config: ModelConfig, name: str, unit: int = 1) -> int:
    """The key `ssm.NAME`. UnsupportedModelError where it is no multiple of what kernels work in."""
    size = config.keys.integer(f"ssm.{name}", 1, MAX_TAPS if name == "conv_kernel" else MAX_SIZE)
    check_multiple(config, f"ssm.{name}", size, unit)
    return size


def check_multiple(config: ModelConfig, what: str, size: int, unit: int) -> None:
    if size % unit:
        where = f"{config.keys.path}: " if config.keys.path else ""
        raise UnsupportedModelError(f"{where}{what}: expected a multiple of {unit}, found {size}")


def check_divisor(config: ModelConfig, name: str, divisor: int, whole: str, size: int) -> None:
    """ModelError unless the size of one key is a multiple of another's."""
    if size % divisor:
        key, _ = config.keys.get(f"ssm.{name}")
        config.keys.fail(key, f"a divisor of ssm.{whole} {size}", divisor)
