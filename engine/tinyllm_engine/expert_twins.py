"""Twins of the kernels of experts: choosing them, and moving rows to them and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tinyllm_engine.agreed import SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN, SQRT_SOFTPLUS
from tinyllm_engine.kernels.experts import SMALLEST_SUM
from tinyllm_engine.twin import BLOCK, F32, Arguments, Written, near, twin


@twin
def route(a: Arguments) -> Iterator[Written]:
    """Per row: the best experts, of equal ones the lowest number first, and their weights."""
    scores = a.floats("scores", a.n, a.experts)
    values, ranked = gated(scores, a.gating), gated(scores, a.ranking)
    if a.bias:
        ranked = ranked + a.floats("bias", a.experts)
    ranked = np.where(np.isnan(ranked), F32(-np.inf), ranked)
    if a.sections > 1:
        ranked = best_sections(ranked, a.sections, a.sections_used)
    chosen = np.argsort(-ranked, axis=-1, kind="stable")[:, : a.used]
    yield Written("chosen", a.array("chosen", np.int64, a.n, a.used), chosen)
    weights = np.take_along_axis(values, chosen, axis=-1)
    if a.gating == SOFTMAX_OF_CHOSEN:
        weights = softmax(weights)
    if a.normalized:
        weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), SMALLEST_SUM)
    weights = weights * F32(a.weight_scale)
    yield Written("weights", a.floats("weights", a.n, a.used), weights, near(weights, 1e-6))


def gated(scores: np.ndarray, gating: int) -> np.ndarray:
    """float32, what becomes of scores before any are chosen."""
    x = scores.astype(np.float64)
    with np.errstate(over="ignore"):
        made: dict[int, Callable[[], np.ndarray]] = {
            SOFTMAX: lambda: softmax(scores),
            SIGMOID: lambda: 1 / (1 + np.exp(-x)),
            SOFTMAX_OF_CHOSEN: lambda: x,
            SQRT_SOFTPLUS: lambda: np.sqrt(np.where(x > 20, x, np.log1p(np.exp(x)))),
        }
        return made[gating]().astype(F32)


def softmax(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        values = np.exp((x - x.max(axis=-1, keepdims=True)).astype(np.float64)).astype(F32)
    return values * (1 / values.sum(axis=-1, keepdims=True, dtype=np.float64)).astype(F32)


def best_sections(ranked: np.ndarray, sections: int, used: int) -> np.ndarray:
    """Minus infinity in all but the sections whose two best values come to most."""
    parts = ranked.reshape(len(ranked), sections, -1)
    totals = np.sort(parts, axis=-1)[..., -2:].sum(axis=-1)
    kept = np.argsort(-totals, axis=-1, kind="stable")[:, :used]
    out = np.full_like(parts, -np.inf)
    for row, best in enumerate(kept):
        out[row, best] = parts[row, best]
    return out.reshape(ranked.shape)


@twin
def group_rows(a: Arguments) -> Iterator[Written]:
    """The rows of each expert lie together, in the order of the batch; experts in the order of their numbers."""
    chosen = a.array("chosen", np.int64, a.n * a.used)
    places, groups, first = np.zeros_like(chosen), [], 0
    for expert in np.unique(chosen):
        pairs = np.flatnonzero(chosen == expert)
        places[pairs] = first + np.arange(len(pairs))
        groups += [int(expert), first, len(pairs)]
        first += -(-len(pairs) // a.tile) * a.tile
    yield Written("groups", a.array("groups", np.int64, 1 + len(groups)), np.array([len(groups) // 3, *groups]))
    yield Written("places", a.array("places", np.int64, len(places)), places)
    yield Written("rows", a.array("rows", np.int64, 1), np.array([first]))


def places_of(a: Arguments) -> np.ndarray:
    """int64 [rows, used]"""
    return a.array("places", np.int64, a.n, a.used)


@twin
def gather_rows(a: Arguments) -> Iterator[Written]:
    """Every row at all of its places."""
    x, places = a.floats("x", a.n, 1, a.columns), places_of(a)
    if a.weights:
        x = x * a.floats("weights", a.n, a.used, 1)
    out = a.floats("out", places.max() + 1, a.columns)
    for row in range(a.n):
        for k, place in enumerate(places[row]):
            yield Written(f"out of row {row}", out[place], x[row, k if a.weights else 0].copy())


@twin
def gather_codes(a: Arguments) -> Iterator[Written]:
    """The same for quantized rows, which are copied bit by bit."""
    places, blocks = places_of(a), a.columns // BLOCK
    for name, dtype, columns in (
        ("codes", np.int8, a.columns),
        ("scales", np.uint32, blocks),
        ("sums", np.uint32, blocks),
        ("half_sums", np.uint32, 2 * blocks),
    ):
        x = a.array(name, dtype, a.n, columns)
        out = a.array(f"out_{name}", dtype, places.max() + 1, columns)
        for row in range(a.n):
            for place in places[row]:
                yield Written(f"{name} of row {row}", out[place], x[row].copy())


@twin
def mix_rows(a: Arguments) -> Iterator[Written]:
    """For every row the sum of what lies at its places, times its weights where there are some."""
    places = places_of(a)
    x = a.floats("x", places.max() + 1, a.columns)[places].astype(np.float64)
    if a.weights:
        x = x * a.floats("weights", a.n, a.used, 1)
    expected = x.sum(axis=1)
    yield Written("out", a.floats("out", a.n, a.columns), expected, near(np.abs(x).sum(axis=1), 1e-6))


@twin
def gate_rows(a: Arguments) -> Iterator[Written]:
    """Every row times the sigmoid of its gate."""
    x = a.floats("x", a.n, a.columns)
    expected = x * gated(a.floats("gate", a.n, 1), SIGMOID)
    yield Written("x", x, expected, near(expected, 1e-6))


@twin
def copy_heads(a: Arguments) -> Iterator[Written]:
    """The same elements of each head, elsewhere."""
    x = a.floats("x", (a.n - 1) * a.x_stride + (a.heads - 1) * a.x_step + a.size)
    out = a.floats("out", (a.n - 1) * a.out_stride + (a.heads - 1) * a.out_step + a.size)
    for row in range(a.n):
        for head in range(a.heads):
            at, to = row * a.x_stride + head * a.x_step, row * a.out_stride + head * a.out_step
            yield Written(f"out of row {row}, head {head}", out[to : to + a.size], x[at : at + a.size].copy())
