"""The likeliest tokens under logits, the rank of the one drawn, and the entropy: a few blocks of 64 logits are looked
at one by one, and the vocabulary is passed over twice."""

from __future__ import annotations

import math

import numpy as np

from tinyllm_engine.jit import kernel, layout, native, record
from tinyllm_engine.kernels.sample import BLOCK, peak_of
from tinyllm_engine.simd import (
    add,
    exp,
    fma,
    horizontal_sum,
    item_f32,
    item_f64,
    item_i32,
    load_f32x8,
    maximum,
    set_f64,
    set_i32,
    splat_f32x8,
    store_i64,
    sub,
    zero_f32x8,
)

_FIELDS = (
    "logits",  # address of float32 [v], finite
    "vocabulary",  # v
    "token",  # the one drawn
    "most",  # likeliest tokens to find, at most v
    "row",  # of the results to fill; goes up by one
    "ids",  # address of int32 [rows, most], result: the highest logit first, of equal ones the lower id
    "logprobs",  # address of float64 [rows, most], result: natural logs of their probabilities
    "ranks",  # address of int64 [rows], result: the token's place in that order, from 1
    "entropies",  # address of float64 [rows], result, in nats
)
TOP = layout(*_FIELDS)
TOKEN = 8 * _FIELDS.index("token")  # its place, in bytes
LOWEST = -100.0  # e^x of less is nothing beside 1, and so is x times it


@kernel(TOP)
def find_top_tokens(thread, threads, pointer):
    """Fills one row of the results. For one thread."""
    a = record(pointer)
    ids, values = a.ids + 4 * a.most * a.row, a.logprobs + 8 * a.most * a.row
    token, count, rank = np.float64(item_f32(a.logits, a.token)), 0, 1
    for block in range((a.vocabulary + BLOCK - 1) // BLOCK):
        peak = np.float64(peak_of(a, block))
        wanted = count < a.most or peak > item_f64(values, count - 1)
        if not wanted and peak < token:
            continue
        for i in range(block * BLOCK, min((block + 1) * BLOCK, a.vocabulary)):
            value = np.float64(item_f32(a.logits, i))
            if value > token or (value == token and i < a.token):
                rank += 1
            if count < a.most or value > item_f64(values, count - 1):
                count = insert(ids, values, count, a.most, i, value)
    top = item_f64(values, 0)
    total, moment = sums(a, top)
    whole = top + math.log(total)
    for j in range(count):
        set_f64(values, j, item_f64(values, j) - whole)
    store_i64(a.ranks + 8 * a.row, np.int64(rank))
    set_f64(a.entropies, a.row, math.log(total) - moment / total)
    a.row += 1


@native
def insert(ids, values, count, most, id, value):
    """Puts a token behind all that are not below it; returns how many there are now."""
    count = min(count + 1, most)
    j = count - 1
    while j > 0 and item_f64(values, j - 1) < value:
        set_f64(values, j, item_f64(values, j - 1))
        set_i32(ids, j, item_i32(ids, j - 1))
        j -= 1
    set_f64(values, j, value)
    set_i32(ids, j, np.int32(id))
    return count


@native
def sums(a, top):
    """Over the vocabulary: e^x, and x e^x, of x = logit - top."""
    highest, lowest = splat_f32x8(np.float32(top)), splat_f32x8(np.float32(LOWEST))
    total = moment = 0.0
    for block in range((a.vocabulary + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        if first + BLOCK <= a.vocabulary:
            weights, moments = zero_f32x8(), zero_f32x8()
            for i in range(first, first + BLOCK, 8):
                x = maximum(sub(load_f32x8(a.logits + 4 * i), highest), lowest)
                weight = exp(x)
                weights = add(weights, weight)
                moments = fma(x, weight, moments)
            total += np.float64(horizontal_sum(weights))
            moment += np.float64(horizontal_sum(moments))
        else:
            for i in range(first, a.vocabulary):
                x = max(np.float64(item_f32(a.logits, i)) - top, LOWEST)
                total += math.exp(x)
                moment += x * math.exp(x)
    return total, moment
