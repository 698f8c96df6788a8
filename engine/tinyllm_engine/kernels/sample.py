"""The common chain of samplers as one native call per token (see sampling/native.py).

One pass over the vocabulary, shared by the threads, finds the highest logit of every 64. These 'peaks' say which few
blocks hold the candidates, so that nothing sorts the vocabulary: a crop is a beginning of a short sorted list.

Penalties and biases are written into the logits themselves and taken back afterwards: they concern few tokens.
"""

from __future__ import annotations

import math

import numpy as np

from tinyllm_engine.agreed import F32_MAX, GREEDY_BELOW
from tinyllm_engine.jit import kernel, native, record
from tinyllm_engine.simd import (
    add,
    exp,
    fma,
    horizontal_max,
    horizontal_sum,
    item_f32,
    item_f64,
    item_i32,
    load_f32x8,
    maximum,
    set_f32,
    set_f64,
    set_i32,
    splat_f32x8,
    sub,
    sum_exp_f32x16,
    sum_exp_f64x16,
    zero_f32x8,
    zero_f64x8,
)

BLOCK = 64  # logits under one peak
NOT_FINITE, ALL_RULED_OUT = -1, -2  # instead of a token
F32, I32 = np.float32, np.int32
F32_LOWEST = -F32_MAX

# v: vocabulary. Addresses unless said otherwise; what is float64 comes last.
_WORDS = (
    "logits",  # float32 [v]
    "vocabulary",  # v
    "chance",  # float64: the random number to draw with
    "recent",  # int32: the latest tokens...
    "recent_count",  # ...and how many
    "last_n",  # of them count for penalties; 0: none, -1: all
    "bias_ids",  # int32
    "biases",  # float32
    "bias_count",
    "top_k",  # a number; 0: off
    # Memory of one sampler. Only `counts` has to be zero between calls.
    "peaks",  # float32 [ceil(v / BLOCK), up to a multiple of 8] highest logit of each block; NaN: one is not finite
    "sums",  # float32, as many: the sum of e^(logit - peak) in each block; 0 behind the last one
    "counts",  # int32 [v] occurrences among the recent tokens
    "changed",  # int32 [2 v] tokens whose logits were changed...
    "before",  # float32 [2 v] ...and what they were
    "ids",  # int32 [v] candidates
    "value",  # float32 [v] their logits
    "weight",  # float64 [v] their probabilities times a constant
    "choice",  # result: a token, NOT_FINITE or ALL_RULED_OUT
)
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repeat",
    "presence",
    "frequency",
    "top",  # the highest logit with penalties
    "logprob",  # result: natural log of the token's probability before biases, penalties, crops and temperature
)
SAMPLE = np.dtype([(name, np.int64) for name in _WORDS] + [(name, np.float64) for name in _NUMBERS], align=True)
PLACES = {name: place for place, name in enumerate((*_WORDS, *_NUMBERS))}  # in units of 8 bytes


