"""The sampling parameters, the live block of them, and the NumPy chain."""

import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine.errors import NonFiniteLogitsError, SamplingError
from tinyllm_engine.sampling import (
    SHARED_DTYPE,
    Sampler,
    SamplingParams,
    SharedSampling,
    penalize,
    survivors,
    uniform,
)

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}


def logits(*values):
    return np.array(values, np.float32)


def kept(values, **params):
    return survivors(np.array(values, np.float64), SamplingParams(**{**OFF, **params})).tolist()


def sample(values, tokens=(), **params):
    return Sampler(SamplingParams(**{"seed": 1, **params})).sample(logits(*values), tokens)


def of_probabilities(*p):
    return np.log(p)


# --- parameters -------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_reference():
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (0.8, 40, 0.95, 0.05)
    assert (params.typical_p, params.repeat_penalty, params.repeat_last_n) == (1.0, 1.0, 64)
    assert (params.presence_penalty, params.frequency_penalty, params.seed) == (0.0, 0.0, None)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -0.1, "temperature: expected a number from 0 to 100, found -0.1"),
        ("temperature", math.nan, "temperature: expected a number from 0 to 100, found nan"),
        ("temperature", "hot", "temperature: expected a number from 0 to 100, found 'hot'"),
        ("top_p", 1.01, "top_p: expected a number from 0 to 1, found 1.01"),
        ("min_p", math.inf, "min_p: expected a number from 0 to 1, found inf"),
        ("typical_p", -1, "typical_p: expected a number from 0 to 1, found -1"),
        ("repeat_penalty", 0, "repeat_penalty: expected a number from 0.01 to 100, found 0"),
        ("presence_penalty", 101, "presence_penalty: expected a number from -100 to 100, found 101"),
        ("frequency_penalty", True, "frequency_penalty: expected a number from -100 to 100, found True"),
        ("top_k", 1.5, "top_k: expected a whole number from -1 to 2147483647, found 1.5"),
        ("top_k", None, "top_k: expected a whole number from -1 to 2147483647, found None"),
        ("repeat_last_n", -2, "repeat_last_n: expected a whole number from -1 to 2147483647, found -2"),
        ("seed", -2, "seed: expected a whole number from -1 to 18446744073709551615, found -2"),
        ("seed", 1 << 64, "seed: expected a whole number from -1 to 18446744073709551615, found 18446744073709551616"),
    ],
)
def test_a_value_outside_its_range_is_refused_in_one_line(name, value, message):
    with pytest.raises(SamplingError) as caught:
        SamplingParams(**{name: value})
    assert str(caught.value) == message


def test_seed_minus_one_means_fresh_entropy():
    assert SamplingParams(seed=-1) == SamplingParams(seed=None)


def test_numbers_of_other_types_become_plain_ones():
    params = SamplingParams(temperature=1, top_k=np.int32(7), top_p=np.float32(0.5))
    assert (type(params.temperature), type(params.top_k), type(params.top_p)) == (float, int, float)


# --- the live block ---------------------------------------------------------------------------------------------------


def test_an_update_is_seen_at_the_address():
    shared = SharedSampling(SamplingParams(temperature=0.5))
    view = np.frombuffer(
        (np.ctypeslib.ctypes.c_char * SHARED_DTYPE.itemsize).from_address(shared.address), SHARED_DTYPE
    )
    version = shared.version
    assert view["temperature"][0] == 0.5
    shared.update(temperature=1.25, top_k=-1)
    assert view["temperature"][0] == 1.25
    assert view["top_k"][0] == 0
    assert shared.params == SamplingParams(temperature=1.25, top_k=-1)
    assert shared.version == version + 1


def test_a_refused_update_changes_nothing():
    shared = SharedSampling()
    before = shared.record.tobytes()
    with pytest.raises(SamplingError, match="top_p"):
        shared.update(temperature=1.0, top_p=2.0)
    with pytest.raises(SamplingError, match="heat: no such sampling parameter"):
        shared.update(heat=1)
    assert shared.record.tobytes() == before
    assert shared.params == SamplingParams()


