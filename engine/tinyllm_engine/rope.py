"""Rotary position embedding: how fast each pair of a head turns, with every scaling folded in.

A kernel that rotates pair i of a row at position p needs only the angle p * inv_freq[i] and multiplies cos and sin by
the magnitude; where the pairs lie (2i, 2i+1 or i, i + n_rot/2) is the architecture's affair, not this module's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.errors import ModelError

if TYPE_CHECKING:
    from tinyllm_engine.config import RopeConfig

F32 = np.float32


@dataclass(frozen=True, eq=False)
class Rope:
    """One way in which heads rotate; a model may have several, for its layers of different kinds.

    interleaved: pairs (2i, 2i + 1), as opposed to (i, i + n_rot / 2)
    factors, long_factors: float32 [n_rot / 2] that the frequencies are divided by, or None; the long ones in contexts
        longer than the original one
    resting: bool [n_rot / 2], pairs that do not rotate; or None
    """

    config: RopeConfig
    interleaved: bool
    factors: NDArray[np.float32] | None = None
    long_factors: NDArray[np.float32] | None = None
    resting: NDArray[np.bool_] | None = None

    def frequencies(self, context_length: int) -> tuple[NDArray[np.float32], float]:
        """inv_freq float32 [n_rot / 2] in radians per position, and the magnitude of cos and sin.

        context_length: tokens that a sequence can have. Raises ModelError for what rope_frequencies cannot use, and
        for frequencies that are no float32 numbers.
        """
        factors = self.long_factors if context_length > self.config.original_context_length else self.factors
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            frequencies, magnitude = rope_frequencies(self.config, factors)
        if not np.isfinite(frequencies).all():
            raise ModelError(f"rope.freq_base: {self.config.freq_base:g} gives frequencies beyond float32")
        if self.resting is not None:
            frequencies = np.where(self.resting, F32(0), frequencies)
        return np.ascontiguousarray(frequencies, F32), magnitude


def rope_frequencies(rope: RopeConfig, freq_factors: NDArray[np.float32] | None) -> tuple[NDArray[np.float32], float]:
    """Returns (inv_freq float32 [n_rot / 2] in radians per position, magnitude of cos and sin).

    Plain:   inv_freq[i] = freq_base^(-2i / n_rot) / freq_factors[i]
    Linear:  divided by the scaling factor
    YaRN:    (arXiv:2309.00071, section 3.2) fast pairs keep their frequency, slow ones are divided, a ramp in between;
             magnitude = attn_factor * (1 + 0.1 ln factor) / (1 + 0.1 log_multiplier ln factor)

    `freq_factors` is the tensor `rope_freqs.weight` ([n_rot / 2], None where the file has none). Raises ModelError for
    factors of another length or not positive, and for a base that YaRN cannot use.
    """
    pairs = rope.dimension_count // 2
    if pairs == 0:
        return np.empty(0, F32), 1.0
    step = F32(rope.freq_base) ** F32(-2.0 / rope.dimension_count)
    # A float32 product rather than powers: this is how the models' reference gets its angles, rounding included.
    steps = np.full(pairs, step, F32)
    steps[0] = 1
    unscaled = np.multiply.accumulate(steps, dtype=F32)
    if freq_factors is not None:
        if freq_factors.shape != (pairs,) or not np.all(np.isfinite(freq_factors) & (freq_factors > 0)):
            raise ModelError(
                f"rope_freqs.weight: expected {pairs} positive factors (rope.dimension_count / 2), "
                f"found {freq_factors.size}{'' if freq_factors.size != pairs else ', some not positive'}"
            )
        unscaled = unscaled / freq_factors.astype(F32)

    interpolated = unscaled * F32(1.0 / rope.scaling_factor)
    if rope.ext_factor == 0:
        return interpolated, rope.attn_factor
    if rope.freq_base <= 1:
        raise ModelError(f"rope.freq_base: YaRN scaling expects more than 1, found {rope.freq_base:g}")
    mix = F32(rope.ext_factor) * (1 - _yarn_ramp(rope, pairs))
    growth = 0.1 * math.log(rope.scaling_factor) if rope.scaling_factor > 1 else 0.0
    magnitude = rope.attn_factor * (1 + growth) / (1 + rope.log_multiplier * growth)
    return interpolated * (1 - mix) + unscaled * mix, magnitude


def _yarn_ramp(rope: RopeConfig, pairs: int) -> NDArray[np.float32]:
    """float32 [pairs]: 0 where a pair turns beta_fast times or more in the original context, 1 at beta_slow or less."""

    def pair_turning(rotations: float) -> float:
        wavelengths = rope.original_context_length / (rotations * 2 * math.pi)
        return rope.dimension_count * math.log(wavelengths) / (2 * math.log(rope.freq_base))

    low = max(0, math.floor(pair_turning(rope.beta_fast)))
    high = min(rope.dimension_count - 1, math.ceil(pair_turning(rope.beta_slow)))
    ramp = (np.arange(pairs, dtype=F32) - F32(low)) / F32(max(0.001, high - low))
    return np.clip(ramp, F32(0), F32(1))
