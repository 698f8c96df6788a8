"""Mirostat 1 and 2: what they draw from, and that the surprise comes to its target."""

import math

import numpy as np
import pytest
from tinyllm_engine.sampling import Sampler, SamplingParams
from tinyllm_engine.sampling.chain import Candidates
from tinyllm_engine.sampling.mirostat import mirostat_1, mirostat_2


def of_probabilities(*p):
    return Candidates(np.arange(len(p)), np.log(p))


def drawn(draw, candidates, *arguments):
    return {draw(candidates, *arguments, u)[0] for u in np.linspace(0, 0.999, 400)}


def test_version_2_draws_what_surprises_no_more_than_mu():
    scores = of_probabilities(0.5, 0.25, 0.2, 0.05)
    assert drawn(mirostat_2, scores, 4, 2.0) == {0, 1}
    assert drawn(mirostat_2, scores, 4, 2.4) == {0, 1, 2}
    assert drawn(mirostat_2, scores, 4, 0.5) == {0}  # nothing: then the best one
    assert drawn(mirostat_2, scores, 4, -3.0) == {0}
    assert mirostat_2(scores, 4, 2.0, 0.0) == (0, pytest.approx(math.log2(0.75 / 0.5)))
    assert mirostat_2(scores, 4, 2.0, 0.9) == (1, pytest.approx(math.log2(0.75 / 0.25)))


def test_version_1_estimates_how_many():
    ranks = np.arange(1, 1001)
    zipf = Candidates(np.arange(1000), -1.5 * np.log(ranks))
    # By the paper's formula: epsilon 0.5, (0.5 * 2^5 / (1 - 1000^-0.5))^(1 / 1.5) = 6.49
    assert drawn(mirostat_1, zipf, 1000, 5.0) == set(range(6))
    assert drawn(mirostat_1, zipf, 1000, 0.0) == {0}
    assert len(drawn(mirostat_1, zipf, 1000, 9.0)) > 30
    flat = Candidates(np.arange(5), np.zeros(5))
    assert drawn(mirostat_1, flat, 5, 5.0) == set(range(5))
    one = Candidates(np.arange(5), np.array([-np.inf, 3, -np.inf, -np.inf, -np.inf]))
    assert drawn(mirostat_1, one, 5, 5.0) == {1}
    assert mirostat_1(zipf, 1000, 5000.0, 0.0)[0] == 0


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_the_surprise_comes_to_its_target(version, tau):
    rng = np.random.default_rng(1)
    raw = (-1.1 * np.log(np.arange(1, 2001))).astype(np.float32)
    sampler = Sampler(SamplingParams(seed=7, temperature=1.0, mirostat=version, mirostat_tau=tau))
    surprises = []
    for _ in range(600):
        row = rng.permutation(raw)
        before = sampler._mu if sampler._mu is not None else 2 * tau
        sampler.sample(row, [])
        surprises.append(tau - (sampler._mu - before) / 0.1)
    assert np.mean(surprises[100:]) == pytest.approx(tau, abs=0.2)


def test_it_replaces_the_other_samplers_but_the_temperature_and_the_biases():
    raw = np.array([3, 2.9, 2.8, 0], np.float32)
    chosen = {"mirostat": 2, "mirostat_tau": 10.0, "top_k": 1, "repeat_penalty": 100.0}
    sampler = Sampler(SamplingParams(seed=1, **chosen))
    assert {sampler.sample(raw, [0, 1, 2])[0] for _ in range(300)} >= {0, 1, 2}
    cold = Sampler(SamplingParams(seed=1, temperature=0.0, **chosen))
    assert {cold.sample(raw, [])[0] for _ in range(20)} == {0}
    biased = Sampler(SamplingParams(seed=1, temperature=0.0, logit_bias={0: -math.inf}, **chosen))
    assert {biased.sample(raw, [])[0] for _ in range(20)} == {1}
