"""Debug mode: what every kernel computes, said again in NumPy, and a check of programs against it.

A twin has its kernel's name without the type at the end. It reads the memory the kernel is about to read, and yields
what the kernel has to write there. `check` runs a program op by op and stops at the first op that wrote otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ids
from dataclasses import replace

import numpy as np

from tinyllm_engine import (  # noqa: F401 - their twins register themselves
    attention_twins,
    expert_twins,
    recurrent_twins,
    stream_twins,
)
from tinyllm_engine.agreed import UNIT
from tinyllm_engine.errors import EngineError
from tinyllm_engine.kernels.elementwise import LIMIT
from tinyllm_engine.program import Program
from tinyllm_engine.runner import Runner
from tinyllm_engine.team import Team
from tinyllm_engine.twin import BLOCK, F32, TWINS, Arguments, Written, near, silu, twin
from tinyllm_engine.windows import pages_of


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


@twin
def layer_norm(a: Arguments) -> Iterator[Written]:
    expected = centered(a, a.n)
    yield Written("out", a.floats("out", *expected.shape), expected, near(expected, 2e-6))


def normalized(a: Arguments, n: int) -> np.ndarray:
    return rms(a.floats("x", n, a.columns), a.floats("weight", a.columns), a.epsilon)


def centered(a: Arguments, n: int) -> np.ndarray:
    return layer(a.floats("x", n, a.columns), a.floats("weight", a.columns), a.floats("bias", a.columns), a.epsilon)


def rms(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + epsilon) * weight"""
    x = x.astype(np.float64)
    mean = np.mean(x * x, axis=-1, keepdims=True)
    return (x / np.sqrt(mean + epsilon) * weight).astype(F32)


def layer(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float) -> np.ndarray:
    """(x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias"""
    x = x.astype(np.float64)
    distance = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(distance * distance, axis=-1, keepdims=True)
    return (distance / np.sqrt(variance + epsilon) * weight + bias).astype(F32)


def of_heads(a: Arguments, name: str) -> np.ndarray:
    """Weights or biases of the heads: [heads, head_size], or the same for all."""
    return a.floats(name, a.heads, a.head_size) if a.stride else a.floats(name, a.head_size)


@twin
def rms_norm_heads(a: Arguments) -> Iterator[Written]:
    x = a.floats("x", a.n, a.heads, a.head_size)
    expected = rms(x, of_heads(a, "weight"), a.epsilon)
    yield Written("x", x, expected, near(expected, 1e-6))


@twin
def layer_norm_heads(a: Arguments) -> Iterator[Written]:
    x = a.floats("x", a.n, a.heads, a.head_size)
    expected = layer(x, of_heads(a, "weight"), of_heads(a, "bias"), a.epsilon)
    yield Written("x", x, expected, near(expected, 2e-6))


@twin
def add_rows(a: Arguments) -> Iterator[Written]:
    out = a.floats("out", a.n, a.columns)
    yield Written("out", out, out + a.floats("x", a.n, a.columns))


@twin
def low_rank_narrow(a: Arguments) -> Iterator[Written]:
    """out[row, r] = sum_k matrix[r, k] x[row, k]"""
    x, matrix = a.floats("x", a.n, a.columns), a.floats("matrix", a.rank, a.columns)
    expected = (x.astype(np.float64) @ matrix.T).astype(F32)
    most = np.abs(x).astype(np.float64) @ np.abs(matrix).T
    yield Written("out", a.floats("out", a.n, a.rank), expected, 1e-6 * most)


