"""The figures by which llama.cpp checks its own samplers: ours must give the same."""

import math

import numpy as np
import pytest
from tinyllm_engine.sampling import SamplingParams
from tinyllm_engine.sampling import chain as c
from tinyllm_engine.sampling.params import SAMPLERS

RISING, FALLING, FIVE = (0.1, 0.2, 0.3, 0.4), (0.4, 0.3, 0.2, 0.1), (0.2,) * 5
ALONE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def after(p, tokens=(), breakers=None, chance=0.0, **params):
    """The probabilities after the chain; 0 for what has been removed."""
    scores = c.Candidates(np.arange(len(p)), np.log(np.array(p, np.float32)).astype(np.float64))
    around = c.Surroundings(tokens, breakers or {}, chance)
    found = c.run_chain(scores, SamplingParams(**{**ALONE, **params}), around)
    full = np.zeros(len(p))
    full[found.ids] = found.probabilities()
    return full


def close(expected, found):
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, RISING), (0.0, (0, 0, 0, 1))])
@pytest.mark.parametrize("dynamic", [{}, {"dynatemp_range": 0.0, "dynatemp_exponent": 1.0}])
def test_temperature(temperature, expected, dynamic):
    close(expected, after(RISING, temperature=temperature, **dynamic))


@pytest.mark.parametrize(
    ("k", "expected"), [(1, (0, 0, 0, 1)), (3, (0, 0.22222, 0.33333, 0.44444)), (4, RISING), (0, RISING)]
)
def test_top_k(k, expected):
    close(expected, after(RISING, top_k=k))


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.0, (0, 0, 0, 1)), (0.7, (0, 0, 0.428571, 0.571429)), (0.8, (0, 0.22222, 0.33333, 0.44444)), (1.0, RISING)],
)
def test_top_p(p, expected):
    close(expected, after(RISING, top_p=p))


@pytest.mark.parametrize(
    ("p", "left"), [(0.0, 4), (0.24, 4), (0.26, 3), (0.49, 3), (0.51, 2), (0.74, 2), (0.76, 1), (1.0, 1), (1.05, 1)]
)
def test_min_p(p, left):
    scores = c.Candidates(np.arange(4), np.log(RISING))
    found = c.min_p(scores, p) if p else scores
    kept = RISING[4 - left :]
    close(np.array(kept) / sum(kept), found.probabilities())


@pytest.mark.parametrize("threshold", [0.09, 0.19, 0.29, 0.39])
def test_xtc(threshold):
    """The reference does not renormalize here."""
    kept = {0.09: (0.1,), 0.19: (0.2, 0.1), 0.29: (0.3, 0.2, 0.1), 0.39: FALLING}[threshold]
    found = after(FALLING, xtc_probability=0.99, xtc_threshold=threshold, chance=0.5)
    close((0,) * (4 - len(kept)) + tuple(np.array(kept) / sum(kept)), found)
    close(FALLING, after(FALLING, xtc_probability=0.99, xtc_threshold=threshold, chance=0.995))


def test_typical():
    close((1, 0, 0, 0), after((0.97, 0.01, 0.01, 0.01), typical_p=0.5))
    close((0, 1 / 3, 1 / 3, 1 / 3), after((0.4, 0.2, 0.2, 0.2), typical_p=0.5))


@pytest.mark.parametrize(
    ("tokens", "repeat", "alphas", "expected"),
    [
        ((0,), 50.0, 0.0, (0, 0.25, 0.25, 0.25, 0.25)),
        ((0, 1, 2), 50.0, 0.0, (0, 0, 0, 0.5, 0.5)),
        ((0, 1, 2, 0, 0), 50.0, 0.0, (0, 0, 0, 0.5, 0.5)),
        ((0,), 1.0, 5.0, (0.000011, 0.249997, 0.249997, 0.249997, 0.249997)),
        ((0, 1, 2), 1.0, 5.0, (0.000023, 0.000023, 0.000023, 0.499966, 0.499966)),
        ((0, 1, 2, 0, 0), 1.0, 5.0, (0.000000, 0.000023, 0.000023, 0.499977, 0.499977)),
    ],
)
def test_penalties(tokens, repeat, alphas, expected):
    close(expected, after(FIVE, tokens, repeat_penalty=repeat, frequency_penalty=alphas, presence_penalty=alphas))


