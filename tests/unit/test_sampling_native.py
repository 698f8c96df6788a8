"""The native chain chooses what the NumPy chain chooses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from tinyllm_engine import sampling
from tinyllm_engine.errors import NonFiniteLogitsError
from tinyllm_engine.kernels import sample as native
from tinyllm_engine.sampling import Sampler, SamplingParams, SharedSampling

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}

params = st.builds(
    SamplingParams,
    seed=st.integers(0, (1 << 64) - 1),
    temperature=st.sampled_from([0.0, 1e-5, 0.3, 0.8, 1.0, 2.5, 100.0]),
    top_k=st.sampled_from([-1, 0, 1, 2, 5, 40, 300, 10_000]),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.95, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.05, 0.5, 1.0]),
    typical_p=st.sampled_from([0.0, 0.2, 0.7, 0.95, 1.0]),
    repeat_penalty=st.sampled_from([0.5, 1.0, 1.1, 5.0]),
    repeat_last_n=st.sampled_from([-1, 0, 1, 64]),
    presence_penalty=st.sampled_from([0.0, -1.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, -0.5, 0.25]),
)


@njit
def survivors(raw, shared, scratch):
    return native.survivors(raw, native.find_peaks(raw, scratch.peaks), shared[0], scratch)


@njit
def uniform(seed, index):
    return native.uniform(seed, index)


@njit
def exp(x):
    return [native.exp(v) for v in x]


@njit
def exp32(x):
    return [native.exp32(v) for v in x]


def native_survivors(raw, chosen):
    scratch = native.new_scratch(raw.size)
    count = survivors(raw, SharedSampling(chosen).record, scratch)
    return scratch.ids[:count].tolist()


def assert_twins(raw, chosen, recent, draws=3):
    assert native_survivors(raw, chosen) == sampling.survivors(raw.astype(np.float64), chosen).tolist()
    numpy_sampler, native_sampler = Sampler(chosen), native.NativeSampler(chosen)
    for _ in range(draws):
        expected, found = numpy_sampler.sample(raw, recent), native_sampler.sample(raw, recent)
        assert found[0] == expected[0]
        assert found[1] == pytest.approx(expected[1], abs=3e-6)


@settings(max_examples=150, deadline=None)
@given(params, st.integers(1, 400), st.floats(0.01, 12), st.integers(0, 1 << 32))
def test_same_choice_on_random_logits(chosen, vocabulary, spread, entropy):
    rng = np.random.default_rng(entropy)
    raw = (rng.standard_normal(vocabulary) * spread).astype(np.float32)
    assert_twins(raw, chosen, rng.integers(0, vocabulary, 100).tolist())


@settings(max_examples=150, deadline=None)
@given(params, st.lists(st.integers(-6, 6), min_size=1, max_size=300))
def test_same_choice_where_logits_are_equal(chosen, values):
    raw = np.array(values, np.float32) / 2
    assert_twins(raw, chosen, [0, 1, 2, 1, len(values) + 5, -1])


@settings(max_examples=25, deadline=None)
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
        {**OFF, "typical_p": 0.3},
        {**OFF, "min_p": 0.1},
        {**OFF, "top_k": 65},
        {"temperature": 0.0, "typical_p": 0.5, "repeat_penalty": 0.01},
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
        native.NativeSampler(SamplingParams()).sample(raw, [])
    assert str(found.value) == str(expected.value)


def test_the_logits_stay_as_they_are():
    raw = np.random.default_rng(2).standard_normal(500).astype(np.float32)
    before = raw.copy()
    native.NativeSampler(SamplingParams(repeat_penalty=2.0)).sample(raw, list(range(100)))
    np.testing.assert_array_equal(raw, before)


def test_counts_of_one_token_do_not_leak_into_the_next():
    raw = np.array([4, 3.9, 0], np.float32)
    sampler = native.NativeSampler(SamplingParams(temperature=0.0, frequency_penalty=1.0))
    assert [sampler.sample(raw, recent)[0] for recent in ([0, 0], [], [1], [0])] == [1, 0, 0, 1]


def test_the_block_is_read_at_every_token():
    shared = SharedSampling(SamplingParams(seed=3, temperature=0.0))
    sampler = native.NativeSampler(shared)
    flat = np.zeros(64, np.float32)
    assert [sampler.sample(flat, [])[0] for _ in range(3)] == [0] * 3
    shared.update(temperature=1.0, **OFF)
    assert len({sampler.sample(flat, [])[0] for _ in range(20)}) > 5


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 40))
@settings(deadline=None)
def test_same_random_numbers(seed, index):
    assert uniform(np.uint64(seed), np.uint64(index)) == sampling.uniform(seed, index)


@pytest.mark.parametrize(("function", "dtype", "tolerance"), [(exp, np.float64, 3e-16), (exp32, np.float32, 3e-7)])
def test_exponential(function, dtype, tolerance):
    x = np.concatenate((np.linspace(-80, 0, 4001), -np.geomspace(1e-12, 1, 100))).astype(dtype)
    np.testing.assert_allclose(function(x), np.exp(x.astype(np.float64)), rtol=tolerance)


@pytest.mark.parametrize(("function", "lowest"), [(exp, -1e300), (exp32, np.float32(-3e38))])
def test_exponential_of_the_hopeless_is_next_to_nothing(function, lowest):
    assert 0 <= function(np.array([lowest]))[0] < 1e-37
