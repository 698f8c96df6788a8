"""Each sampler by its definition, the order they run in, and what is drawn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine.errors import NonFiniteLogitsError, SamplingError
from tinyllm_engine.sampling import Sampler, SamplingParams
from tinyllm_engine.sampling import chain as c
from tinyllm_engine.sampling.sampler import DRAW, SECOND_DRAW, XTC, uniform

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
AROUND = c.Surroundings([], {}, 0.0)


def logits(*values):
    return np.array(values, np.float32)


def candidates(*scores):
    return c.Candidates(np.arange(len(scores)), np.array(scores, np.float64))


def of_probabilities(*p):
    return candidates(*np.log(p))


def ids(found):
    return found.ids.tolist()


def kept(scores, **params):
    """What the chain leaves possible, before the temperature."""
    found = c.run_chain(scores, SamplingParams(**{**OFF, "temperature": 1.0, **params}), AROUND)
    return found.ids[found.scores > -np.inf].tolist()


def sample(values, tokens=(), **params):
    return Sampler(SamplingParams(**{"seed": 1, **params})).sample(logits(*values), tokens)


# --- crops ------------------------------------------------------------------------------------------------------------


def test_top_k_keeps_the_highest_and_of_equals_the_first():
    scores = candidates(1, 3, 2, 3, 3)
    assert ids(c.top_k(scores, 2)) == [1, 3]
    assert ids(c.top_k(scores, 4)) == [1, 2, 3, 4]


@pytest.mark.parametrize("k", [0, -1, 5, 100])
def test_top_k_is_off_at_zero_below_it_and_from_the_vocabulary_on(k):
    assert kept(candidates(1, 3, 2, 3, 3), top_k=k) == [0, 1, 2, 3, 4]


def test_top_p_keeps_until_the_sum_is_reached():
    scores = of_probabilities(0.1, 0.5, 0.15, 0.25)
    assert kept(scores, top_p=0.74) == [1, 3]
    assert kept(scores, top_p=0.76) == [1, 2, 3]
    assert kept(candidates(0, 0), top_p=0.5) == [0]  # one half reaches one half
    assert kept(scores, top_p=1.0) == [0, 1, 2, 3]
    assert kept(scores, top_p=0.0) == [1]


def test_typical_keeps_what_surprises_as_expected_and_goes_past_the_sum():
    scores = of_probabilities(0.6, 0.2, 0.1, 0.1)
    entropy = -(0.6 * math.log(0.6) + 0.2 * math.log(0.2) + 0.2 * math.log(0.1))
    nearest = np.argsort([abs(-math.log(p) - entropy) for p in (0.6, 0.2, 0.1, 0.1)])
    assert kept(scores, typical_p=0.1) == [nearest[0]] == [1]
    assert kept(scores, typical_p=0.5) == [0, 1]
    assert kept(candidates(0, 0), typical_p=0.5) == [0, 1]  # one half does not exceed one half


def test_min_p_is_relative_to_the_best():
    scores = of_probabilities(0.5, 0.26, 0.2, 0.04)
    assert kept(scores, min_p=0.5) == [0, 1]
    assert kept(scores, min_p=0.1) == [0, 1, 2]
    assert kept(scores, min_p=1.0) == [0]


def test_top_n_sigma_counts_deviations_from_the_highest_of_what_is_possible():
    scores = candidates(-np.inf, 4, 2, 0, -2)  # of four: mean 1, deviation sqrt(5)
    assert kept(scores, top_n_sigma=0.9) == [1, 2]
    assert kept(scores, top_n_sigma=1.0) == [1, 2]
    assert kept(scores, top_n_sigma=2.0) == [1, 2, 3]
    assert kept(candidates(3), top_n_sigma=0.1) == [0]
    assert kept(candidates(3, 3, 3), top_n_sigma=0.1) == [0, 1, 2]


def test_xtc_excludes_the_best_but_the_last_of_them():
    scores = of_probabilities(0.3, 0.1, 0.4, 0.2)
    assert ids(c.xtc(scores, 0.15)) == [1, 3]
    assert ids(c.xtc(scores, 0.35)) == [0, 1, 2, 3]  # only one is above: nothing to exclude
    assert ids(c.xtc(of_probabilities(0.5, 0.5), 0.5)) == [1]  # of equals the first goes
    assert ids(c.xtc(candidates(1), 0.1)) == [0]


def test_xtc_happens_as_often_as_it_is_said_to():
    params = SamplingParams(seed=4, temperature=0.0, xtc_probability=0.25, xtc_threshold=0.2)
    sampler = Sampler(params)
    raw = np.log([0.6, 0.3, 0.1]).astype(np.float32)
    drawn = [sampler.sample(raw, [])[0] for _ in range(2000)]
    assert set(drawn) == {0, 1}
    assert drawn.count(1) == pytest.approx(500, abs=60)


def test_dynamic_temperature_goes_by_entropy():
    flat, sure = candidates(1, 1, 1, 1), candidates(50, 0, 0, 0)
    assert c.temper_by_entropy(flat, 1.0, 0.5, 1.0).scores == pytest.approx(1 / 1.5)
    assert c.temper_by_entropy(sure, 1.0, 0.5, 1.0).scores[0] == pytest.approx(50 / 0.5)
    assert c.temper_by_entropy(sure, 0.5, 0.75, 1.0).scores[1] == -np.inf  # down to 0: the highest alone
    half = of_probabilities(0.5 - 1e-13, 0.5 - 1e-13, 1e-13, 1e-13)
    assert c.temper_by_entropy(half, 1.0, 0.5, 2.0).scores == pytest.approx(half.scores / (0.5 + 0.5**2))
    one = candidates(7)
    assert c.temper_by_entropy(one, 1.0, 0.5, 1.0) is one


def test_each_crop_works_on_what_the_former_left():
    scores = of_probabilities(0.4, 0.3, 0.2, 0.1)
    assert kept(scores, top_k=2, top_p=0.6) == [0, 1]  # of 0.7: 0.57, then 1.0
    assert kept(scores, top_k=2, top_p=0.5) == [0]
    assert kept(scores, top_k=2, top_p=0.6, samplers="top_p;top_k") == [0, 1]
    assert kept(scores, top_k=3, top_p=0.6, samplers="top_p;top_k") == [0, 1]
    assert kept(scores, top_k=1, top_p=0.6, samplers="top_p") == [0, 1]
    assert kept(scores, top_k=1, samplers=()) == [0, 1, 2, 3]


def test_an_early_temperature_counts_for_what_follows():
    scores = of_probabilities(0.4, 0.3, 0.2, 0.1)
    assert kept(scores, temperature=0.25, min_p=0.5) == [0, 1, 2]
    assert kept(scores, temperature=0.25, min_p=0.5, samplers="temperature;min_p") == [0]
    assert kept(scores, temperature=0.0, samplers="temperature;top_k", top_k=3) == [0]


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=80),
    st.permutations(["penalties", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]),
    st.integers(-1, 90),
    *[st.floats(0, 1)] * 4,
    st.floats(0, 3),
    st.floats(0, 2),
)
def test_the_chain_always_leaves_something(values, order, k, top_p, min_p, typical_p, threshold, sigma, temperature):
    params = SamplingParams(
        top_k=k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        xtc_probability=1.0,
        xtc_threshold=threshold,
        top_n_sigma=sigma,
        temperature=temperature,
        dynatemp_range=temperature / 2,
        samplers=order,
    )
    found = c.run_chain(candidates(*[value / 4 for value in values]), params, AROUND)
    assert found.possible
    assert ids(found) == sorted(set(ids(found)))
    assert not np.isnan(found.scores).any()
    if k > 0:
        assert found.ids.size <= k


@given(st.lists(st.integers(-8, 8), min_size=1, max_size=60), st.floats(0, 0.999))
def test_top_p_agrees_with_its_definition(values, top_p):
    scores = candidates(*[value / 2 for value in values])
    p = scores.probabilities()
    found = ids(c.top_p(scores, top_p))
    dropped = np.delete(p, found)
    assert p[found].sum() >= top_p - 1e-9
    assert p[found].sum() - p[found].min() < top_p + 1e-9 or len(found) == 1
    assert dropped.size == 0 or dropped.max() <= p[found].min()


def test_a_large_flat_vocabulary_is_cropped_like_a_small_one():
    scores = np.zeros(5000)
    scores[7] = 1.0
    half = ids(c.top_p(candidates(*scores), 0.5))
    assert 7 in half
    assert half[-1] == len(half) - 1  # equals: the first ids
    assert math.e + len(half) - 1 >= 0.5 * (math.e + 4999) > math.e + len(half) - 2


# --- penalties and biases ---------------------------------------------------------------------------------------------


def penalized(values, tokens, last_n=64, repeat=1.0, presence=0.0, frequency=0.0):
    params = SamplingParams(
        repeat_penalty=repeat,
        presence_penalty=presence,
        frequency_penalty=frequency,
        repeat_last_n=last_n,
        samplers="penalties",
    )
    return c.run_chain(candidates(*values), params, c.Surroundings(tokens, {}, 0.0)).scores.tolist()


def test_repetition_divides_positive_and_multiplies_other_logits():
    assert penalized([4, -4, 0, 3], [0, 1, 2], repeat=2.0) == [2, -8, 0, 3]


def test_presence_counts_once_and_frequency_each_time():
    assert penalized([4, 4, 4], [0, 0, 0, 2], presence=1.0, frequency=0.5) == [1.5, 4, 2.5]


@pytest.mark.parametrize(("last_n", "expected"), [(0, [4, 4, 4]), (2, [4, 2, 2]), (-1, [2, 2, 2]), (9, [2, 2, 2])])
def test_penalties_look_at_the_last_n_tokens(last_n, expected):
    assert penalized([4, 4, 4], [0, 1, 2], last_n, repeat=2.0) == expected


def test_tokens_outside_the_vocabulary_and_huge_logits_do_no_harm():
    assert np.isfinite(penalized([3e38, 1], [0, -1, 2, 99], repeat=0.01)).all()


def test_penalties_concern_candidates_only_and_do_not_revive_them():
    scores = c.Candidates(np.array([2, 5, 9]), np.array([1.0, -np.inf, 3.0]))
    assert c.penalize(scores, [0, 3, 5, 9, 12], 2.0, 0.5, 0.0).scores.tolist() == [1.0, -np.inf, 1.0]


def test_biases_are_added_and_can_forbid():
    assert c.add_bias(candidates(1, 2, 3), [(0, 1.5), (2, -math.inf), (8, 1.0)]).scores.tolist() == [2.5, 2, -np.inf]
    assert sample([5, 1, 2], temperature=0.0, logit_bias={0: -math.inf})[0] == 2
    assert sample([5, 1, 2], temperature=0.0, logit_bias={1: 4.5})[0] == 1


def test_a_bias_that_forbids_everything_is_an_error():
    with pytest.raises(SamplingError, match="sampling: every token is ruled out"):
        sample([5, 1], logit_bias={0: -math.inf, 1: -math.inf})


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


@pytest.mark.parametrize("crop", [{}, {"top_k": 4}])
def test_draws_follow_the_probabilities(crop):
    sampler = Sampler(SamplingParams(seed=11, temperature=1.0, **{**OFF, **crop}))
    raw = np.log([0.5, 0.3, 0.15, 0.05]).astype(np.float32)
    counts = np.bincount([sampler.sample(raw, [])[0] for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(counts, [0.5, 0.3, 0.15, 0.05], atol=0.03)


def test_temperature_flattens_after_the_crops():
    sampler = Sampler(SamplingParams(seed=11, temperature=100.0, top_k=0, top_p=0.75, min_p=0.0))
    raw = np.log([0.5, 0.3, 0.15, 0.05]).astype(np.float32)
    counts = np.bincount([sampler.sample(raw, [])[0] for _ in range(2000)], minlength=4) / 2000
    np.testing.assert_allclose(counts, [0.5, 0.5, 0, 0], atol=0.05)


def test_what_is_ruled_out_is_never_drawn():
    scores = candidates(-np.inf, 0.0, -np.inf, 0.0, -np.inf)
    assert c.draw(scores, 0.0, 5) == 1
    assert c.draw(scores, 0.5, 5) == 3
    assert c.draw(scores, 1 - 2**-53, 5) == 3
    assert c.draw(scores, 1 - 2**-53, 99) == 3


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


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 40), st.integers(0, 3))
def test_random_numbers_lie_in_the_unit_interval(seed, index, stream):
    assert 0 <= uniform(seed, index, stream) < 1


def test_random_numbers_are_spread_evenly_along_seeds_indices_and_streams():
    for numbers in (
        [uniform(3, i) for i in range(4000)],
        [uniform(s, 0) for s in range(4000)],
        [(uniform(3, i, XTC) + uniform(3, i, DRAW)) % 1 for i in range(4000)],
        [(uniform(3, i, SECOND_DRAW) - uniform(3, i, DRAW)) % 1 for i in range(4000)],
    ):
        counts, _ = np.histogram(numbers, 10, (0, 1))
        assert counts.min() > 320
        assert counts.max() < 480


# --- what must be allowed ---------------------------------------------------------------------------------------------


class Only:
    """Allows some ids."""

    def __init__(self, *allowed):
        self.allowed, self.masks, self.accepted = set(allowed), 0, []

    def allows(self, id):
        return id in self.allowed

    def mask(self):
        self.masks += 1
        return np.isin(np.arange(10), list(self.allowed))

    def accept(self, id):
        self.accepted.append(id)


def constrained(raw, constraint, **params):
    return Sampler(SamplingParams(**{"seed": 2, "temperature": 1.0, **OFF, **params}), constraint=constraint)


def test_a_token_that_is_allowed_is_not_drawn_again():
    raw = logits(0, 9, 1, 0)
    only = Only(1)
    sampler = constrained(raw, only, temperature=0.0)
    assert sampler.sample(raw, [])[0] == 1
    assert (only.masks, only.accepted) == (0, [1])


def test_the_second_draw_is_among_what_is_allowed_and_independent_of_the_first():
    raw = np.log([0.5, 0.25, 0.2, 0.05]).astype(np.float32)
    only = Only(1, 2)
    sampler = constrained(raw, only)
    drawn = [sampler.sample(raw, [])[0] for _ in range(3000)]
    assert only.accepted == drawn
    assert set(drawn) == {1, 2}
    assert drawn.count(1) / 3000 == pytest.approx(0.25 / 0.45, abs=0.03)
    assert only.masks == pytest.approx(0.55 * 3000, abs=150)


def test_crops_apply_to_what_is_allowed():
    raw = logits(9, 8, 7, 1)
    sampler = constrained(raw, Only(2, 3), top_k=1)
    assert {sampler.sample(raw, [])[0] for _ in range(20)} == {2}


def test_mirostat_learns_once_for_a_token_drawn_twice():
    raw = logits(9, 1, 1, 1)
    sampler = constrained(raw, Only(1, 2), mirostat=2, mirostat_tau=3.0, mirostat_eta=0.5)
    _, logprob = sampler.sample(raw, [])
    assert logprob < -7
    assert sampler._mu == pytest.approx(6.0 - 0.5 * (1.0 - 3.0))
