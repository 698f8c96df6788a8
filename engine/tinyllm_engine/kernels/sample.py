"""The sampling chain as one native call per token; chooses the tokens that `sampling.Sampler` chooses.

Nothing here sorts the vocabulary. The highest score of every 64 is found in the pass that checks for NaN; the k-th
highest of those 'peaks' is a lower bound for the k-th highest score, so that one look at few blocks leaves a handful of
candidates. These stay in the order of their ids, and each crop is a quickselect over weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

from tinyllm_engine.jit import compiled, native
from tinyllm_engine.sampling import (
    F32_MAX,
    GREEDY_BELOW,
    SHARED_DTYPE,
    Sampler,
    SamplingParams,
    SharedSampling,
    non_finite,
)

BLOCK = 64  # scores under one peak
HEAD = 256  # candidates that top-p without top-k tries first
F32, I32, U64 = np.float32, np.int32, np.uint64
HIGHEST_32 = F32(F32_MAX)
LEAN: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# Sums and maxima over the vocabulary may take any order, so that they become vectors.
vectors = njit(**LEAN, fastmath={"reassoc", "contract", "nsz"})
fused = njit(**LEAN, fastmath={"contract"})
finite_vectors = njit(**LEAN, fastmath={"nnan", "nsz"})


class Scratch(NamedTuple):
    """Memory of one sampler, allocated once: v = vocabulary size. Only `counts` has to be zero between calls."""

    scores: NDArray[np.float32]  # [v] penalized logits
    peaks: NDArray[np.float32]  # [ceil(v / BLOCK)] highest score of each block
    counts: NDArray[np.int32]  # [v] occurrences among the recent tokens
    ids: NDArray[np.int32]  # [v] candidates, rising
    value: NDArray[np.float64]  # [v] their scores
    weight: NDArray[np.float64]  # [v] their probabilities times a constant
    surprise: NDArray[np.float64]  # [v] what typical sampling orders by
    order: NDArray[np.int32]  # [v] a permutation of the candidates


def new_scratch(vocab_size: int) -> Scratch:
    def array(dtype: Any, size: int = vocab_size) -> NDArray[Any]:
        return np.zeros(size, dtype)

    peaks = array(np.float32, -(-vocab_size // BLOCK))
    i32, f64 = np.int32, np.float64
    return Scratch(array(np.float32), peaks, array(i32), array(i32), array(f64), array(f64), array(f64), array(i32))


class NativeSampler(Sampler):
    """A Sampler whose chain runs as machine code."""

    def __init__(self, params: SamplingParams | SharedSampling) -> None:
        super().__init__(params)
        self._scratch = new_scratch(0)

    def scratch(self, vocab_size: int) -> Scratch:
        """Working memory for logits of this size, kept between draws."""
        if self._scratch.scores.size != vocab_size:
            self._scratch = new_scratch(vocab_size)
        return self._scratch

    def recent(self, tokens: Sequence[int] | NDArray[np.int32], room: int = 0) -> NDArray[np.int32]:
        """The tokens that penalties may look at, and room for more behind them."""
        last_n = self.shared.params.repeat_last_n
        seen = tokens if last_n < 0 else tokens[max(0, len(tokens) - last_n) :]
        recent = np.zeros(len(seen) + room, np.int32)
        recent[: len(seen)] = seen
        return recent

    def sample(self, logits: NDArray[np.float32], tokens: Sequence[int] | NDArray[np.int32]) -> tuple[int, float]:
        recent = self.recent(tokens)
        seed, index, scratch = U64(self.seed), U64(self.drawn), self.scratch(logits.size)
        choice, logprob = sample(np.ascontiguousarray(logits), self.shared.record, seed, index, recent, scratch)
        if choice < 0:
            raise non_finite(-choice, logits.size)
        self.drawn += 1
        return choice, logprob


SCRATCH = types.NamedTuple([from_dtype(array.dtype)[::1] for array in new_scratch(0)], Scratch)
ANSWER = types.Tuple([types.int64, types.float64])
SHARED = types.Array(from_dtype(SHARED_DTYPE), 1, "C")


@compiled(ANSWER(types.float32[::1], SHARED, types.uint64, types.uint64, types.int32[::1], SCRATCH))
def sample(logits, shared, seed, index, recent, scratch):
    """`choose` for callers in Python."""
    return choose(logits, shared, seed, index, recent, scratch)


@native
def choose(logits, shared, seed, index, recent, scratch):
    """Returns (id, log of its probability before penalties, crops and temperature), or (-bad, 0.0).

    logits float32 [v]; shared SHARED_DTYPE [1]; seed, index uint64: the index-th draw of that seed; recent int32 [any]:
    the latest tokens, of which the last repeat_last_n count; scratch: Scratch for v. `bad` is the number of logits that
    are not finite.
    """
    params = shared[0]
    bad = count_non_finite(logits)
    if bad > 0:
        return -bad, 0.0
    highest = find_peaks(logits, scratch.peaks)
    total = sum_exp(logits, highest)
    scores, top = logits, highest
    if penalize(logits, params, recent, scratch):
        scores = scratch.scores
        top = find_peaks(scores, scratch.peaks)
    if params.temperature < GREEDY_BELOW and params.typical_p >= 1:
        choice = first_of(scores, top, scratch.peaks)  # no other crop can remove the highest score
    else:
        count = survivors(scores, top, params, scratch)
        drawn = draw(scratch.value, count, params.temperature, uniform(seed, index), scratch.weight)
        choice = np.int64(scratch.ids[drawn])
    return choice, np.float64(logits[choice]) - np.float64(highest) - math.log(total)


# --- passes over the whole vocabulary ---------------------------------------------------------------------------------


@native
def count_non_finite(logits):
    bad = 0
    for i in range(logits.size):
        bad += not abs(logits[i]) <= HIGHEST_32
    return bad


@finite_vectors
def find_peaks(scores, peaks):
    """Fills peaks with the highest score of each block; returns the highest of all."""
    highest = F32(-np.inf)
    for block in range(scores.size // BLOCK):
        peak = F32(-np.inf)
        for i in range(block * BLOCK, block * BLOCK + BLOCK):  # a fixed length: unrolled into vectors
            peak = max(peak, scores[i])
        peaks[block] = peak
        highest = max(highest, peak)
    if scores.size % BLOCK:
        peak = F32(-np.inf)
        for i in range(scores.size // BLOCK * BLOCK, scores.size):
            peak = max(peak, scores[i])
        peaks[-1] = peak
        highest = max(highest, peak)
    return highest


@vectors
def sum_exp(scores, highest):
    """Sum of e^(score - highest), to 1e-6 of it."""
    total = 0.0
    for start in range(0, scores.size, BLOCK):
        part = F32(0)
        for i in range(start, min(start + BLOCK, scores.size)):
            part += exp32(scores[i] - highest)
        total += np.float64(part)
    return total


@vectors
def sum_of(weight, count):
    total = 0.0
    for j in range(count):
        total += weight[j]
    return total


@vectors
def sum_exp64(scores, highest):
    """Sum of e^(score - highest) as exact as NumPy's: what decides a crop must not differ."""
    total = 0.0
    for i in range(scores.size):
        total += exp(np.float64(scores[i]) - np.float64(highest))
    return total