@kernel(SAMPLE)
def scan(thread, threads, pointer):
    """Sets peaks and sums. Threads share the blocks; the other kernels here are for one thread."""
    a = record(pointer)
    logits, vocabulary = a.logits, a.vocabulary
    blocks = (vocabulary + BLOCK - 1) // BLOCK
    zero = zero_f32x8()
    for block in range(blocks * thread // threads, blocks * (thread + 1) // threads):
        first, peak = block * BLOCK, peak_of(a, block)
        if first + BLOCK <= vocabulary:
            # Infinity times 0 is NaN: doubt is 0 as long as all are finite.
            doubt, sum = zero_f32x8(), zero_f32x8()
            for i in range(first, first + BLOCK, 16):
                at = logits + 4 * i
                doubt = fma(load_f32x8(at), zero, fma(load_f32x8(at + 32), zero, doubt))
                sum = add(sum, sum_exp_f32x16(at, peak))
            set_f32(a.peaks, block, peak + horizontal_sum(doubt))
            set_f32(a.sums, block, horizontal_sum(sum))
        else:
            doubts, total = F32(0), 0.0
            for i in range(first, vocabulary):
                doubts += item_f32(logits, i) * F32(0)
                total += math.exp(np.float64(item_f32(logits, i)) - peak)
            set_f32(a.peaks, block, peak + doubts)
            set_f32(a.sums, block, F32(total))


@kernel(SAMPLE)
def sample_few(thread, threads, pointer):
    """Draws where top_k leaves less than the vocabulary, and at temperature 0. Sets `choice` and `logprob`."""
    a = record(pointer)
    changed = begin(a)
    if a.choice < 0:
        pass
    elif a.temperature < GREEDY_BELOW:
        a.choice = first_of_highest(a)  # no crop can remove the highest
    else:
        # As many peaks are reached by at least as many logits. Too many candidates would have to be sorted.
        gap, few = 4.0, min(a.top_k, (a.vocabulary + BLOCK - 1) // BLOCK // 2)
        while reached(a, a.top - gap) < few:
            gap *= 1.125
        # Of flat logits most may be that near to the top; those that equal it never get fewer.
        while gap > 0.01 and reached(a, a.top - 0.75 * gap) > few:
            gap *= 0.75
        count = gather(a, a.top - gap)
        while count < a.top_k:
            gap *= 1.125
            count = gather(a, a.top - gap)
        sort(a, count)
        a.choice = draw(a, crop(a, a.top_k, 0.0))
    finish(a, changed)


@kernel(SAMPLE)
def sample_many(thread, threads, pointer):
    """Draws where top_k is off and the temperature is not 0. Sets `choice` and `logprob`."""
    a = record(pointer)
    changed = begin(a)
    if a.choice == 0:
        whole, count, gap = 0.0, a.vocabulary, 4.0
        if a.top_p < 1:
            # The candidates that reach top_p, or all that min_p does not remove anyway.
            whole = block_weights(a, 1.0)
            count = gather(a, a.top - gap)
            while weigh(a, count, 1.0) < a.top_p * whole and count < a.vocabulary and math.exp(-gap) >= a.min_p:
                gap *= 1.5
                count = gather(a, a.top - gap)
        elif a.min_p > 0:
            count = gather(a, a.top + math.log(a.min_p) - 1e-3)  # somewhat less than the bound, which is compared later
        if a.top_p < 1 or a.min_p > 0:
            sort(a, count)
            count = crop(a, count, whole)
        a.choice = draw(a, count) if count < a.vocabulary else draw_from_all(a)
    finish(a, changed)


# --- before and after -------------------------------------------------------------------------------------------------


@native
def begin(a):
    """After `scan`: sets the first part of `logprob`, changes logits by biases and penalties, then sets `top`, and
    `choice` where nothing can be drawn, else to 0. Returns how many logits have changed.
    """
    a.choice = changed = 0
    highest, finite = -np.inf, True
    for block in range((a.vocabulary + BLOCK - 1) // BLOCK):
        peak = np.float64(item_f32(a.peaks, block))
        if not abs(peak) <= F32_MAX:
            finite = False
        highest = max(highest, peak)
    if not finite:
        a.choice = NOT_FINITE
        return 0
    a.top, a.logprob = highest, -highest - log_sum_exp(a, highest)
    for j in range(a.bias_count):
        token = item_i32(a.bias_ids, j)
        if token < a.vocabulary:
            value = item_f32(a.logits, token) + np.float64(item_f32(a.biases, j))
            changed = change(a, changed, token, value)
    changed = penalize(a, changed)
    if changed > 0:
        for j in range(changed):
            block = item_i32(a.changed, j) // BLOCK
            set_f32(a.peaks, block, peak_of(a, block))
        a.top = -np.inf
        for block in range((a.vocabulary + BLOCK - 1) // BLOCK):
            a.top = max(a.top, np.float64(item_f32(a.peaks, block)))
        if a.top == -np.inf:
            a.choice = ALL_RULED_OUT
    return changed


@native
def finish(a, changed):
    """Takes the changes back and completes `logprob`."""
    for j in range(changed - 1, -1, -1):
        set_f32(a.logits, item_i32(a.changed, j), item_f32(a.before, j))
    if a.choice >= 0:
        a.logprob += item_f32(a.logits, a.choice)


@native
def change(a, changed, token, value):
    """Gives a token another logit, finite or -inf, and remembers the present one; returns how many that are now."""
    set_i32(a.changed, changed, I32(token))
    set_f32(a.before, changed, item_f32(a.logits, token))
    set_f32(a.logits, token, F32(min(max(value, F32_LOWEST), F32_MAX) if value > -np.inf else value))
    return changed + 1


@native
def penalize(a, changed):
    """Changes the logits of the recent tokens."""
    first = 0 if a.last_n < 0 else max(0, a.recent_count - a.last_n)
    for counting in (True, False):
        for j in range(first, a.recent_count):
            token = item_i32(a.recent, j)
            if token < 0 or token >= a.vocabulary:
                continue
            count = item_i32(a.counts, token)
            if counting:
                set_i32(a.counts, token, I32(count + 1))
                continue
            value = np.float64(item_f32(a.logits, token))
            if count > 0 and value > -np.inf:
                value = value * a.repeat if value <= 0 else value / a.repeat
                changed = change(a, changed, token, value - (count * a.frequency + a.presence))
            set_i32(a.counts, token, I32(0))
    return changed


@native
def peak_of(a, block):
    first = block * BLOCK
    if first + BLOCK <= a.vocabulary:
        at = a.logits + 4 * first
        peak = load_f32x8(at)
        for k in range(32, 4 * BLOCK, 32):
            peak = maximum(peak, load_f32x8(at + k))
        return horizontal_max(peak)
    highest = F32(-np.inf)
    for i in range(first, a.vocabulary):
        highest = max(highest, item_f32(a.logits, i))
    return highest


@native
def log_sum_exp(a, highest):
    """Natural log of the sum of e^(logit - highest) over the vocabulary, to 1e-6."""
    top, total = splat_f32x8(F32(highest)), zero_f32x8()
    for block in range(0, (a.vocabulary + BLOCK - 1) // BLOCK, 8):
        scale = exp(sub(load_f32x8(a.peaks + 4 * block), top))
        total = fma(scale, load_f32x8(a.sums + 4 * block), total)
    return math.log(horizontal_sum(total))


# --- candidates -------------------------------------------------------------------------------------------------------


@native
def reached(a, bound):
    """How many peaks are not below the bound."""
    count = 0
    for block in range((a.vocabulary + BLOCK - 1) // BLOCK):
        count += item_f32(a.peaks, block) >= bound
    return count


@native
def gather(a, bound):
    """Makes all logits of at least `bound` candidates, in the order of their ids; returns how many."""
    count = 0
    for block in range((a.vocabulary + BLOCK - 1) // BLOCK):
        if item_f32(a.peaks, block) >= bound:
            for i in range(block * BLOCK, min((block + 1) * BLOCK, a.vocabulary)):
                value = item_f32(a.logits, i)
                if value >= bound:
                    set_i32(a.ids, count, I32(i))
                    set_f32(a.value, count, value)
                    count += 1
    return count


@native
def sort(a, count):
    """Candidates by falling logits, equal ones by rising ids: Shell's sort with Knuth's steps."""
    ids, values, step = a.ids, a.value, 1
    while step < count // 3:
        step = 3 * step + 1
    while step > 0:
        for i in range(step, count):
            id, value, j = item_i32(ids, i), item_f32(values, i), i
            while j >= step:
                other = item_f32(values, j - step)
                if other > value or (other == value and item_i32(ids, j - step) < id):
                    break
                set_f32(values, j, other)
                set_i32(ids, j, I32(item_i32(ids, j - step)))
                j -= step
            set_f32(values, j, value)
            set_i32(ids, j, I32(id))
        step //= 3


@native
def crop(a, count, whole):
    """How many of the first `count` sorted candidates top-p and min-p leave; at least 1.

    whole: what e^(logit - top) amounts to over all tokens that top-p looks at, if they are more than these
    """
    if a.top_p < 1:
        target = a.top_p * max(whole, weigh(a, count, 1.0))
        reached, kept = item_f64(a.weight, 0), 1
        while kept < count and reached < target:
            reached += item_f64(a.weight, kept)
            kept += 1
        count = kept
    if a.min_p > 0:
        bound = min(math.log(a.min_p), 0.0)
        while item_f32(a.value, count - 1) - a.top < bound:
            count -= 1
    return count


@native
def weigh(a, count, temperature):
    """Fills weight with e^((value - top) / temperature); returns its sum."""
    total = 0.0
    for j in range(count):
        weight = math.exp((item_f32(a.value, j) - a.top) / temperature)
        set_f64(a.weight, j, weight)
        total += weight
    return total


@native
def draw(a, count):
    """One of the first `count` candidates: softmax(value / temperature) at the random number."""
    target = item_f64(a.chance, 0) * weigh(a, count, a.temperature)
    reached, last = 0.0, 0
    for j in range(count):
        weight = item_f64(a.weight, j)
        reached += weight
        if reached > target:
            return item_i32(a.ids, j)
        if weight > 0:
            last = j
    return item_i32(a.ids, last)


@native
def first_of_highest(a):
    """The lowest id of the highest logit."""
    block = 0
    while item_f32(a.peaks, block) < a.top:
        block += 1
    i = block * BLOCK
    while item_f32(a.logits, i) < a.top:
        i += 1
    return i


# --- all tokens as candidates, in the order of their ids --------------------------------------------------------------


@native
def block_weights(a, scale):
    """Fills weight[block] with the sum of e^((logit - top) * scale) over each block; returns the sum of all."""
    logits, vocabulary, top = a.logits, a.vocabulary, a.top
    total = 0.0
    for block in range((vocabulary + BLOCK - 1) // BLOCK):
        first, last = block * BLOCK, min(block * BLOCK + BLOCK, vocabulary)
        whole = first + (last - first) // 16 * 16
        part = zero_f64x8()
        for i in range(first, whole, 16):
            part = add(part, sum_exp_f64x16(logits + 4 * i, top, scale))
        weight = horizontal_sum(part)
        for i in range(whole, last):
            weight += math.exp((item_f32(logits, i) - top) * scale)
        set_f64(a.weight, block, weight)
        total += weight
    return total


@native
def draw_from_all(a):
    """A token: softmax(logits / temperature) at the random number."""
    scale = 1.0 / a.temperature
    target = item_f64(a.chance, 0) * block_weights(a, scale)
    reached, last = 0.0, 0
    for block in range((a.vocabulary + BLOCK - 1) // BLOCK):
        weight = item_f64(a.weight, block)
        if reached + weight > target:
            within = reached
            for i in range(block * BLOCK, min(block * BLOCK + BLOCK, a.vocabulary)):
                within += math.exp((item_f32(a.logits, i) - a.top) * scale)
                if within > target:
                    return i
        if weight > 0:
            last = block
        reached += weight
    i = min(last * BLOCK + BLOCK, a.vocabulary) - 1  # rounding: the last one that is possible
    while item_f32(a.logits, i) == -np.inf:
        i -= 1
    return i