def test_no_update_of_several_threads_is_lost():
    shared = SharedSampling()
    start = shared.version

    def turn(name):
        for step in range(200):
            shared.update(**{name: step / 200})

    threads = [threading.Thread(target=turn, args=(name,)) for name in ("temperature", "top_p", "min_p")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.version == start + 600
    assert (shared.params.temperature, shared.params.top_p, shared.params.min_p) == (199 / 200,) * 3
    assert shared.record["min_p"][0] == 199 / 200


def test_the_sampler_reads_the_block_at_every_token():
    shared = SharedSampling(SamplingParams(seed=3, temperature=0.0))
    sampler = Sampler(shared)
    flat = np.zeros(64, np.float32)
    assert [sampler.sample(flat, [])[0] for _ in range(5)] == [0] * 5
    shared.update(temperature=1.0, **OFF)
    assert len({sampler.sample(flat, [])[0] for _ in range(20)}) > 5


# --- crops ------------------------------------------------------------------------------------------------------------


def test_top_k_keeps_the_highest_and_of_equals_the_first():
    assert kept([1, 3, 2, 3, 3], top_k=2) == [1, 3]
    assert kept([1, 3, 2, 3, 3], top_k=4) == [1, 2, 3, 4]


@pytest.mark.parametrize("k", [0, -1, 5, 100])
def test_top_k_is_off_at_zero_below_it_and_from_the_vocabulary_on(k):
    assert kept([1, 3, 2, 3, 3], top_k=k) == [0, 1, 2, 3, 4]


def test_top_p_keeps_until_the_sum_is_reached():
    scores = of_probabilities(0.1, 0.5, 0.15, 0.25)
    assert kept(scores, top_p=0.74) == [1, 3]
    assert kept(scores, top_p=0.76) == [1, 2, 3]
    assert kept([0, 0], top_p=0.5) == [0]  # one half reaches one half
    assert kept(scores, top_p=1.0) == [0, 1, 2, 3]
    assert kept(scores, top_p=0.0) == [1]


def test_typical_keeps_what_surprises_as_expected_and_goes_past_the_sum():
    scores = of_probabilities(0.6, 0.2, 0.1, 0.1)
    entropy = -(0.6 * math.log(0.6) + 0.2 * math.log(0.2) + 0.2 * math.log(0.1))
    nearest = np.argsort([abs(-math.log(p) - entropy) for p in (0.6, 0.2, 0.1, 0.1)])
    assert kept(scores, typical_p=0.1) == [nearest[0]] == [1]
    assert kept(scores, typical_p=0.5) == [0, 1]
    assert kept([0, 0], typical_p=0.5) == [0, 1]  # one half does not exceed one half


def test_min_p_is_relative_to_the_best():
    scores = of_probabilities(0.5, 0.26, 0.2, 0.04)
    assert kept(scores, min_p=0.5) == [0, 1]
    assert kept(scores, min_p=0.1) == [0, 1, 2]
    assert kept(scores, min_p=1.0) == [0]


def test_each_crop_works_on_what_the_former_left():
    scores = of_probabilities(0.4, 0.3, 0.2, 0.1)
    assert kept(scores, top_k=2, top_p=0.6) == [0, 1]  # of 0.7: 0.57, then 1.0
    assert kept(scores, top_k=2, top_p=0.5) == [0]


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=80),
    st.integers(-1, 90),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_the_crops_always_leave_something(values, top_k, top_p, min_p, typical_p):
    ids = kept([v / 4 for v in values], top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p)
    assert ids
    assert ids == sorted(set(ids))
    if top_k > 0:
        assert len(ids) <= top_k


@given(st.lists(st.integers(-8, 8), min_size=1, max_size=60), st.floats(0, 0.999))
def test_top_p_agrees_with_its_definition(values, top_p):
    scores = np.array(values, np.float64) / 2
    p = np.exp(scores) / np.exp(scores).sum()
    ids = kept(scores, top_p=top_p)
    dropped = np.delete(p, ids)
    assert p[ids].sum() >= top_p - 1e-9
    assert p[ids].sum() - p[ids].min() < top_p + 1e-9 or len(ids) == 1
    assert dropped.size == 0 or dropped.max() <= p[ids].min()


def test_a_large_flat_vocabulary_is_cropped_like_a_small_one():
    scores = np.zeros(5000)
    scores[7] = 1.0
    half = survivors(scores, SamplingParams(**{**OFF, "top_p": 0.5}))
    assert 7 in half
    assert half[-1] == len(half) - 1  # equals: the first ids
    assert math.e + len(half) - 1 >= 0.5 * (math.e + 4999) > math.e + len(half) - 2


# --- penalties --------------------------------------------------------------------------------------------------------


def test_repetition_divides_positive_and_multiplies_other_logits():
    params = SamplingParams(repeat_penalty=2.0)
    raw = logits(4, -4, 0, 3)
    assert penalize(raw, [0, 1, 2], params).tolist() == [2, -8, 0, 3]
    assert raw.tolist() == [4, -4, 0, 3]