@twin
def low_rank_widen(a: Arguments) -> Iterator[Written]:
    """out[row, n] += scale * sum_r x[row, r] matrix[n, r]"""
    x, blocks = a.floats("x", a.n, a.rank), -(-a.columns // UNIT)
    packed = a.floats("matrix", blocks, a.rank, UNIT)
    matrix = packed.transpose(0, 2, 1).reshape(blocks * UNIT, a.rank)[: a.columns]
    out = a.floats("out", a.n, a.columns)
    expected = (out + a.scale * (x.astype(np.float64) @ matrix.T)).astype(F32)
    most = np.abs(out) + abs(a.scale) * (np.abs(x).astype(np.float64) @ np.abs(matrix).T)
    yield Written("out", out, expected, 1e-6 * most)


def changed(
    a: Arguments, function: Callable[[np.ndarray], np.ndarray], relative: float = 1e-6, absolute: float = 1e-30
) -> Iterator[Written]:
    """x becomes a function of itself."""
    x = a.floats("x", a.n, a.columns)
    expected = function(x.astype(np.float64)).astype(F32)
    yield Written("x", x, expected, near(expected, relative) + absolute)


@twin
def scale_rows(a: Arguments) -> Iterator[Written]:
    return changed(a, lambda x: x * a.factor)


@twin
def clamp_rows(a: Arguments) -> Iterator[Written]:
    return changed(a, lambda x: np.clip(x, -a.limit, a.limit))


@twin
def divide_columns(a: Arguments) -> Iterator[Written]:
    return changed(a, lambda x: x / a.floats("divisor", a.columns))


@twin
def softcap_rows(a: Arguments) -> Iterator[Written]:
    return changed(a, lambda x: a.cap * np.tanh(x / a.cap), absolute=2e-7 * a.cap)


@twin
def temperature_rows(a: Arguments) -> Iterator[Written]:
    positions = a.array("positions", np.int64, a.n, 1)
    return changed(a, lambda x: x * (1 + a.factor * np.log(1 + positions // a.period)))


@twin
def xielu(a: Arguments) -> Iterator[Written]:
    def activation(x: np.ndarray) -> np.ndarray:
        bend = a.alpha_n * (np.expm1(np.minimum(x, a.epsilon)) - x)
        return np.where(x > 0, a.alpha_p * x * x, bend) + a.beta * x

    return changed(a, activation, 2e-6)


def tanh_gelu(x: np.ndarray) -> np.ndarray:
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2"""
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def relu2(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) ** 2


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def limited_silu(x: np.ndarray) -> np.ndarray:
    """x / (1 + e^-1.702x) with x up to 7"""
    x = np.minimum(x, LIMIT)
    return x / (1 + np.exp(np.minimum(-1.702 * x, 700)))


ACTIVATIONS = {
    "swiglu": silu,
    "geglu": tanh_gelu,
    "reglu": relu,
    "limited_swiglu": limited_silu,
    "gelu": tanh_gelu,
    "relu_squared": relu2,
}


def activated(a: Arguments, name: str, n: int) -> np.ndarray:
    """activation(gate) * up, or activation(gate) where there is no up"""
    result = ACTIVATIONS[name](a.floats("gate", n, a.columns).astype(np.float64))
    if a.up:
        up = a.floats("up", n, a.columns).astype(np.float64)
        result = result * (np.clip(up, -LIMIT, LIMIT) + 1 if name == "limited_swiglu" else up)
    return result.astype(F32)


def register_activation(name: str) -> None:
    def whole(a: Arguments) -> Iterator[Written]:
        expected = activated(a, name, a.n)
        # a gate below -88 leaves a trace in the kernel, whose e^x never overflows
        yield Written("out", a.floats("out", *expected.shape), expected, near(expected, 1e-6) + 1e-30)

    def quantized(a: Arguments) -> Iterator[Written]:
        return codes_of(a, activated(a, name, 1), steps=1)

    TWINS[name], TWINS[f"{name}_quantize"] = whole, quantized


for activation in ACTIVATIONS:
    register_activation(activation)


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
def layer_norm_quantize(a: Arguments) -> Iterator[Written]:
    for thread in range(a.threads):
        yield from codes_of(a, centered(a, 1), steps=1, offset=thread * a.copy_bytes)


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


# --- positions --------------------------------------------------------------------------------------------------------


@twin
def rope_table(a: Arguments) -> Iterator[Written]:
    """cos and sin of position * frequency, pair by pair."""
    positions = a.array("positions", np.int64, a.n, 1).astype(F32)
    angles = (positions * a.floats("frequencies", a.pairs)).astype(np.float64)
    expected = a.magnitude * np.stack((np.cos(angles), np.sin(angles)), axis=-1)
    yield Written("table", a.floats("table", *expected.shape), expected, 1e-6 * abs(a.magnitude))


@twin
def rope(a: Arguments) -> Iterator[Written]:
    """Turns the pairs (x, y) of each head by the row's angles; what lies past the last pair is not touched."""
    size, row = a.head_size, a.heads * a.head_size
    memory = a.floats("x", a.n * row - size + 2 * a.pairs)
    x = np.lib.stride_tricks.as_strided(memory, (a.n, a.heads, 2 * a.pairs), (4 * row, 4 * size, 4))
    cos, sin = np.moveaxis(a.floats("table", a.n, 1, a.pairs, 2), -1, 0)
    turned = slice(0, 2 * a.pairs, 2), slice(1, 2 * a.pairs, 2)
    apart = slice(0, a.pairs), slice(a.pairs, 2 * a.pairs)
    first, second = turned if a.interleaved else apart
    expected = x.copy()
    expected[..., first] = x[..., first] * cos - x[..., second] * sin
    expected[..., second] = x[..., first] * sin + x[..., second] * cos
    yield Written("x", x, expected, near(expected, 1e-6))


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
    sequence.pages.hold(pages_of(sequence.position, sequence.position + len(ids)))
    program, logits = runner.set_rows(sequence, ids, all_logits)
    check(program, runner.team)
    sequence.extend(list(ids))
    return logits.copy()