@pytest.mark.parametrize(
    ("size", "tokens", "multiplier", "allowed", "last_n", "breakers", "expected"),
    [
        (4, (0, 1), 1.0, 2, 4, {}, (0.25,) * 4),
        (4, (0, 1, 2, 0, 1), 1.0, 2, 5, {}, (0.296923, 0.296923, 0.109232, 0.296923)),
        (5, (0, 1, 3, 4, 0, 1), 1.0, 2, 6, {3: ((),)}, FIVE),
        (5, (0, 1, 2, 0, 1), 2.0, 2, 5, {}, (0.241818, 0.241818, 0.032727, 0.241818, 0.241818)),
        (5, (0, 1, 2, 3, 4, 0, 1), 1.0, 4, 7, {}, FIVE),
    ],
)
def test_dry(size, tokens, multiplier, allowed, last_n, breakers, expected):
    params = {
        "dry_multiplier": multiplier,
        "dry_base": 1.1,
        "dry_allowed_length": allowed,
        "dry_penalty_last_n": last_n,
    }
    close(expected, after((1 / size,) * size, tokens, breakers, **params))


@pytest.mark.parametrize(("n", "expected"), [(1.0, (0, 0, 0.428571, 0.571429)), (0.0, RISING), (3.0, RISING)])
def test_top_n_sigma(n, expected):
    close(expected, after(RISING, top_n_sigma=n))


VOCABULARY = 10_000
LETTERS = {"k": "top_k", "p": "top_p", "m": "min_p"}


@pytest.mark.parametrize(
    ("order", "k", "p", "m"),
    [
        ("k", 10_000, 1.0, 1.0),
        ("k", 1, 1.0, 1.0),
        ("p", 10_000, 1.0, 1.0),
        ("p", 10_000, 0.0, 1.0),
        ("m", 10_000, 1.0, 1.0),
        ("m", 10_000, 1.0, 1e-12),
        ("k", 100, 1.0, 1.0),
        ("p", 10_000, 0.0003, 1.0),
        ("p", 10_000, 0.8, 1.0),
        ("m", 10_000, 1.0, 9997.9 / 9999.0),
        ("m", 10_000, 1.0, 0.1),
        *((order, 100, 0.8, 0.1) for order in ("kp", "km", "pk", "pm", "mk", "mp")),
        ("mp", 100, 0.8, 9997.9 / 9999.0),
        *((order, 100, 0.8, 0.1) for order in ("kpm", "kmp", "pkm", "pmk", "mkp", "mpk")),
    ],
)
def test_queues(order, k, p, m):
    """Token i has a probability in proportion to i, so that how many are left follows by arithmetic."""
    with np.errstate(divide="ignore"):
        scores = c.Candidates(np.arange(VOCABULARY), np.log(np.arange(VOCABULARY, dtype=np.float32)).astype(np.float64))
    first = 0
    for end in range(1, len(order) + 1):
        names = [LETTERS[letter] for letter in order[:end]]
        assert set(names) <= set(SAMPLERS)
        params = SamplingParams(top_k=k, top_p=p, min_p=m, samplers=names)
        found = c.run_chain(scores, params, c.Surroundings([], {}, 0.0))
        before = VOCABULARY - first
        if order[end - 1] == "k":
            size = min(before, k)
        elif order[end - 1] == "p":
            total = VOCABULARY * (VOCABULARY - 1) // 2 - first * (first - 1) // 2
            needed, size = math.ceil(p * total), 1
            while (2 * VOCABULARY - 1 - size) * size // 2 < needed:
                size += 1
            size += VOCABULARY - size == 1 and p >= 1  # token 0 has no probability to be added
        else:
            size = min(before, VOCABULARY - math.ceil(m * (VOCABULARY - 1) - 1e-9))
            if m < 1e-4:
                size = before - (first == 0)  # all but token 0, whose probability is 0
        first = VOCABULARY - size
        assert found.ids.tolist() == list(range(first, VOCABULARY))
