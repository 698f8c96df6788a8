"""llama.cpp's chain of samplers in plain NumPy.

Each sampler takes candidates and returns those it leaves. `kernels/sample.py` is the native twin of the common ones and
must leave the same; this is the text to read and the oracle of the tests. What the samplers compute is double precision
except the logits themselves: those are float32 before and after a penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.agreed import F32_MAX, GREEDY_BELOW
from tinyllm_engine.sampling.dry import Breakers, penalty_of, repetitions
from tinyllm_engine.sampling.params import SamplingParams

HEAD = 1024  # candidates that are sorted first: a sort of the whole vocabulary takes milliseconds
# The samplers of the native chain, in the order it has them.
NATIVE_ORDER = ("penalties", "top_k", "top_p", "min_p", "temperature")


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens that may be drawn; a score of -inf rules its token out but counts it among the candidates."""

    ids: NDArray[np.int64]  # [candidates], rising
    scores: NDArray[np.float64]  # [candidates] logits, divided by the temperature once that has been applied

    def keep(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Candidates:
        return Candidates(self.ids[chosen], self.scores[chosen])

    def with_scores(self, scores: NDArray[np.float64]) -> Candidates:
        return Candidates(self.ids, scores)

    @property
    def possible(self) -> int:
        """How many are not ruled out."""
        return int(np.count_nonzero(self.scores > -np.inf))

    def probabilities(self) -> NDArray[np.float64]:
        """float64 [candidates], of sum 1"""
        _, weight, total = weigh(self.scores)
        return weight / total


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What samplers look at besides the candidates."""

    tokens: Sequence[int] | NDArray[np.int32]  # so far, prompt included
    breakers: Breakers
    chance: float  # a random number in [0, 1) for XTC


def run_chain(candidates: Candidates, params: SamplingParams, around: Surroundings) -> Candidates:
    """What all samplers of `params.samplers`, in their order, leave. At least one token remains possible."""
    for name in active(params):
        candidates = STEPS[name](candidates, params, around)
    return candidates


def active(params: SamplingParams) -> tuple[str, ...]:
    """The samplers that do something with these values, in their order."""
    return tuple(name for name in params.samplers if not OFF[name](params))


def is_native(params: SamplingParams) -> bool:
    """Whether the native chain does what these parameters ask for."""
    if params.mirostat or params.dynatemp_range > 0:
        return False
    places = [NATIVE_ORDER.index(name) if name in NATIVE_ORDER else -1 for name in active(params)]
    return all(a < b for a, b in zip([-1, *places], places, strict=False))


def penalize(
    candidates: Candidates, tokens: Sequence[int] | NDArray[np.int32], repeat: float, presence: float, frequency: float
) -> Candidates:
    """The candidates with those among `tokens` made less likely."""
    ids, counts = np.unique(np.asarray(tokens, np.int64), return_counts=True)
    places, inside = places_of(candidates, ids)
    places, counts = places[inside], counts[inside]
    value = candidates.scores[places]
    value = np.where(value <= 0, value * repeat, value / repeat) - (counts * frequency + presence)
    return changed(candidates, places, value)


def add_bias(candidates: Candidates, bias: Sequence[tuple[int, float]]) -> Candidates:
    """The candidates with each bias added to its token's score."""
    places, inside = places_of(candidates, np.array([id for id, _ in bias], np.int64))
    amounts = np.array([amount for _, amount in bias])[inside]
    return changed(candidates, places[inside], candidates.scores[places[inside]] + amounts)


def top_k(candidates: Candidates, k: int) -> Candidates:
    """The k highest; of equals those of the lowest ids."""
    return candidates.keep(largest(candidates.scores, k)) if 0 < k < candidates.ids.size else candidates


def top_p(candidates: Candidates, p: float) -> Candidates:
    """The fewest, from the highest down, that reach p of the probability together."""
    value, weight, total = weigh(candidates.scores)
    return candidates.keep(heaviest(value, weight, p * total))


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Those with at least p times the probability of the best one, which always stays."""
    bound = min(math.log(p), 0.0)
    return candidates.keep(candidates.scores - candidates.scores.max() >= bound)


def typical(candidates: Candidates, p: float) -> Candidates:
    """Those whose surprise is nearest to the expected one, until they exceed p together (Meister et al., 2022)."""
    value, weight, total = weigh(candidates.scores)
    possible = weight > 0
    log_p = np.where(possible, value - math.log(total), 0.0)
    entropy = -float(weight @ log_p) / total
    target = np.nextafter(p * total, np.inf)  # to be exceeded, not only reached
    order = np.where(possible, -np.abs(-log_p - entropy), -np.inf)
    return candidates.keep(heaviest(order, weight, target))


def top_n_sigma(candidates: Candidates, n: float) -> Candidates:
    """Rules out what lies more than n standard deviations below the highest (Tang et al., 2024)."""
    scores = candidates.scores
    valid = scores[scores > -np.inf]
    if candidates.ids.size <= 1 or not valid.size:
        return candidates
    return candidates.with_scores(np.where(scores < valid.max() - n * valid.std(), -np.inf, scores))


def xtc(candidates: Candidates, threshold: float) -> Candidates:
    """Without all that have at least the threshold's probability but the last one of them."""
    if candidates.ids.size < 2:
        return candidates
    p = candidates.probabilities()
    order = np.argsort(-p, kind="stable")
    above = int(np.count_nonzero(p >= threshold))
    return candidates.keep(np.sort(order[above - 1 :])) if above > 1 else candidates


def temper(candidates: Candidates, temperature: float) -> Candidates:
    """Divides by the temperature; at 0 rules out all but the first highest."""
    scores = candidates.scores
    if temperature >= GREEDY_BELOW:
        return candidates.with_scores(scores / temperature)
    alone = np.full(scores.size, -np.inf)
    best = int(scores.argmax())
    alone[best] = scores[best]
    return candidates.with_scores(alone)


def temper_by_entropy(candidates: Candidates, temperature: float, width: float, exponent: float) -> Candidates:
    """A temperature from temperature - width, where one token is sure, to temperature + width, where all are equal."""
    if candidates.ids.size <= 1:
        return candidates
    p = candidates.probabilities()
    p = p[p > 0]
    share = min(1.0, max(0.0, -float(p @ np.log(p)) / math.log(candidates.ids.size)))
    lowest = max(0.0, temperature - width)
    return temper(candidates, lowest + (temperature + width - lowest) * share**exponent)


def avoid_repetitions(candidates: Candidates, params: SamplingParams, around: Surroundings) -> Candidates:
    """DRY (p-e-w, 2024): the longer the repetition that a token continues, the less likely it gets."""
    lengths = repetitions(around.tokens, params, around.breakers)
    if not lengths:
        return candidates
    ids = np.array(sorted(lengths), np.int64)
    places, inside = places_of(candidates, ids)
    penalty = np.array([penalty_of(lengths[id], params) for id in ids.tolist()])
    return changed(candidates, places[inside], candidates.scores[places[inside]] - penalty[inside])


def _penalties(candidates: Candidates, params: SamplingParams, around: Surroundings) -> Candidates:
    recent = latest(around.tokens, params.repeat_last_n)
    return penalize(candidates, recent, params.repeat_penalty, params.presence_penalty, params.frequency_penalty)


def _xtc(candidates: Candidates, params: SamplingParams, around: Surroundings) -> Candidates:
    return xtc(candidates, params.xtc_threshold) if around.chance <= params.xtc_probability else candidates


def _temperature(candidates: Candidates, params: SamplingParams, around: Surroundings) -> Candidates:
    if params.dynatemp_range > 0:
        return temper_by_entropy(candidates, params.temperature, params.dynatemp_range, params.dynatemp_exponent)
    return temper(candidates, params.temperature)


Step = Callable[[Candidates, SamplingParams, Surroundings], Candidates]
STEPS: dict[str, Step] = {
    "penalties": _penalties,
    "dry": avoid_repetitions,
    "top_n_sigma": lambda candidates, params, around: top_n_sigma(candidates, params.top_n_sigma),
    "top_k": lambda candidates, params, around: top_k(candidates, params.top_k),
    "typ_p": lambda candidates, params, around: typical(candidates, params.typical_p),
    "top_p": lambda candidates, params, around: top_p(candidates, params.top_p),
    "min_p": lambda candidates, params, around: min_p(candidates, params.min_p),
    "xtc": _xtc,
    "temperature": _temperature,
}
# With what values a sampler changes nothing.
OFF: dict[str, Callable[[SamplingParams], bool]] = {
    "penalties": lambda p: (
        p.repeat_last_n == 0 or (p.repeat_penalty, p.presence_penalty, p.frequency_penalty) == (1.0, 0.0, 0.0)
    ),
    "dry": lambda p: p.dry_multiplier == 0 or p.dry_base < 1 or p.dry_penalty_last_n == 0,
    "top_n_sigma": lambda p: p.top_n_sigma <= 0,
    "top_k": lambda p: p.top_k <= 0,
    "typ_p": lambda p: p.typical_p >= 1,
    "top_p": lambda p: p.top_p >= 1,
    "min_p": lambda p: p.min_p <= 0,
    "xtc": lambda p: p.xtc_probability <= 0 or p.xtc_threshold > 0.5,
    "temperature": lambda p: p.temperature == 1 and p.dynatemp_range <= 0,
}


def latest(tokens: Sequence[int] | NDArray[np.int32], last_n: int) -> Sequence[int] | NDArray[np.int32]:
    """The last n tokens, all for -1."""
    return tokens if last_n < 0 else tokens[max(0, len(tokens) - last_n) :]


def places_of(candidates: Candidates, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(index of each id among the candidates, whether it is one of them and not ruled out)"""
    places = np.minimum(np.searchsorted(candidates.ids, ids), candidates.ids.size - 1)
    return places, (candidates.ids[places] == ids) & (candidates.scores[places] > -np.inf)


def changed(candidates: Candidates, places: NDArray[np.int64], values: NDArray[np.float64]) -> Candidates:
    """With other scores in some places: as float32, and -inf or finite."""
    scores = candidates.scores.copy()
    ruled_out = values == -np.inf
    scores[places] = np.where(ruled_out, -np.inf, np.clip(values, -F32_MAX, F32_MAX).astype(np.float32))
    return candidates.with_scores(scores)


def draw(candidates: Candidates, u: float, vocab_size: int) -> int:
    """The index of one of the candidates: softmax of the scores at u in [0, 1).

    They are lined up by falling scores where something has been cropped, else by their ids.
    """
    scores = candidates.scores
    order = np.argsort(-scores, kind="stable") if scores.size < vocab_size else np.arange(scores.size)
    sums = np.cumsum(np.exp(scores[order] - scores.max()))
    place = int(np.searchsorted(sums, u * sums[-1], side="right"))
    return int(order[min(place, int(np.searchsorted(sums, sums[-1])))])  # rounding must not lead past the last possible


def weigh(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """(scores relative to the highest, their probabilities times the third value, the sum of those)."""
    value = scores - scores.max()
    weight = np.exp(value)
    return value, weight, float(weight.sum())


def largest(scores: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Indices of the k highest scores (0 < k <= size), in rising order; of equals the first."""
    bound = np.partition(scores, scores.size - k)[scores.size - k]
    above = np.flatnonzero(scores > bound)
    equal = np.flatnonzero(scores == bound)[: k - above.size]
    return np.sort(np.concatenate((above, equal)))


def heaviest(scores: NDArray[np.float64], weight: NDArray[np.float64], target: float) -> NDArray[np.int64]:
    """Indices of the fewest highest scores whose weights together reach the target, in rising order.

    All, if rounding keeps even the sum of all below the target.
    """
    if scores.size > HEAD:
        top = largest(scores, HEAD)
        if weight[top].sum() > target:
            return top[heaviest(scores[top], weight[top], target)]
    order = np.argsort(-scores, kind="stable")
    count = int(np.searchsorted(np.cumsum(weight[order]), target)) + 1
    return np.sort(order[:count])
