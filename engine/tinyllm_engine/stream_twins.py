"""Twins of the kernels of residual streams."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tinyllm_engine.twin import F32, Arguments, Written, near, twin


def streams_of(a: Arguments, name: str) -> np.ndarray:
    return a.floats(name, a.n, a.streams, a.columns)


@twin
def predict_streams(a: Arguments) -> Iterator[Written]:
    x, coefficients = streams_of(a, "x"), a.floats("coefficients", a.n, a.streams, a.streams)
    expected = (x + coefficients.astype(np.float64) @ x).astype(F32)
    yield Written("out", streams_of(a, "out"), expected, 1e-6 * np.abs(expected).max(axis=(1, 2), keepdims=True))


@twin
def correct_streams(a: Arguments) -> Iterator[Written]:
    predicted, found = streams_of(a, "predicted"), a.floats("found", a.n, 1, a.columns)
    shares = 1 + a.floats("coefficients", a.n, a.streams, 1).astype(np.float64)
    expected = (predicted + shares * (found - predicted[:, :1])).astype(F32)
    yield Written("out", streams_of(a, "out"), expected, 1e-6 * np.abs(expected).max(axis=(1, 2), keepdims=True))


@twin
def add_to_streams(a: Arguments) -> Iterator[Written]:
    x, expected = streams_of(a, "x"), streams_of(a, "x").copy()
    expected[:, 1:] += a.floats("y", a.n, 1, a.columns)
    yield Written("x", x, expected)


@twin
def match_magnitude(a: Arguments) -> Iterator[Written]:
    x, like = (a.floats(name, a.n, a.columns) for name in ("x", "like"))
    lengths = [np.linalg.norm(rows.astype(np.float64), axis=-1, keepdims=True) for rows in (like, x)]
    expected = (x * (lengths[0] / lengths[1])).astype(F32)
    yield Written("x", x, expected, near(expected, 2e-6))


@twin
def keep_top(a: Arguments) -> Iterator[Written]:
    x = a.floats("x", a.n, a.columns)
    rows = x.astype(np.float64)
    cut = rows.mean(axis=-1, keepdims=True) + a.factor * rows.std(axis=-1, ddof=1, keepdims=True)
    yield Written("x", x, np.maximum(rows - cut, 0).astype(F32), near(x, 2e-6))
