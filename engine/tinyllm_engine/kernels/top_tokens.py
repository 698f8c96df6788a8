"""The likeliest tokens under logits, the rank of the one drawn, and the entropy: a few blocks of 64 logits are looked
at one by one, and the vocabulary is passed over twice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.choices import CONTROL, END, Alternative, Choice
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


class TopTokens:
    """Looks at the logits that tokens are drawn from; `take` gives what was seen since the last time.

    most: alternatives of each token; tokenizer: for their texts, None: they have none
    """

    def __init__(self, most: int, tokenizer: Any = None) -> None:
        self._most = most
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, str]] = {}
        self._arguments = np.zeros(1, TOP)
        self._address = self._arguments.ctypes.data
        self._ids = np.zeros((0, 0), np.int32)
        self._logprobs, self._entropies = np.zeros((0, 0)), np.zeros(0)
        self._ranks = np.zeros(0, np.int64)

    def prepare(self, logits: NDArray[np.float32], rows: int) -> int:
        """Address of the arguments with which `find_top_tokens` looks at these logits up to so many times."""
        most = min(self._most, logits.size)
        if self._ids.shape[0] < rows or self._ids.shape[1] != most:
            self._ids, self._logprobs = np.zeros((rows, most), np.int32), np.zeros((rows, most))
            self._ranks, self._entropies = np.zeros(rows, np.int64), np.zeros(rows)
        values = {
            "logits": logits.ctypes.data,
            "vocabulary": logits.size,
            "most": most,
            "row": 0,
            "ids": self._ids.ctypes.data,
            "logprobs": self._logprobs.ctypes.data,
            "ranks": self._ranks.ctypes.data,
            "entropies": self._entropies.ctypes.data,
        }
        for name, value in values.items():
            self._arguments[name] = value
        return self._address

    def look(self, logits: NDArray[np.float32], token: int) -> Choice:
        """What else could have been drawn from these logits, float32 [vocab], in place of `token`."""
        logits = np.ascontiguousarray(logits, np.float32)
        self.prepare(logits, 1)
        self._arguments["token"] = token
        find_top_tokens(0, 1, self._address)
        return self.take([token])[0]

    def take(self, tokens: list[int]) -> list[Choice]:
        """What was seen when these tokens were drawn, which are the first since `prepare`."""
        return [
            Choice(
                self._text_and_kind(token)[0],
                int(self._ranks[row]),
                float(self._entropies[row]),
                tuple(
                    Alternative(id, text, logprob, kind)
                    for id, logprob in zip(self._ids[row].tolist(), self._logprobs[row].tolist(), strict=True)
                    for text, kind in (self._text_and_kind(id),)
                ),
            )
            for row, token in enumerate(tokens)
        ]

    def _text_and_kind(self, id: int) -> tuple[str, str]:
        known = self._known.get(id)
        if known is None:
            known = self._known[id] = text_and_kind(self._tokenizer, id)
        return known


def text_and_kind(tokenizer: Any, id: int) -> tuple[str, str]:
    """What a token adds to a text, and whether it is one, as in Alternative."""
    if tokenizer is None or not 0 <= id < tokenizer.vocab_size:
        return "", ""
    piece = tokenizer.piece(id)
    if id in tokenizer.eog_ids:
        return tokenizer.token_text(id), END
    return (piece.decode("utf-8", "surrogateescape"), "") if piece else (tokenizer.token_text(id), CONTROL)
