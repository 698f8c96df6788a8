"""The facts of a family's latent attention, as data, and the small rules among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tinyllm_engine.config import MAX_HEAD_LENGTH, ModelConfig


@dataclass(frozen=True)
class Latent:
    """What a family does in latent attention (arXiv:2405.04434).

    plain_queries: whether queries are made of the row itself, whatever attention.q_lora_rank says
    yarn_multiplier: what rope.scaling.yarn_log_multiplier comes to for rotations; None: the key does not count
    """

    plain_queries: Callable[[ModelConfig], bool]
    yarn_multiplier: Callable[[ModelConfig], float] | None = None


def never(config: ModelConfig) -> bool:
    return False


def always(config: ModelConfig) -> bool:
    return True


def deepseek_lite(config: ModelConfig) -> bool:
    """DeepSeek V2 Lite, GigaChat 3 and Kanana 2, which are told by their sizes."""
    return config.block_count in (26, 27) or (config.block_count == 48 and config.vocab_size == 128256)


def deepseek_yarn(config: ModelConfig) -> float:
    """By what the logarithm in YaRN's magnitude is multiplied for scores; the file has a tenth of it."""
    return (config.keys.number("rope.scaling.yarn_log_multiplier") or 0.0) / 0.1


def all_or_nothing(config: ModelConfig) -> float:
    """With a multiplier for scores DeepSeek V2 leaves the magnitude of rotations alone."""
    return 1.0 if deepseek_yarn(config) else 0.0


def deepseek_scale(latent: Latent) -> Callable[[ModelConfig], float]:
    """1 / sqrt(d), times the square of what YaRN does to the magnitudes of queries and keys."""

    def scale(config: ModelConfig) -> float:
        rope, key_length = config.rope, config.keys.integer("attention.key_length_mla", 0, MAX_HEAD_LENGTH, 0)
        growth = 0.1 * math.log(rope.scaling_factor)
        magnitude = rope.attn_factor * (1 + growth) * (1 + deepseek_yarn(config) * growth)
        if rope.ext_factor and latent.yarn_multiplier is not None:
            magnitude /= 1 + latent.yarn_multiplier(config) * growth
        return magnitude**2 * (key_length or config.key_length) ** -0.5

    return scale