@native
def first_of(scores, top, peaks):
    """The lowest id that has the score `top`, the highest of all."""
    block = 0
    while peaks[block] < top:
        block += 1
    i = block * BLOCK
    while scores[i] < top:
        i += 1
    return i


@native
def penalize(logits, params, recent, scratch):
    """Fills scratch.scores with penalized logits; returns False, leaving it alone, where no penalty is in force."""
    repeat, presence, frequency = params.repeat_penalty, params.presence_penalty, params.frequency_penalty
    last_n = params.repeat_last_n
    if (repeat == 1 and presence == 0 and frequency == 0) or last_n == 0:
        return False
    scores, counts = scratch.scores, scratch.counts
    window = recent[max(0, recent.size - last_n) :] if last_n > 0 else recent
    for i in range(scores.size):
        scores[i] = logits[i]
    for token in window:
        if 0 <= token < scores.size:
            counts[token] += 1
    for token in window:
        if 0 <= token < scores.size and counts[token] > 0:
            value = np.float64(scores[token])
            value = value * repeat if value <= 0 else value / repeat
            value -= counts[token] * frequency + presence
            scores[token] = min(max(value, -F32_MAX), F32_MAX)
            counts[token] = 0
    return True


# --- candidates -------------------------------------------------------------------------------------------------------