def test_presence_counts_once_and_frequency_each_time():
    params = SamplingParams(presence_penalty=1.0, frequency_penalty=0.5)
    assert penalize(logits(4, 4, 4), [0, 0, 0, 2], params).tolist() == [1.5, 4, 2.5]


@pytest.mark.parametrize(("last_n", "expected"), [(0, [4, 4, 4]), (2, [4, 2, 2]), (-1, [2, 2, 2]), (9, [2, 2, 2])])
def test_penalties_look_at_the_last_n_tokens(last_n, expected):
    params = SamplingParams(repeat_penalty=2.0, repeat_last_n=last_n)
    assert penalize(logits(4, 4, 4), [0, 1, 2], params).tolist() == expected


def test_tokens_outside_the_vocabulary_and_huge_logits_do_no_harm():
    params = SamplingParams(repeat_penalty=0.01)
    assert np.isfinite(penalize(logits(3e38, 1), [0, -1, 2, 99], params)).all()


# --- draws ------------------------------------------------------------------------------------------------------------


def test_temperature_zero_takes_the_first_highest():
    assert sample([1, 5, 5, 2], temperature=0.0)[0] == 1
    assert sample([1, 5, 5, 2], temperature=9e-6)[0] == 1


def test_greedy_minds_the_penalties():
    assert sample([1, 5, 4.9, 2], tokens=[1], temperature=0.0, repeat_penalty=1.1)[0] == 2


def test_a_tiny_temperature_is_as_good_as_greedy_and_stays_finite():
    assert sample([-3e38, 3e38, 0], temperature=1e-5, **OFF)[0] == 1


def test_logprob_is_of_the_raw_logits():
    choice, logprob = sample([0, math.log(3), -50], tokens=[1], temperature=0.0, repeat_penalty=5.0)
    assert choice == 1
    assert logprob == pytest.approx(math.log(0.75), abs=1e-6)


def test_draws_follow_the_probabilities():
    sampler = Sampler(SamplingParams(seed=11, temperature=1.0, **OFF))
    raw = of_probabilities(0.5, 0.3, 0.15, 0.05).astype(np.float32)
    counts = np.bincount([sampler.sample(raw, [])[0] for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(counts, [0.5, 0.3, 0.15, 0.05], atol=0.03)


def test_temperature_flattens_after_the_crops():
    sampler = Sampler(SamplingParams(seed=11, temperature=100.0, top_k=0, top_p=0.75, min_p=0.0))
    raw = of_probabilities(0.5, 0.3, 0.15, 0.05).astype(np.float32)
    counts = np.bincount([sampler.sample(raw, [])[0] for _ in range(2000)], minlength=4) / 2000
    np.testing.assert_allclose(counts, [0.5, 0.5, 0, 0], atol=0.05)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_logits_are_an_error_with_their_number(bad):
    with pytest.raises(NonFiniteLogitsError, match="found 2 of 4 NaN or infinite"):
        sample([1, bad, 2, bad], temperature=0.0)


def test_a_seed_gives_the_same_tokens_ten_times():
    raw = np.random.default_rng(5).standard_normal((50, 300)).astype(np.float32)

    def run():
        sampler = Sampler(SamplingParams(seed=42, temperature=1.5))
        return [sampler.sample(row, [])[0] for row in raw]

    assert len({tuple(run()) for _ in range(10)}) == 1
    assert run() != [int(row.argmax()) for row in raw]


def test_without_a_seed_a_fresh_one_is_taken_and_reported():
    seeds = {Sampler(SamplingParams()).seed for _ in range(8)}
    assert len(seeds) == 8
    assert all(0 <= seed < 1 << 32 for seed in seeds)
    assert Sampler(SamplingParams(seed=7)).seed == 7


def test_random_numbers_are_pinned():
    """Recorded transcripts name a seed: the numbers behind it must not change from version to version."""
    assert [uniform(0, i) for i in range(3)] == pytest.approx(
        [0.8833108082136426, 0.43152799704850997, 0.026433771592597743], abs=1e-15
    )


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 40))
def test_random_numbers_lie_in_the_unit_interval(seed, index):
    assert 0 <= uniform(seed, index) < 1


def test_random_numbers_are_spread_evenly_along_seeds_and_indices():
    for numbers in ([uniform(3, i) for i in range(4000)], [uniform(s, 0) for s in range(4000)]):
        counts, _ = np.histogram(numbers, 10, (0, 1))
        assert counts.min() > 320
        assert counts.max() < 480
