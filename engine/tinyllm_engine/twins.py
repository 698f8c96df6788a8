"""Debug mode: what every kernel computes, said again in NumPy, and a check of programs against it.

A twin has its kernel's name without the type at the end. It reads the memory the kernel is about to read, and yields
what the kernel has to write there. `check` runs a program op by op and stops at the first op that wrote otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Ids
from dataclasses import replace

import numpy as np

from tinyllm_engine import expert_twins  # noqa: F401 - its twins register themselves
from tinyllm_engine.errors import EngineError
from tinyllm_engine.kernels.attention import RUN
from tinyllm_engine.kv_cache import PAGE
from tinyllm_engine.program import Program
from tinyllm_engine.runner import Runner
from tinyllm_engine.team import Team
from tinyllm_engine.twin import BLOCK, F32, TWINS, Arguments, Written, array_at, near, twin


class KernelMismatchError(EngineError):
    """A kernel wrote something else than its twin."""


# --- embeddings, norms, activations -----------------------------------------------------------------------------------


@twin
def embed(a: Arguments) -> Iterator[Written]:
    """out[row] = weights[token of row]"""
    expected = np.concatenate([stored_rows(a, int(token), 1) for token in a.array("tokens", np.int64, a.n)])
    yield Written("out", a.floats("out", a.n, a.columns), expected, near(expected, 1e-6))


def stored_rows(a: Arguments, first: int, count: int, offset: int = 0) -> np.ndarray:
    """float32 [count, columns]: rows of the weight, dequantized; of a matrix of a stack, that begins at an offset."""
    stored = a.array("weights", np.uint8, count, a.row_bytes, offset=offset + first * a.row_bytes)
    return a.type.dequantize(stored.reshape(-1, a.type.block_bytes)).reshape(count, a.columns)


@twin
def select_rows(a: Arguments) -> Iterator[Written]:
    """out[i] = x[first + i]"""
    first = int(a.array("first", np.int64, 1)[0])
    yield Written("out", a.floats("out", a.n, a.columns), a.floats("x", first + a.n, a.columns)[first:].copy())


@twin
def rms_norm(a: Arguments) -> Iterator[Written]:
    expected = normalized(a, a.n)
    yield Written("out", a.floats("out", *expected.shape), expected, near(expected, 1e-6))


def normalized(a: Arguments, n: int) -> np.ndarray:
    """x / sqrt(mean(x^2) + epsilon) * weight"""
    x = a.floats("x", n, a.columns).astype(np.float64)
    mean = np.mean(x * x, axis=-1, keepdims=True)
    return (x / np.sqrt(mean + a.epsilon) * a.floats("weight", a.columns)).astype(F32)


@twin
def add_rows(a: Arguments) -> Iterator[Written]:
    out = a.floats("out", a.n, a.columns)
    yield Written("out", out, out + a.floats("x", a.n, a.columns))


@twin
def swiglu(a: Arguments) -> Iterator[Written]:
    expected = gated(a, a.n)
    # a gate below -88 leaves a trace in the kernel, whose e^x never overflows
    yield Written("out", a.floats("out", *expected.shape), expected, near(expected, 1e-6) + 1e-30)


def gated(a: Arguments, n: int) -> np.ndarray:
    """silu(gate) * up, where silu(x) = x / (1 + e^-x)"""
    gate, up = a.floats("gate", n, a.columns).astype(np.float64), a.floats("up", n, a.columns)
    return (gate / (1 + np.exp(np.minimum(-gate, 700))) * up).astype(F32)


# --- quantized activations, and products with them --------------------------------------------------------------------


@twin
def quantize(a: Arguments) -> Iterator[Written]:
    return codes_of(a, a.floats("x", a.n, a.columns))


@twin
def rms_norm_quantize(a: Arguments) -> Iterator[Written]:
    """Every thread has a copy of its own."""
    for thread in range(a.threads):
        yield from codes_of(a, normalized(a, 1), steps=1, offset=thread * a.copy_bytes)


@twin
def swiglu_quantize(a: Arguments) -> Iterator[Written]:
    return codes_of(a, gated(a, 1), steps=1)


def codes_of(a: Arguments, x: np.ndarray, steps: int = 0, offset: int = 0) -> Iterator[Written]:
    """Per block of 32: scale = max|x| / 127, codes = round(x / scale), and scale * sum(codes) of it and of its halves.

    steps: by how much a code may differ, where x itself has been rounded otherwise
    """
    blocks = x.reshape(len(x), -1, BLOCK)
    top = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.divide(F32(127), top, out=np.zeros_like(top), where=top > 1e-30)
    codes = np.rint(blocks * inverse)
    scales = top[..., 0] * F32(1 / 127)
    halves = scales[..., None] * codes.reshape(*scales.shape, 2, BLOCK // 2).sum(axis=-1)
    for name, dtype, expected, allowed in (
        ("codes", np.int8, codes, steps),
        ("scales", F32, scales, near(scales, 1e-6)),
        ("sums", F32, halves.sum(axis=-1), near(halves.sum(axis=-1), 1e-6) + 4 * steps * scales),
        ("half_sums", F32, halves, near(halves, 1e-6) + 4 * steps * scales[..., None]),
    ):
        yield Written(name, a.array(name, dtype, *expected.shape, offset=offset), expected, allowed)


@twin
def matmul(a: Arguments) -> Iterator[Written]:
    """out = scale * x W^T + bias + residual, group by group; x is given as codes where weights are stored in blocks."""
    for matrix, first, rows in groups_of(a):
        x_at, out_at = matrix * a.x_step + first * a.x_stride, matrix * a.out_step + first * a.out_stride
        x = dequantized_codes(a, rows, x_at) if a.type.block_elements > 1 else strided(a, "x", rows, x_at)
        scale = a.floats("matrix_scales", matrix + 1)[matrix] if a.matrix_scales else a.weight_scale
        expected = scale * (x.astype(np.float64) @ stored_rows(a, 0, a.rows, matrix * a.matrix_bytes).T)
        allowed = near(expected)
        if a.bias:
            expected += a.floats("bias", matrix + 1, a.rows)[matrix]
        if a.residual:
            expected += strided(a, "residual", rows, out_at)
        out = strided(a, "out", rows, out_at)
        name = f"out of matrix {matrix}" if a.groups else "out"
        yield Written(name, out, expected, allowed + near(expected, 1e-6))


TWINS["matvec"] = matmul  # of one row


def groups_of(a: Arguments) -> list[tuple[int, int, int]]:
    """(matrix, first row, rows) of each group; without any, one matrix meets all rows."""
    if not a.groups:
        return [(0, 0, a.n)]
    count = int(a.array("groups", np.int64, 1)[0])
    groups = a.array("groups", np.int64, count, 3, offset=8).tolist()
    return [(matrix, first, rows if rows >= 0 else a.n) for matrix, first, rows in groups]


def strided(a: Arguments, name: str, rows: int, first: int) -> np.ndarray:
    """float32 [rows, columns]: rows of x or of the result, from the element `first` on; no copy."""
    columns, stride = (a.columns, a.x_stride) if name == "x" else (a.rows, a.out_stride)
    whole = a.floats(name, first + (rows - 1) * stride + columns)
    return np.lib.stride_tricks.as_strided(whole[first:], (rows, columns), (4 * stride, 4))


def dequantized_codes(a: Arguments, rows: int, first: int) -> np.ndarray:
    """float32 [rows, columns]: rows of x as they lie in the codes from the element `first` on"""
    starts = first + a.x_stride * np.arange(rows)
    elements = starts[:, None] + np.arange(a.columns)
    codes, scales = a.array("codes", np.int8, elements.max() + 1), a.floats("scales", elements.max() // BLOCK + 1)
    return codes[elements] * scales[elements // BLOCK]


# --- positions, cache, attention --------------------------------------------------------------------------------------


@twin
def rope_table(a: Arguments) -> Iterator[Written]:
    """cos and sin of position * frequency, pair by pair."""
    positions = a.array("positions", np.int64, a.n, 1).astype(F32)
    angles = (positions * a.floats("frequencies", a.pairs)).astype(np.float64)
    expected = a.magnitude * np.stack((np.cos(angles), np.sin(angles)), axis=-1)
    yield Written("table", a.floats("table", *expected.shape), expected, 1e-6 * abs(a.magnitude))


@twin
def rope(a: Arguments) -> Iterator[Written]:
    """Turns the pairs (x, y) of each head by the row's angles; what lies past the last pair stays."""
    x = a.floats("x", a.n, a.heads, a.head_size)
    cos, sin = np.moveaxis(a.floats("table", a.n, 1, a.pairs, 2), -1, 0)
    turned = slice(0, 2 * a.pairs, 2), slice(1, 2 * a.pairs, 2)
    apart = slice(0, a.pairs), slice(a.pairs, 2 * a.pairs)
    first, second = turned if a.interleaved else apart
    expected = x.copy()
    expected[..., first] = x[..., first] * cos - x[..., second] * sin
    expected[..., second] = x[..., first] * sin + x[..., second] * cos
    yield Written("x", x, expected, near(expected, 1e-6))


