"""The twins of the kernels that remember, row after row, and of the gates around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tinyllm_engine.memory import array_at
from tinyllm_engine.twin import F32, Arguments, Written, near, silu, twin

Step = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def remembered(a: Arguments, shape: tuple[int, ...], step: Step) -> tuple[np.ndarray, list[Written]]:
    """Every row in order: step(state float64 [shape], row) -> the next state and what the row comes to.

    Returns float32 [n, ...] and the states that are left.
    """
    states: dict[int, np.ndarray] = {}
    rows = []
    sources, targets = a.array("sources", np.int64, a.n).tolist(), a.array("targets", np.int64, a.n).tolist()
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        before = states[source] if source in states else array_at(source + a.state, F32, *shape).astype(np.float64)
        states[target], out = step(before, row)
        rows.append(out)
    left = [
        Written(f"state {number}", array_at(target + a.state, F32, *shape), state, near(state))
        for number, (target, state) in enumerate(states.items())
    ]
    return np.stack(rows).astype(F32), left


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(np.minimum(-x.astype(np.float64), 700)))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x.astype(np.float64))


def convolved(a: Arguments, x: np.ndarray) -> tuple[np.ndarray, list[Written]]:
    """Products with the rows so far, the oldest first; what is left are the rows themselves."""
    weight = a.floats("weight", a.taps, a.columns)

    def step(columns: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
        window = np.concatenate((columns, x[row : row + 1]))
        return window[1:], (window * weight).sum(axis=0)

    return remembered(a, (a.taps - 1, a.columns), step)


@twin
def convolve(a: Arguments) -> Iterator[Written]:
    y, left = convolved(a, a.floats("x", a.n, a.columns))
    expected = silu(y + a.floats("bias", a.columns) if a.bias else y)
    yield Written("out", a.floats("out", a.n, a.columns), expected, near(expected))
    yield from left


@twin
def gated_convolve(a: Arguments) -> Iterator[Written]:
    y, left = convolved(a, a.floats("b", a.n, a.columns) * a.floats("x", a.n, a.columns))
    expected = a.floats("c", a.n, a.columns) * y
    yield Written("out", a.floats("out", a.n, a.columns), expected, near(expected))
    yield from left


def spaced(a: Arguments, name: str, parts: int, size: int) -> np.ndarray:
    """float32 [n, parts, size], of rows that lie `name`_columns apart."""
    stride = getattr(a, f"{name}_columns")
    flat = a.floats(name, (a.n - 1) * stride + parts * size)
    return np.lib.stride_tricks.as_strided(flat, (a.n, parts, size), (4 * stride, 4 * size, 4))


def grouped8(state: np.ndarray) -> np.ndarray:
    """[heads, columns / 8, n, 8], as it lies in memory, -> [heads, columns, n]"""
    heads, eighths, n, _ = state.shape
    return state.transpose(0, 1, 3, 2).reshape(heads, 8 * eighths, n)


def in_eights(state: np.ndarray) -> np.ndarray:
    """[heads, columns, n] -> [heads, columns / 8, n, 8]"""
    heads, columns, n = state.shape
    return state.reshape(heads, columns // 8, 8, n).transpose(0, 1, 3, 2)


@twin
def mamba2(a: Arguments) -> Iterator[Written]:
    """H = e^(dt A) H + dt x B^T, y = H C + D x, gated by silu(z)"""
    x = spaced(a, "x", a.heads, a.head_size)
    b, c = (np.repeat(spaced(a, name, a.groups, a.state_size), a.heads // a.groups, axis=1) for name in "bc")
    dt = softplus(a.floats("dt", a.n, a.heads))
    decay = np.exp(dt * a.floats("a", a.heads))

    def step(state: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
        taken_in = (dt[row, :, None] * x[row])[..., None] * b[row][:, None, :]
        state = decay[row, :, None, None] * grouped8(state) + taken_in
        return in_eights(state), (state @ c[row][..., None])[..., 0] + a.floats("d", a.heads, 1) * x[row]

    y, left = remembered(a, (a.heads, a.head_size // 8, a.state_size, 8), step)
    expected = y * silu(a.floats("z", *y.shape))
    yield Written("out", a.floats("out", *y.shape), expected, near(expected))
    yield from left


@twin
def delta_net(a: Arguments) -> Iterator[Written]:
    """S = decay S; S = S + k (beta (v - S^T k))^T; o = S^T q, normed and gated by silu(z)"""
    keys, size = a.key_heads, a.size
    qkv = a.floats("qkv", a.n, 2 * keys + a.heads, size).astype(np.float64)
    q, k, v = np.split(qkv, [keys, 2 * keys], axis=1)
    key_of = np.arange(a.heads) % keys if a.tiled else np.arange(a.heads) // (a.heads // keys)
    q, k = (x[:, key_of] / np.sqrt((x[:, key_of] ** 2).sum(axis=-1, keepdims=True) + a.epsilon) for x in (q, k))
    decay = np.exp(a.floats("a", a.heads) * softplus(a.floats("alpha", a.n, a.heads)))
    beta = sigmoid(a.floats("beta", a.n, a.heads))

    def step(state: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
        state = decay[row, :, None, None] * grouped8(state)  # [heads, value, key]
        delta = beta[row, :, None] * (v[row] - (state @ k[row][..., None])[..., 0])
        state = state + delta[..., None] * k[row][:, None, :]
        return in_eights(state), (state @ q[row][..., None])[..., 0] * size**-0.5

    o, left = remembered(a, (a.heads, size // 8, size, 8), step)
    normed = o / np.sqrt((o.astype(np.float64) ** 2).mean(axis=-1, keepdims=True) + a.epsilon)
    expected = normed * a.floats("weight", size) * silu(a.floats("z", *o.shape))
    yield Written("out", a.floats("out", *o.shape), expected, near(expected))
    yield from left


@twin
def mamba(a: Arguments) -> Iterator[Written]:
    """The same as mamba2 with a dt for each channel, and a decay for each of its numbers."""
    x, dt = a.floats("x", a.n, a.columns), softplus(a.floats("dt", a.n, a.columns))
    b, c = a.floats("b", a.n, a.state_size), a.floats("c", a.n, a.state_size)
    rates = a.floats("a", a.columns // 8, a.state_size, 8)
    decays = grouped8(rates[None])[0]  # [columns, state_size]

    def step(state: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
        taken_in = (dt[row] * x[row])[:, None] * b[row]
        after = np.exp(dt[row][:, None] * decays) * grouped8(state[None])[0] + taken_in
        return in_eights(after[None])[0], after @ c[row] + a.floats("d", a.columns) * x[row]

    y, left = remembered(a, (a.columns // 8, a.state_size, 8), step)
    expected = y * silu(a.floats("z", a.n, a.columns))
    yield Written("out", a.floats("out", a.n, a.columns), expected, near(expected))
    yield from left


@twin
def split_heads(a: Arguments) -> Iterator[Written]:
    halves = a.floats("x", a.n, a.heads, 2, a.size)
    for i, name in enumerate(("first", "second")):
        yield Written(name, a.floats(name, a.n, a.heads, a.size), halves[:, :, i].copy())


@twin
def sigmoid_gate(a: Arguments) -> Iterator[Written]:
    x = a.floats("x", a.n, a.columns)
    expected = x * sigmoid(a.floats("gate", a.n, a.columns))
    yield Written("x", x, expected, near(expected, 1e-6))
