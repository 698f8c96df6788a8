"""Which rotations a model has: one for its layers, or another one for those with a sliding window."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import MAX_HEAD_LENGTH, ModelConfig, RopeConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Tensors
from tinyllm_engine.rope import Rope

MAX_SECTION = 1 << 16


@dataclass(frozen=True)
class Rotations:
    """How heads rotate in layers that see everything, and in layers with a window."""

    full: Rope
    windowed: Rope

    @property
    def all(self) -> tuple[Rope, ...]:
        """Each once."""
        return tuple(dict.fromkeys((self.full, self.windowed)))


def read_rotations(tensors: Tensors, facts: Architecture, config: ModelConfig) -> Rotations | None:
    """None for a model without rotations. ModelError for factors of another length than half of what rotates."""
    if facts.rope == "none" or not config.rope.dimension_count:
        return None
    rope = rope_config(facts, config)
    sections = config.keys.integers("rope.dimension_sections", MAX_SECTION) if facts.rope_sections else None
    factors, long_factors = _factors(tensors, facts, rope)
    full = Rope(
        rope,
        interleaved=facts.rope == "norm" and not (sections and len(sections) > 1 and sections[0] and sections[1]),
        factors=factors,
        long_factors=long_factors,
        resting=_resting(rope.dimension_count // 2, sections, facts.rope_sections) if sections else None,
    )
    own = _windowed(rope, facts, config)
    if facts.window is not None and not facts.window.rope_factors:
        return Rotations(full, replace(full, config=own or rope, factors=None, long_factors=None))
    return Rotations(full, full if own is None else replace(full, config=own))


def rope_config(facts: Architecture, config: ModelConfig) -> RopeConfig:
    """The file's, with the keys that only this family reads."""
    keys, rope = config.keys, config.rope
    if facts.rope_whole_head:
        rope = replace(rope, dimension_count=config.key_length)
    alpha = keys.scale("rope.scaling.alpha") if facts.rope_alpha else None
    if alpha:
        size = config.key_length
        rope = replace(rope, freq_base=rope.freq_base * alpha ** (size / (size - 2)))
    if facts.yarn_keys:
        rope = replace(
            rope,
            beta_fast=keys.positive_or("rope.scaling.yarn_beta_fast", rope.beta_fast),
            beta_slow=keys.positive_or("rope.scaling.yarn_beta_slow", rope.beta_slow),
            log_multiplier=keys.scale("rope.scaling.yarn_log_multiplier") or 0.0,
        )
    if facts.latent is not None and facts.latent.yarn_multiplier is not None:
        rope = replace(rope, log_multiplier=facts.latent.yarn_multiplier(config))
    return rope


def _windowed(rope: RopeConfig, facts: Architecture, config: ModelConfig) -> RopeConfig | None:
    """What layers with a window have; None: the same as the others."""
    window = facts.window
    if window is None:
        return None
    own = rope
    if window.own_heads:
        size = config.keys.integer("rope.dimension_count_swa", 0, MAX_HEAD_LENGTH, default=own.dimension_count)
        own = replace(own, dimension_count=size)
    if window.rope_key:
        default = window.rope_base or rope.freq_base
        own = replace(own, freq_base=config.keys.positive_or("rope.freq_base_swa", default))
    if window.rope_scaling != "full":
        own = replace(own, scaling_type="none", scaling_factor=1.0, ext_factor=0.0)
    if window.rope_scaling == "none":
        own = replace(own, attn_factor=1.0)
    return None if own == rope else own


def _factors(tensors: Tensors, facts: Architecture, rope: RopeConfig) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(divisors of the frequencies, those for long contexts), each None where there are none."""
    pairs = rope.dimension_count // 2
    by_length = facts.rope_factors == "long_short" or (
        facts.rope_factors == "by_scaling" and rope.scaling_type == "longrope"
    )
    if by_length:
        short, long = (f"rope_factors_{length}.weight" for length in ("short", "long"))
        return tensors.optional(short, pairs), tensors.optional(long, pairs)
    if facts.rope_factors in ("freqs", "by_scaling"):
        factors = tensors.optional("rope_freqs.weight", pairs)
        return factors, factors
    return None, None


def _resting(pairs: int, sections: tuple[int, ...], kind: str) -> np.ndarray | None:
    """bool [pairs]: those whose section counts something that text has none of, and so stays at 0."""
    time, height, width, *rest = (*sections, 0, 0, 0)[:4]
    period = time + height + width + sum(rest)
    if not period:
        return None
    place = np.arange(pairs) % period
    if kind == "imrope":
        moving = np.choose(place % 3, [place < 3 * time, place < 3 * height, place < 3 * width])
    else:
        moving = place < time + height + width
    return ~moving.astype(bool)