@twin
def append(a: Arguments) -> Iterator[Written]:
    """K and V of a row go to its position's place in the pages of its sequence."""
    k, v = a.floats("k", a.n, a.heads, a.k_size), a.floats("v", a.n, a.heads, a.v_size)
    for row, position in enumerate(a.array("positions", np.int64, a.n)):
        k_page, v_page = page_of(a, row, position // PAGE, a.heads)
        with np.errstate(over="ignore"):
            yield Written(f"k of row {row}", k_page[:, :, position % PAGE], k[row].astype(k_page.dtype))
            yield Written(f"v of row {row}", v_page[:, position % PAGE], v[row].astype(v_page.dtype))


def page_of(a: Arguments, row: int, index: int, heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Page number `index` of the row's sequence: K [heads, k_size, 64] and V [heads, 64, v_size]."""
    table = a.array("tables", np.int64, a.n)[row]
    page = int(array_at(int(table), np.int64, int(index) + 1)[index])
    k = a.array("k_pages", a.type.layout, heads, a.k_size, PAGE, offset=page * a.k_page_bytes)
    return k, a.array("v_pages", a.type.layout, heads, PAGE, a.v_size, offset=page * a.v_page_bytes)


@twin
def attend_many(a: Arguments) -> Iterator[Written]:
    """out = softmax(scale * q K^T) V over the keys up to the row's position, for every row and head."""
    out = a.floats("out", a.n, a.heads, a.v_size)
    for row in range(a.n):
        scores, values = scored(a, row)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        expected = (weights @ values / weights.sum(axis=-1, keepdims=True)).reshape(a.heads, a.v_size)
        yield Written(f"out of row {row}", out[row], expected, near(expected, 2e-5))


@twin
def attend_one(a: Arguments) -> Iterator[Written]:
    """Per head and run of 256 keys: maximum of the scores, sum of the weights e^(score - maximum), weighted values."""
    scores, values = scored(a, 0)
    expected = []
    for first in range(0, scores.shape[-1], RUN * PAGE):
        run = scores[..., first : first + RUN * PAGE]
        top = run.max(axis=-1, keepdims=True)
        weights = np.exp(run - top)
        total = weights.sum(axis=-1, keepdims=True)
        expected.append(np.concatenate((top, total, weights @ values[..., first : first + RUN * PAGE, :]), axis=-1))
    parts = np.stack(expected, axis=2).reshape(a.heads, len(expected), 2 + a.v_size)
    memory = a.floats("parts", *parts.shape)
    top, weighted = slice(0, 1), slice(1, None)
    # a score's error counts as it is, not as a fraction: it becomes one of the weight
    yield Written("maxima", memory[..., top], parts[..., top], 1e-5 + near(parts[..., top]))
    yield Written("sums and values", memory[..., weighted], parts[..., weighted], near(parts[..., weighted], 2e-5))


@twin
def merge_runs(a: Arguments) -> Iterator[Written]:
    """out = what all runs of a head come to when scaled to their common maximum."""
    runs = int(a.array("positions", np.int64, 1)[0]) // (RUN * PAGE) + 1
    top, total, values = np.split(a.floats("parts", a.heads, runs, 2 + a.v_size), (1, 2), axis=-1)
    factors = np.exp(top - top.max(axis=1, keepdims=True))
    expected = (values * factors).sum(axis=1) / (total * factors).sum(axis=1)
    yield Written("out", a.floats("out", *expected.shape), expected, near(expected, 1e-6))


def scored(a: Arguments, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores [kv_heads, heads / kv_heads, t] of a row with the t keys it sees; their values [kv_heads, t, v_size]."""
    t = int(a.array("positions", np.int64, a.n)[row]) + 1
    pages = [page_of(a, row, index, a.kv_heads) for index in range(-(-t // PAGE))]
    k = np.concatenate([k for k, _ in pages], axis=-1)[..., :t].astype(np.float64)
    v = np.concatenate([v for _, v in pages], axis=1)[:, :t].astype(np.float64)
    q = a.floats("q", a.n, a.kv_heads, a.heads // a.kv_heads, a.k_size)[row]
    return a.scale * (q @ k), v


# --- the check --------------------------------------------------------------------------------------------------------


def check(program: Program, team: Team) -> None:
    """Runs the program op by op; KernelMismatchError names the first op that wrote something else than its twin."""
    for number, op in enumerate(program.ops):
        a = Arguments(op, team.threads)
        if a.twin is None:
            raise EngineError(f"op {number}: the kernel {op.kernel.name} has no twin")
        written = list(a.twin(a))  # before the kernel overwrites what it reads
        alone = Program([replace(op)])
        team.run(alone.freeze())
        for part in written:
            if (wrong := part.wrong()).any():
                op_name = f"op {number} of {len(program.ops)}, {op.kernel.name}"
                raise KernelMismatchError(f"{op_name}: {describe(part, wrong)}")


def describe(part: Written, wrong: np.ndarray) -> str:
    """One line: where the first wrong value is, what it should be, and how many more there are."""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    allowed = np.broadcast_to(part.allowed, wrong.shape)[where]
    errors = np.abs(part.memory.astype(np.float64) - part.expected)[wrong]
    return (
        f"{part.name}{list(where)}: expected {part.expected[where]:g}, found {part.memory[where]:g} "
        f"(allowed error {allowed:g}); {wrong.sum()} of {wrong.size} are wrong, by up to {errors.max():g}"
    )


def check_pass(runner: Runner, ids: Ids[int], all_logits: bool = False) -> np.ndarray:
    """One pass of the runner's sequence over ids, as Sequence.forward would make it, with every op checked.

    Returns its logits: float32 [1, vocabulary], or [n, vocabulary].
    """
    sequence = runner.sequence()
    sequence.pages.grow(sequence.position + len(ids))
    program, logits = runner.set_rows(sequence, ids, all_logits)
    check(program, runner.team)
    sequence.extend(list(ids))
    return logits.copy()
