"""Twins of the kernels that write the cache and read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tinyllm_engine.cached_types import (
    CACHED_TYPES,
    PAGE,
    CachedType,
    k_slots,
    read_elements,
    read_k,
    read_v,
    turned,
    v_slots,
    write_k,
    write_v,
)
from tinyllm_engine.kernels.attention import RUN
from tinyllm_engine.memory import array_at
from tinyllm_engine.twin import BLOCK, F32, Arguments, Written, near, twin
from tinyllm_engine.windows import window_begin


@twin
def append_k(a: Arguments) -> Iterator[Written]:
    """K of a row goes to its position's place in the pages of its sequence."""
    return appended(a, CACHED_TYPES[a.type.name.lower()].k_turned, write_k, read_k, k_slots)


@twin
def append_v(a: Arguments) -> Iterator[Written]:
    return appended(a, CACHED_TYPES[a.type.name.lower()].is_quantized, write_v, read_v, v_slots)


def appended(
    a: Arguments,
    turning: bool,
    write: Callable[[CachedType, np.ndarray], np.ndarray],
    read: Callable[[CachedType, np.ndarray, int], np.ndarray],
    slots: Callable[[CachedType, int], np.ndarray],
) -> Iterator[Written]:
    """Every page that is written, whole: what belongs to other rows stays as it was.

    A type with exact parts writes those, and a page when its last row comes.
    """
    kind = CACHED_TYPES[a.type.name.lower()]
    written = CACHED_TYPES[kind.exact] if kind.exact else kind
    memory = exact_memory if kind.exact else page_memory
    x, slot_of = a.floats("x", a.n, a.heads, a.size), slots(written, a.size)
    pages: dict[int, np.ndarray] = {}
    full = []
    for row, position in enumerate(a.array("positions", np.int64, a.n).tolist()):
        page, slot = page_number(a, row, position // PAGE), position % PAGE
        rows = np.zeros((a.heads, PAGE, a.size), F32)
        rows[:, slot] = turned(x[row]) if turning else x[row]
        expected = pages.setdefault(page, memory(a, page).copy())
        expected[:, slot_of == slot] = write(written, rows)[:, slot_of == slot]
        if kind.exact and slot == PAGE - 1:
            full.append(page)
    for page, expected in pages.items():
        yield Written(f"page {page}", memory(a, page), expected)
    for page in full:
        yield Written(f"closed page {page}", page_memory(a, page), write(kind, read(written, pages[page], a.size)))


def page_memory(a: Arguments, page: int) -> np.ndarray:
    return a.array("pages", np.uint8, a.heads, a.page_bytes // a.heads, offset=page * a.page_bytes)


def exact_memory(a: Arguments, page: int) -> np.ndarray:
    return a.array("exact", np.uint8, a.heads, a.exact_bytes // a.heads, offset=page * a.exact_bytes)


def page_number(a: Arguments, row: int, index: int) -> int:
    """Where page number `index` of the row's sequence lies."""
    table = int(a.array("tables", np.int64, a.n)[row])
    return int(array_at(table, np.int64, index + 1)[index])


@twin
def attend_many(a: Arguments) -> Iterator[Written]:
    """out = softmax(scores) V over the keys that the row sees, for every row and head."""
    out = a.floats("out", a.n, a.heads, a.v_size)
    for row in range(a.n):
        scores, values = scored(a, row)
        sink = sinks(a).reshape(*scores.shape[:2], 1)
        top = np.maximum(scores.max(axis=-1, keepdims=True), sink)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True) + np.exp(sink - top)
        expected = turned_back(a, (weights @ values / total).reshape(a.heads, a.v_size))
        yield Written(f"out of row {row}", out[row], expected, near(expected, 2e-5))


@twin
def attend_one(a: Arguments) -> Iterator[Written]:
    """Per head and run of 256 keys: maximum of the scores, sum of the weights e^(score - maximum), weighted values.

    A run that is all before the window has the maximum of nothing, and no weights.
    """
    scores, values = scored(a, 0)
    expected = []
    for first in range(0, scores.shape[-1], RUN * PAGE):
        run = scores[..., first : first + RUN * PAGE]
        top = run.max(axis=-1, keepdims=True)
        weights = np.exp(run - np.maximum(top, -1e300))
        total = weights.sum(axis=-1, keepdims=True)
        expected.append(np.concatenate((top, total, weights @ values[..., first : first + RUN * PAGE, :]), axis=-1))
    parts = np.stack(expected, axis=2).reshape(a.heads, len(expected), 2 + a.v_size)
    memory = a.floats("parts", *parts.shape)
    top, weighted = slice(0, 1), slice(1, None)
    # a score's error counts as it is, not as a fraction: it becomes one of the weight
    allowed = 1e-5 + near(np.where(np.isinf(parts[..., top]), 0, parts[..., top]))
    yield Written("maxima", memory[..., top], parts[..., top], allowed)
    yield Written("sums and values", memory[..., weighted], parts[..., weighted], near(parts[..., weighted], 2e-5))


@twin
def merge_runs(a: Arguments) -> Iterator[Written]:
    """out = what all runs of a head come to when scaled to their common maximum."""
    runs = int(a.array("positions", np.int64, 1)[0]) // (RUN * PAGE) + 1
    top, total, values = np.split(a.floats("parts", a.heads, runs, 2 + a.v_size), (1, 2), axis=-1)
    sink = sinks(a).reshape(a.heads, 1, 1)
    highest = np.maximum(top.max(axis=1, keepdims=True), sink)
    factors = np.exp(top - highest)
    expected = (values * factors).sum(axis=1) / ((total * factors).sum(axis=1) + np.exp(sink - highest)[:, 0])
    expected = turned_back(a, expected)
    yield Written("out", a.floats("out", *expected.shape), expected, near(expected, 2e-6))


def turned_back(a: Arguments, out: np.ndarray) -> np.ndarray:
    return turned(out.astype(F32)) if a.v_turned else out


def sinks(a: Arguments) -> np.ndarray:
    """A score for each head, minus infinity where there are none."""
    return a.floats("sinks", a.heads).astype(np.float64) if a.sinks else np.full(a.heads, -np.inf)


def scored(a: Arguments, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores [kv_heads, heads / kv_heads, t] of a row with the keys up to it, and their values [kv_heads, t, v_size].

    Minus infinity for a key before the row's window. Values are turned where the cache holds them so.
    """
    position = int(a.array("positions", np.int64, a.n)[row])
    t = position + 1
    k, v = (rows[:, :t].astype(np.float64) for rows in cached_rows(a, row, -(-t // PAGE)))
    scores = queries(a, row) @ np.swapaxes(k, -1, -2)
    if a.k_exact:
        scores[..., PAGE : position // PAGE * PAGE] = scores_by_element(a, row, position // PAGE)
    if a.softcap:
        scores = a.softcap * np.tanh(scores / a.softcap)
    if a.slopes:
        slopes = a.floats("slopes", a.kv_heads, a.heads // a.kv_heads, 1)
        scores = scores - slopes * (position - np.arange(t))
    if a.window:
        begin = window_begin(position, a.window)
        scores[..., :begin], v[:, :begin] = -np.inf, 0  # nobody knows what the cache holds there
    return scores, v


def cached_rows(a: Arguments, row: int, pages: int) -> tuple[np.ndarray, np.ndarray]:
    """K [kv_heads, 64 * pages, k_size] and V of the row's sequence; the first and the last page as they are exact."""
    both = []
    for name, size, read in (("k", a.k_size, read_k), ("v", a.v_size, read_v)):
        kind = cached_kind(a, name)
        rows = read(kind, stored_pages(a, f"{name}_pages", row, range(pages), kind.head_bytes(size)), size)
        if kind.exact:
            ends, written = [0, pages - 1], CACHED_TYPES[kind.exact]
            rows[ends] = read(written, stored_pages(a, f"{name}_exact", row, ends, kind.exact_bytes(size)), size)
        both.append(np.swapaxes(rows, 0, 1).reshape(a.kv_heads, pages * PAGE, size))
    return both[0], both[1]


def cached_kind(a: Arguments, name: str) -> CachedType:
    return CACHED_TYPES[a.step_types.get(f"{name}_unpack") or a.step_types[{"k": "scores", "v": "values"}[name]]]


def stored_pages(a: Arguments, name: str, row: int, indices: Iterable[int], head_bytes: int) -> np.ndarray:
    """uint8 [indices, kv_heads, head_bytes] of pages of the row's sequence."""
    length = a.kv_heads * head_bytes
    found = [a.array(name, np.uint8, length, offset=page_number(a, row, index) * length) for index in indices]
    return np.stack(found).reshape(-1, a.kv_heads, head_bytes)


def queries(a: Arguments, row: int) -> np.ndarray:
    """[kv_heads, heads / kv_heads, k_size]: times the scale; turned and rounded to 8 bits where K is."""
    q = a.floats("q", a.n, a.kv_heads, a.heads // a.kv_heads, a.k_size)[row]
    return coded(turned(q) * F32(a.scale)) if a.k_coded else q.astype(np.float64) * a.scale


def coded(q: np.ndarray) -> np.ndarray:
    """Queries [..., k_size] rounded to 8 bits, block by block."""
    blocks = q.reshape(*q.shape[:-1], -1, BLOCK)
    top = np.abs(blocks).max(axis=-1, keepdims=True)
    codes = np.rint(blocks * np.divide(F32(127), top, out=np.zeros_like(top), where=top > 1e-30))
    return (codes.astype(np.float64) * (top / F32(127))).reshape(q.shape)


def scores_by_element(a: Arguments, row: int, pages: int) -> np.ndarray:
    """Scores of a row with the quantized ones among so many pages, all but the first."""
    q = a.floats("q", a.n, a.kv_heads, a.heads // a.kv_heads, a.k_size)[row] * F32(a.scale)
    scores = np.zeros((*q.shape[:-1], max(0, pages - 1), PAGE))
    head_bytes = cached_kind(a, "k").head_bytes(a.k_size)
    for index in range(1, pages):
        (page,) = stored_pages(a, "k_pages", row, [index], head_bytes)
        codes, scales, middles = read_elements(page, a.k_size)
        products = coded(q * scales[:, None]) @ np.swapaxes(codes, -1, -2).astype(np.float64)
        scores[..., index - 1, :] = products + (q.astype(np.float64) * middles[:, None]).sum(axis=-1, keepdims=True)
    return scores.reshape(*q.shape[:-1], -1)