@native
def survivors(scores, top, params, scratch):
    """Puts what top-k, typical, top-p and min-p leave into scratch.ids and .value; returns how many. Never none.

    `top` is the highest score.
    """
    peaks, ids, value, weight = scratch.peaks, scratch.ids, scratch.value, scratch.weight
    typical, nucleus, k = params.typical_p < 1, params.top_p < 1, params.top_k
    everything = np.float64(-np.inf)
    mass = 0.0  # of all scores, where they are more than the candidates that top-p looks at
    if 0 < k < scores.size:
        count = gather(scores, peaks, peak_bound(k, scratch), ids, value)
        fill(weight, count, 1.0)
        count = keep_heaviest(value, count, np.float64(k), scratch)
    elif nucleus and not typical:
        mass = sum_exp64(scores, top)
        count = gather(scores, peaks, peak_bound(np.int64(HEAD), scratch), ids, value)
        if weigh(value, count, 1.0, weight) <= params.top_p * mass:
            count = gather(scores, peaks, everything, ids, value)
    elif params.min_p > 0 and not typical:
        count = gather(scores, peaks, np.float64(top) + math.log(params.min_p) - 1e-3, ids, value)
    else:
        count = gather(scores, peaks, everything, ids, value)

    if typical:
        total = weigh(value, count, 1.0, weight)
        log_total = math.log(total) + highest_of(value, count)
        entropy = 0.0
        for j in range(count):
            entropy -= weight[j] * (value[j] - log_total)
        entropy /= total
        for j in range(count):
            scratch.surprise[j] = -abs(log_total - value[j] - entropy)
        # that much is to be exceeded, not only reached
        count = keep_heaviest(scratch.surprise, count, np.nextafter(params.typical_p * total, np.inf), scratch)
    if nucleus:
        total = weigh(value, count, 1.0, weight)
        count = keep_heaviest(value, count, params.top_p * max(mass, total), scratch)
    if params.min_p > 0:
        bound = math.log(params.min_p)
        highest = highest_of(value, count)
        kept = 0
        for j in range(count):
            if value[j] - highest >= bound:
                ids[kept], value[kept] = ids[j], value[j]
                kept += 1
        count = kept
    return count


@native
def draw(value, count, temperature, u, weight):
    """Index of a candidate: the first highest at temperature 0, else softmax(value / temperature) at u in [0, 1)."""
    if temperature < GREEDY_BELOW:
        highest = highest_of(value, count)
        j = 0
        while value[j] < highest:
            j += 1
        return j
    target = u * weigh(value, count, temperature, weight)
    reached = 0.0
    for j in range(count):
        reached += weight[j]
        if reached > target:
            return j
    return count - 1


@native
def peak_bound(k, scratch):
    """A score that at least k scores reach: the k-th highest peak; -inf where there are fewer peaks."""
    peaks, value = scratch.peaks, scratch.value
    if k >= peaks.size:
        return np.float64(-np.inf)
    for j in range(peaks.size):
        value[j] = peaks[j]
    fill(scratch.weight, peaks.size, 1.0)
    count = heaviest(value, scratch.weight, peaks.size, np.float64(k), scratch.order)
    return value[scratch.order[count - 1]]


@native
def gather(scores, peaks, bound, ids, value):
    """Makes all scores of at least `bound` candidates; returns how many."""
    count = 0
    for block in range(peaks.size):
        if peaks[block] >= bound:
            for i in range(block * BLOCK, min((block + 1) * BLOCK, scores.size)):
                if scores[i] >= bound:
                    ids[count] = i
                    value[count] = scores[i]
                    count += 1
    return count


@native
def weigh(value, count, temperature, weight):
    """Fills weight with e^((value - highest) / temperature); returns its sum."""
    highest = highest_of(value, count)
    for j in range(count):
        weight[j] = exp((value[j] - highest) / temperature)
    return sum_of(weight, count)


@native
def highest_of(value, count):
    highest = value[0]
    for j in range(1, count):
        highest = value[j] if value[j] > highest else highest
    return highest


