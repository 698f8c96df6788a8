"""RoPE frequencies against the formulas written out in float64."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine.config import RopeConfig
from tinyllm_engine.errors import ModelError
from tinyllm_engine.rope import Rope, rope_frequencies


def rope(**changes):
    """As the config has it: every value settled, no scaling unless it says so."""
    facts = RopeConfig(
        dimension_count=64,
        freq_base=10000.0,
        scaling_type="none",
        scaling_factor=1.0,
        original_context_length=512,
        attn_factor=1.0,
        ext_factor=float(changes.get("scaling_type") == "yarn"),
    )
    return replace(facts, **changes)


def plain(dimension_count=64, base=10000.0):
    return base ** (-2.0 * np.arange(dimension_count // 2) / dimension_count)


def test_plain_frequencies_fall_from_one_to_almost_one_over_the_base():
    inv_freq, magnitude = rope_frequencies(rope(), None)
    assert inv_freq.dtype == np.float32
    assert inv_freq.shape == (32,)
    assert inv_freq[0] == 1.0
    assert magnitude == 1.0
    np.testing.assert_allclose(inv_freq, plain(), rtol=4e-6)


def test_frequencies_are_a_running_float32_product():
    inv_freq, _ = rope_frequencies(rope(), None)
    step = np.float32(10000.0) ** np.float32(-2.0 / 64)
    expected = np.float32(1)
    for found in inv_freq:
        assert found == expected
        expected = expected * step


def test_frequency_factors_divide():
    factors = np.linspace(1, 8, 32, dtype=np.float32)
    inv_freq, _ = rope_frequencies(rope(), factors)
    np.testing.assert_allclose(inv_freq, plain() / factors, rtol=4e-6)


@pytest.mark.parametrize(
    "factors",
    [np.ones(31, np.float32), np.ones(33, np.float32), np.zeros(32, np.float32), np.full(32, np.nan, np.float32)],
    ids=["short", "long", "zero", "nan"],
)
def test_unusable_frequency_factors_are_refused_by_name(factors):
    with pytest.raises(ModelError, match=r"rope_freqs\.weight: expected 32 positive"):
        rope_frequencies(rope(), factors)


def test_linear_scaling_divides_every_frequency():
    inv_freq, magnitude = rope_frequencies(rope(scaling_type="linear", scaling_factor=4.0), None)
    np.testing.assert_allclose(inv_freq, plain() / 4, rtol=4e-6)
    assert magnitude == 1.0


def test_yarn_keeps_fast_pairs_and_interpolates_slow_ones():
    facts = rope(scaling_type="yarn", scaling_factor=4.0, original_context_length=64)
    inv_freq, magnitude = rope_frequencies(facts, None)

    def pair_turning(rotations):
        return 64 * math.log(64 / (rotations * 2 * math.pi)) / (2 * math.log(10000.0))

    low, high = max(0, math.floor(pair_turning(32))), math.ceil(pair_turning(1))
    for i, found in enumerate(inv_freq):
        slow = min(1.0, max(0.0, (i - low) / (high - low)))
        np.testing.assert_allclose(found, plain()[i] * (slow / 4 + (1 - slow)), rtol=1e-5)
    assert magnitude == pytest.approx(1 + 0.1 * math.log(4))


def test_yarn_without_extrapolation_is_linear():
    yarn = rope_frequencies(rope(scaling_type="yarn", scaling_factor=4.0, ext_factor=0.0), None)
    linear = rope_frequencies(rope(scaling_type="linear", scaling_factor=4.0), None)
    np.testing.assert_array_equal(yarn[0], linear[0])
    assert yarn[1] == linear[1] == 1.0


def test_yarn_refuses_a_base_of_one():
    with pytest.raises(ModelError, match=r"rope\.freq_base"):
        rope_frequencies(rope(scaling_type="yarn", scaling_factor=4.0, freq_base=1.0), None)


def test_frequencies_beyond_float32_are_refused():
    with pytest.raises(ModelError, match=r"rope\.freq_base: 1e-44 gives frequencies beyond float32"):
        Rope(rope(dimension_count=64, freq_base=1e-44, original_context_length=512), interleaved=False).frequencies(512)


@given(
    st.sampled_from([2, 4, 64, 80, 128]),
    st.floats(1.5, 1e7),
    st.sampled_from(["linear", "yarn"]),
    st.floats(1, 64),
)
def test_scaling_never_speeds_a_pair_up(dimension_count, base, scaling_type, factor):
    facts = rope(dimension_count=dimension_count, freq_base=base, scaling_type=scaling_type, scaling_factor=factor)
    inv_freq, magnitude = rope_frequencies(facts, None)
    unscaled, _ = rope_frequencies(rope(dimension_count=dimension_count, freq_base=base), None)
    assert np.all(inv_freq <= unscaled * (1 + 1e-6))
    assert np.all(inv_freq >= unscaled / factor * (1 - 1e-5))
    assert magnitude >= 1
