"""The native chain draws what the NumPy chain draws, or leaves it to that."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinyllm_engine.errors import NonFiniteLogitsError, SamplingError
from tinyllm_engine.sampling import Sampler, SamplingParams, SharedSampling
from tinyllm_engine.sampling.chain import is_native
from tinyllm_engine.sampling.native import NativeSampler

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}

params = st.builds(
    SamplingParams,
    seed=st.integers(0, (1 << 64) - 1),
    temperature=st.sampled_from([0.0, 1e-5, 0.3, 0.8, 1.0, 2.5, 100.0]),
    top_k=st.sampled_from([-1, 0, 1, 2, 5, 40, 300, 10_000]),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.95, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.05, 0.5, 1.0]),
    repeat_penalty=st.sampled_from([0.5, 1.0, 1.1, 5.0]),
    repeat_last_n=st.sampled_from([-1, 0, 1, 64]),
    presence_penalty=st.sampled_from([0.0, -1.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, -0.5, 0.25]),
    logit_bias=st.dictionaries(st.integers(1, 90), st.sampled_from([-math.inf, -3.0, 0.5, 20.0]), max_size=4),
    samplers=st.sampled_from(["penalties;top_k;top_p;min_p;temperature", "top_k;temperature", "top_p", ""]),
)


def assert_twins(raw, chosen, recent, draws=3):
    numpy_sampler, native_sampler = Sampler(chosen), NativeSampler(chosen)
    assert native_sampler.native
    for _ in range(draws):
        expected, found = numpy_sampler.sample(raw, recent), native_sampler.sample(raw, recent)
        assert found[0] == expected[0]
        assert found[1] == pytest.approx(expected[1], abs=3e-6)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(params, st.integers(1, 400), st.floats(0.01, 12), st.integers(0, 1 << 32))
def test_same_choice_on_random_logits(chosen, vocabulary, spread, entropy):
    rng = np.random.default_rng(entropy)
    raw = (rng.standard_normal(vocabulary) * spread).astype(np.float32)
    assert_twins(raw, chosen, rng.integers(0, vocabulary, 100).tolist())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(params, st.lists(st.integers(-6, 6), min_size=1, max_size=300))
def test_same_choice_where_logits_are_equal(chosen, values):
    raw = np.array(values, np.float32) / 2
    assert_twins(raw, chosen, [0, 1, 2, 1, len(values) + 5, -1])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(params, st.floats(0.01, 12), st.integers(0, 1 << 32))
def test_same_choice_over_a_real_vocabulary(chosen, spread, entropy):
    rng = np.random.default_rng(entropy)
    raw = (rng.standard_normal(49_153) * spread).astype(np.float32)
    raw[rng.integers(0, raw.size, 12)] += np.float32(10)
    assert_twins(raw, chosen, rng.integers(0, raw.size, 70).tolist(), draws=2)


@pytest.mark.parametrize(
    "raw",
    [
        np.zeros(1),
        np.full(5000, -3.5),
        np.array([3e38, -3e38, 0, 1]),
        np.arange(4096.0),
        -np.arange(4096.0),
        np.concatenate((np.full(70, 2.0), np.full(70, 1.0))),
    ],
    ids=["one", "flat", "huge", "rising", "falling", "steps"],
)
@pytest.mark.parametrize(
    "crops",
    [
        {},
        OFF,
        {"temperature": 0.0},
        {**OFF, "top_p": 0.3},
        {**OFF, "min_p": 0.1},
        {**OFF, "top_k": 65},
        {"temperature": 0.0, "repeat_penalty": 0.01},
        {**OFF, "temperature": 1e-5, "logit_bias": {3: -math.inf}},
    ],
    ids=lambda crops: " ".join(f"{k}={v}" for k, v in crops.items()) or "default",
)
def test_same_choice_in_odd_cases(raw, crops):
    assert_twins(raw.astype(np.float32), SamplingParams(seed=9, **crops), [0, 0, 1], draws=5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("vocabulary", [1, 64, 1000])
def test_non_finite_logits_are_the_same_error(bad, vocabulary):
    raw = np.zeros(vocabulary, np.float32)
    raw[-1] = bad
    with pytest.raises(NonFiniteLogitsError) as expected:
        Sampler(SamplingParams()).sample(raw, [])
    with pytest.raises(NonFiniteLogitsError) as found:
        NativeSampler(SamplingParams()).sample(raw, [])
    assert str(found.value) == str(expected.value)


def test_a_bias_that_forbids_everything_is_the_same_error():
    with pytest.raises(SamplingError, match="sampling: every token is ruled out"):
        NativeSampler(SamplingParams(logit_bias={0: -math.inf})).sample(np.zeros(1, np.float32), [])


def test_the_logits_stay_as_they_are():
    raw = np.random.default_rng(2).standard_normal(500).astype(np.float32)
    before = raw.copy()
    chosen = SamplingParams(repeat_penalty=2.0, logit_bias={5: -math.inf, 7: 3.0})
    NativeSampler(chosen).sample(raw, list(range(100)))
    np.testing.assert_array_equal(raw, before)
    raw.flags.writeable = False
    NativeSampler(chosen).sample(raw, list(range(100)))


def test_counts_of_one_token_do_not_leak_into_the_next():
    raw = np.array([4, 3.9, 0], np.float32)
    sampler = NativeSampler(SamplingParams(temperature=0.0, frequency_penalty=1.0))
    assert [sampler.sample(raw, recent)[0] for recent in ([0, 0], [], [1], [0])] == [1, 0, 0, 1]


def test_random_numbers_go_on_where_a_supply_ends():
    raw = np.zeros(50, np.float32)
    chosen = SamplingParams(seed=8, temperature=1.0, **OFF)
    expected, found = Sampler(chosen), NativeSampler(chosen)
    assert [found.sample(raw, [])[0] for _ in range(300)] == [expected.sample(raw, [])[0] for _ in range(300)]


# --- what the native chain has ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "native"),
    [
        ({}, True),
        ({"temperature": 0.0, "repeat_penalty": 1.1, "logit_bias": {3: 1.0}, "ignore_eos": True}, True),
        ({"samplers": "temperature"}, True),
        ({"samplers": "temperature;top_k"}, False),
        ({"samplers": "temperature;top_k", "top_k": 0}, True),
        ({"samplers": "temperature;top_k", "temperature": 1.0}, True),
        ({"samplers": "top_k;top_k"}, False),
        ({"dry_multiplier": 0.8}, False),
        ({"dry_multiplier": 0.8, "dry_base": 0.5}, True),
        ({"top_n_sigma": 1.0}, False),
        ({"xtc_probability": 0.5}, False),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.6}, True),
        ({"typical_p": 0.9}, False),
        ({"dynatemp_range": 0.5}, False),
        ({"mirostat": 2}, False),
    ],
)
def test_what_is_native(chosen, native):
    assert is_native(SamplingParams(**chosen)) is native


@pytest.mark.parametrize(
    "chosen",
    [
        {"typical_p": 0.9},
        {"xtc_probability": 0.5, "xtc_threshold": 0.05},
        {"top_n_sigma": 1.5},
        {"dry_multiplier": 0.8, "dry_allowed_length": 1},
        {"mirostat": 1},
        {"mirostat": 2},
        {"dynatemp_range": 0.5},
        {"samplers": "temperature;min_p;top_k;penalties", "repeat_penalty": 1.3},
    ],
)
def test_everything_else_is_drawn_as_the_numpy_chain_draws(chosen):
    rng = np.random.default_rng(3)
    rows = (rng.standard_normal((20, 300)) * 3).astype(np.float32)
    chosen = SamplingParams(seed=6, **chosen)
    expected, found, tokens = Sampler(chosen), NativeSampler(chosen), [1, 2, 3, 1, 2]
    for row in rows:
        one, other = expected.sample(row, tokens), found.sample(row, tokens)
        assert other == one
        tokens.append(one[0])


def test_a_change_holds_from_the_next_token_on():
    shared = SharedSampling(SamplingParams(seed=3, temperature=0.0))
    sampler = NativeSampler(shared)
    flat = np.zeros(64, np.float32)
    assert [sampler.sample(flat, [])[0] for _ in range(3)] == [0] * 3
    shared.update(temperature=1.0, **OFF)
    assert len({sampler.sample(flat, [])[0] for _ in range(20)}) > 5
    shared.update(logit_bias={9: 50.0})
    assert sampler.sample(flat, [])[0] == 9
    shared.update(logit_bias={9: 50.0}, xtc_probability=1.0, xtc_threshold=0.3, top_k=1)
    assert sampler.alone is False
    assert sampler.sample(flat, [])[0] == 9