@native
def fill(array, count, value):
    for j in range(count):
        array[j] = value


@native
def keep_heaviest(key, count, target, scratch):
    """Leaves the fewest candidates of highest key whose weights together reach the target; returns how many."""
    kept = heaviest(key, scratch.weight, count, target, scratch.order)
    if kept == count:
        return count
    ids, value, last = scratch.ids, scratch.value, scratch.order[kept - 1]
    bound = key[last]
    to = 0
    for j in range(count):
        if key[j] > bound or (key[j] == bound and j <= last):
            ids[to], value[to] = ids[j], value[j]
            to += 1
    return to


@native
def heaviest(key, weight, count, target, order):
    """Quickselect by weight: fills order so that its first n indices are those of the highest keys (of equals the
    first) and the n-th is the last among them, n being the smallest number whose weights together reach the target.

    Returns n. If even all do not reach it, n is `count` and the order means nothing.
    """
    for j in range(count):
        order[j] = j
    low, high, missing = 0, count, target  # the n-th is in order[low:high], where `missing` is still to be taken
    while high - low > 1:
        middle = (low + high) // 2
        pivot = order[middle]
        order[middle] = order[high - 1]
        above, taken = low, 0.0
        for i in range(low, high - 1):
            j = order[i]
            if key[j] > key[pivot] or (key[j] == key[pivot] and j < pivot):
                order[i] = order[above]
                order[above] = j
                above += 1
                taken += weight[j]
        order[high - 1] = order[above]
        order[above] = pivot
        if taken >= missing and above > low:
            high = above
        elif taken + weight[pivot] >= missing:
            return above + 1
        else:
            missing -= taken + weight[pivot]
            low = above + 1
    return min(low + 1, count)


@native
def uniform(seed, index):
    """The index-th random number of a seed, in [0, 1), as in `sampling.uniform`."""
    z = mix(seed) + (index + U64(1)) * U64(0x9E3779B97F4A7C15)
    return np.float64(mix(z) >> U64(11)) * 2.0**-53


@native
def mix(z):
    z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return z ^ (z >> U64(31))


# --- e^x without a branch or a table, so that loops over it become vectors --------------------------------------------

# x = n ln 2 + r with |r| <= ln(2) / 2. Adding and subtracting ROUND (1.5 * 2^52 or 2^23) rounds to a whole n, and the
# low bits of the sum are n, ready to be added to the exponent of e^r. ln 2 comes in two parts, the first with few bits,
# so that n times it is exact.
LOG2_E, ROUND = 1.4426950408889634, 6755399441055744.0
LN_2_HIGH, LN_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOG2_E_32, ROUND_32, LN_2_HIGH_32, LN_2_LOW_32 = F32(LOG2_E), F32(12582912), F32(0.693359375), F32(-2.12194440e-4)
LOWEST_32, C0, C2, C3, C4, C5, C6 = F32(-87), F32(1), F32(1 / 2), F32(1 / 6), F32(1 / 24), F32(1 / 120), F32(1 / 720)


@fused
def exp(x):
    """e^x for a double x <= 0, to about one unit in the last place."""
    x = max(x, -708.0)
    shifted = x * LOG2_E + ROUND
    n = shifted - ROUND
    r = x - n * LN_2_HIGH - n * LN_2_LOW
    p = 1.0 / 6227020800.0  # the Taylor series to r^13 / 13!
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return np.int64(np.float64(p).view(np.int64) + (np.float64(shifted).view(np.int64) << 52)).view(np.float64)


@fused
def exp32(x):
    """e^x for a float32 x <= 0, to about 2e-7 of it."""
    x = max(x, LOWEST_32)
    shifted = x * LOG2_E_32 + ROUND_32
    n = shifted - ROUND_32
    r = x - n * LN_2_HIGH_32 - n * LN_2_LOW_32
    p = C6  # the Taylor series to r^6 / 6!
    p = p * r + C5
    p = p * r + C4
    p = p * r + C3
    p = p * r + C2
    p = p * r + C0
    p = p * r + C0
    return I32(F32(p).view(I32) + (F32(shifted).view(I32) << I32(23))).view(F32)
