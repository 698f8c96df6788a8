"""What the parts that remember have in common: taps of a convolution along the sequence, and the sizes under `ssm.`."""

from __future__ import annotations

import numpy as np

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.parts.base import Tensors

MAX_TAPS = 256
MAX_SIZE = 1 << 20


def read_taps(tensors: Tensors, name: str, taps: int, channels: int) -> np.ndarray:
    """float32 [taps, channels]: the weights of a convolution, which a file has by channel."""
    return np.ascontiguousarray(tensors.matrix(name, taps, channels).T)


def ssm_size(config: ModelConfig, name: str, unit: int = 1) -> int:
    """The key `ssm.NAME`, checked as by `check_multiple`."""
    size = config.keys.integer(f"ssm.{name}", 1, MAX_TAPS if name == "conv_kernel" else MAX_SIZE)
    check_multiple(config, f"ssm.{name}", size, unit)
    return size


def check_multiple(config: ModelConfig, what: str, size: int, unit: int) -> None:
    """UnsupportedModelError where the size is no multiple of what kernels work in."""
    if size % unit:
        raise UnsupportedModelError(f"{config.keys.where}{what}: expected a multiple of {unit}, found {size}")


def check_divisor(config: ModelConfig, name: str, divisor: int, whole: str, size: int) -> None:
    """ModelError unless the size of one key is a multiple of another's."""
    if size % divisor:
        config.keys.refuse(f"ssm.{name}", f"a divisor of ssm.{whole} {size}", divisor)
