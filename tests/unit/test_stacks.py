"""Products over a stack of matrices: each group of rows meets its own, with the bits of an ordinary product."""

import numpy as np
import pytest
from support.recording import TYPES, random_tensor, recording
from tinyllm_engine.parts.base import Linear
from tinyllm_engine.tensor import TensorView

MATRICES, OUTPUTS, INPUTS = 5, 40, 96
GROUPS = [(3, 0, 4), (0, 4, 2), (4, 8, 3)]  # matrix, first row (of a tile of 4), rows


def one_of(stack: TensorView, matrix: int) -> Linear:
    size = OUTPUTS * stack.row_bytes
    return Linear(
        TensorView(stack.name, (INPUTS, OUTPUTS), stack.type, stack.data[matrix * size : (matrix + 1) * size])
    )


def table(groups):
    return np.array([len(groups), *sum(groups, ())], np.int64)


def multiplied(kind, groups, rows, threads, **changes):
    """The result of a product over a stack, checked against its twin; what no group holds stays as it was."""
    stack = random_tensor(TYPES[kind], INPUTS, MATRICES * OUTPUTS)
    bias = np.random.default_rng(1).normal(0, 1, (MATRICES, OUTPUTS)).astype(np.float32)
    scales = np.linspace(0.5, 2, MATRICES, dtype=np.float32)
    groups = table(groups)
    with recording(rows, threads) as r:
        x, out = r.filled("x", INPUTS * 12 // rows), r.filled("out", OUTPUTS * 12 // rows)
        x.array[:], out.array[:] = np.random.default_rng(2).normal(0, 1, x.array.shape), -7
        r.recorder.matmul(out, one_of(stack, 0), x)
        product = r.recorder.program.ops[-1]
        product.fields |= {
            "groups": groups.ctypes.data,
            "matrix_bytes": OUTPUTS * stack.row_bytes,
            "matrix_scales": scales.ctypes.data,
            "bias": bias.ctypes.data,
        } | changes
        r.check()
        return x.array.reshape(-1, INPUTS).copy(), out.array.reshape(-1, OUTPUTS).copy(), stack, scales, bias


def alone(x, stack, matrix, scales, bias):
    """The product of rows of x with one matrix of the stack."""
    linear = one_of(stack, matrix)
    with recording(len(x), 1) as r:
        source, out = r.recorder.buffer("x", INPUTS), r.recorder.buffer("out", OUTPUTS)
        source.array[: len(x)] = x
        r.recorder.matmul(out, Linear(linear.weight, bias[matrix].copy(), float(scales[matrix])), source)
        r.check()
        return out.array[: len(x)].copy()


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_groups_of_rows(kind):
    x, out, *weights = multiplied(kind, GROUPS, 12, 1)
    for threads in (2, 3):
        assert np.array_equal(multiplied(kind, GROUPS, 12, threads)[1], out)
    touched = np.zeros(12, bool)
    for matrix, first, rows in GROUPS:
        group = slice(first, first + rows)
        touched[group] = True
        assert np.array_equal(out[group], alone(x[group], weights[0], matrix, *weights[1:])), matrix
    assert (out[~touched] == -7).all()


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_row_for_each_matrix(kind, shared):
    """Decode: as many groups of one row as experts were chosen; they share x, or have a row of it each."""
    groups = [(4, 0, 1), (1, 1, 1), (2, 2, 1)]
    changes = {"x_stride": 0 if shared else INPUTS}
    x, out, *weights = multiplied(kind, groups, 1, 1, **changes)
    for threads in (2, 3, 4):
        assert np.array_equal(multiplied(kind, groups, 1, threads, **changes)[1], out)
    for matrix, row, _ in groups:
        source = x[:1] if shared else x[row : row + 1]
        assert np.array_equal(out[row], alone(source, weights[0], matrix, *weights[1:])[0])
    assert (out[3:] == -7).all()


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_matrix_for_each_head(kind, rows):
    """All rows meet all matrices, each with its own part of the row."""
    heads = 12 // rows if rows > 2 else 5
    groups = [(head, 0, -1) for head in range(heads)]
    changes = {
        "x_stride": INPUTS * 12 // rows,
        "x_step": INPUTS,
        "out_stride": OUTPUTS * 12 // rows,
        "out_step": OUTPUTS,
    }
    x, out, *weights = multiplied(kind, groups, rows, 2, **changes)
    x, out = x.reshape(rows, -1, INPUTS), out.reshape(rows, -1, OUTPUTS)
    for head in range(heads):
        assert np.array_equal(out[:, head], alone(x[:, head], weights[0], head, *weights[1:]))
    assert (out[:, heads:] == -7).all()
