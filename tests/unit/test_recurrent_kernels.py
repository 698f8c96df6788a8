"""Kernels that remember: against their twins, and the same bits for any batch, any threads, any order of sequences."""

import numpy as np
import pytest
from support.recording import TYPES, random_tensor, recording
from tinyllm_engine.parts.base import Linear, Norm
from tinyllm_engine.parts.delta_net import GatedDeltaNet
from tinyllm_engine.parts.mamba import Mamba
from tinyllm_engine.parts.mamba2 import Mamba2
from tinyllm_engine.recurrent_ops import Columns
from tinyllm_engine.recurrent_state import RecurrentState

ROWS = 9
BATCHES = [(1, 1), (1, 3), (2, 1), (4, 3), (5, 2), (9, 4)]  # rows of a pass, threads


def numbers(*shape, seed=1, scale=1.0):
    return np.random.default_rng([seed, *shape]).normal(0, scale, shape).astype(np.float32)


def run(record, inputs, columns, state_size, rows=ROWS, threads=1):
    """float32 [ROWS, columns]: what `record(recorder, out, *buffers)` makes of the rows of `inputs`, so many at a time.

    Every pass is checked against the twins. Also returns the state that is left.
    """
    found = []
    with recording(rows, threads, state_size=state_size) as r:
        out = r.filled("out", columns)
        buffers = [r.recorder.buffer(f"input {i}", rows_of.shape[1]) for i, rows_of in enumerate(inputs)]
        record(r.recorder, out, *buffers)
        program = r.program()
        for first in range(0, ROWS, rows):
            count = min(rows, ROWS - first)
            r.set_rows(count)
            for buffer, rows_of in zip(buffers, inputs, strict=True):
                buffer.array[:count] = rows_of[first : first + count]
            r.check_program(program)
            r.recurrent.advance(1)
            found.append(out.array[:count].copy())
        return np.concatenate(found), r.floats_at(r.recurrent.addresses()[0])


def check_all_batches(record, inputs, columns, state_size):
    expected = run(record, inputs, columns, state_size)
    assert expected[1].any() == (state_size > 0)
    for rows, threads in BATCHES:
        found = run(record, inputs, columns, state_size, rows, threads)
        for part, whole in zip(found, expected, strict=True):
            assert np.array_equal(part, whole), (rows, threads)
    return expected[0]


@pytest.mark.parametrize(("columns", "taps"), [(40, 4), (96, 3), (72, 2), (32, 1), (64, 7)])
def test_convolutions(columns, taps):
    weight, bias, x = numbers(taps, columns), numbers(columns), numbers(ROWS, columns, seed=2)
    size = (taps - 1) * columns

    def convolve(p, out, x):
        p.convolve(out, x, weight, bias, 0)

    def without_bias(p, out, x):
        p.convolve(out, x, weight, None, 0)

    def gated(p, out, b, c, x):
        p.gated_convolve(out, b, c, x, weight, 0)

    y = check_all_batches(convolve, [x], columns, size)
    assert not np.array_equal(y, check_all_batches(without_bias, [x], columns, size))
    check_all_batches(gated, [numbers(ROWS, columns, seed=seed) for seed in (3, 4, 5)], columns, size)


def linear(inputs, outputs):
    return Linear(random_tensor(TYPES["F32"], inputs, outputs))


def mamba2_part(heads, head_size, groups, state_length, taps=4):
    inner, columns = heads * head_size, heads * head_size + 2 * groups * state_length
    return Mamba2(
        z=linear(32, inner),
        xbc=linear(32, columns),
        dt=linear(32, heads),
        taps=numbers(taps, columns),
        conv_bias=None,
        a=-np.abs(numbers(heads)),
        d=numbers(heads, seed=2),
        norm=None,
        groups=groups,
        state_length=state_length,
        output=linear(inner, 32),
    )


def state_space(p, out, xbc, dt, z, part):
    """x, B and C side by side."""
    inner = part.inner_size
    c = Columns(xbc, inner + part.groups * part.state_length)
    p.mamba2(out, Columns(xbc), Columns(xbc, inner), c, dt, z, part, 0)


@pytest.mark.parametrize("sizes", [(4, 16, 2, 16), (3, 8, 1, 20), (5, 24, 5, 4)], ids=str)
def test_mamba2(sizes):
    part = mamba2_part(*sizes)
    inner = part.inner_size
    inputs = numbers(ROWS, part.xbc.outputs), numbers(ROWS, part.heads, scale=4), numbers(ROWS, inner, seed=2, scale=5)
    inputs[1][3] = 30  # far beyond where the softplus is x itself
    check_all_batches(lambda p, out, *x: state_space(p, out, *x, part), inputs, inner, part.state_size)


@pytest.mark.parametrize(("columns", "state_length"), [(40, 16), (96, 3)])
def test_mamba(columns, state_length):
    part = Mamba(
        x=linear(32, columns),
        z=linear(32, columns),
        dt_rank=linear(columns, 8),
        b=linear(columns, state_length),
        c=linear(columns, state_length),
        dt=linear(8, columns),
        dt_norm=None,
        b_norm=None,
        c_norm=None,
        taps=numbers(4, columns),
        conv_bias=None,
        a=-np.abs(numbers(columns // 8, state_length, 8)),
        d=numbers(columns, seed=2),
        output=linear(columns, 32),
    )
    widths = columns, state_length, state_length, columns, columns
    inputs = [numbers(ROWS, width, seed=seed, scale=3) for seed, width in enumerate(widths)]
    inputs[3][2] = 40
    check_all_batches(lambda p, out, *x: p.mamba(out, *x, part, 0), inputs, columns, part.state_size)


def delta_net_part(heads, key_heads, size, tiled, taps=4):
    columns = (2 * key_heads + heads) * size
    return GatedDeltaNet(
        qkv=linear(32, columns),
        z=linear(32, heads * size),
        alpha=linear(32, heads),
        beta=linear(32, heads),
        taps=numbers(taps, columns),
        a=-np.abs(numbers(heads)),
        norm=Norm("rms", numbers(size), np.zeros(size, np.float32), 1e-6),
        key_heads=key_heads,
        tiled=tiled,
        output=linear(heads * size, 32),
    )


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("sizes", [(4, 2, 16), (3, 3, 8), (6, 1, 24)], ids=str)
def test_delta_net(sizes, tiled):
    part = delta_net_part(*sizes, tiled)
    widths = part.qkv.outputs, part.z.outputs, part.heads, part.heads
    inputs = [numbers(ROWS, width, seed=seed, scale=2) for seed, width in enumerate(widths)]
    inputs[0][4] = 0  # a key of length 0
    check_all_batches(lambda p, out, *x: p.delta_net(out, *x, part, 0), inputs, widths[1], part.state_size)


def test_heads_that_share_a_key_are_neighbours_or_tiles():
    """With a key for each head it is the same; with fewer it is not."""
    for key_heads, same in ((4, True), (2, False)):
        answers = []
        for tiled in (False, True):
            part = delta_net_part(4, key_heads, 16, tiled)
            widths = part.qkv.outputs, part.z.outputs, part.heads, part.heads
            inputs = [numbers(ROWS, width, seed=seed) for seed, width in enumerate(widths)]
            answers.append(
                run(lambda p, out, *x, part=part: p.delta_net(out, *x, part, 0), inputs, 64, part.state_size)
            )
        assert np.array_equal(answers[0][0], answers[1][0]) == same


def test_a_batch_of_two_sequences():
    """Rows of a batch may belong to different sequences: each remembers its own."""
    part = mamba2_part(2, 16, 1, 8)
    inputs = numbers(ROWS, part.xbc.outputs), numbers(ROWS, part.heads), numbers(ROWS, part.inner_size)
    alone = [
        run(lambda p, out, *x: state_space(p, out, *x, part), [x[rows] for x in inputs], 32, part.state_size)[0]
        for rows in (np.r_[0, 2, 3, 6, [0] * 5], np.r_[1, 4, 5, 7, 8, [0] * 4])
    ]
    with recording(ROWS, 2, state_size=part.state_size) as r:
        out = r.filled("out", part.inner_size)
        buffers = [r.recorder.buffer(f"input {i}", x.shape[1]) for i, x in enumerate(inputs)]
        for buffer, x in zip(buffers, inputs, strict=True):
            buffer.array[:ROWS] = x
        states = [RecurrentState(r.cache.states) for _ in range(2)]
        for row, which in enumerate([0, 1, 0, 0, 1, 1, 0, 1, 1]):
            source, target, _ = states[which].addresses()
            r.state.sources[row] = target if row > 1 else source
            r.state.targets[row] = target
        state_space(r.recorder, out, *buffers, part)
        r.check()
        assert np.array_equal(out.array[[0, 2, 3, 6]], alone[0][:4])
        assert np.array_equal(out.array[[1, 4, 5, 7, 8]], alone[1][:5])


def test_heads_and_their_gates():
    heads, size = 3, 16

    def gated(p, out, x):
        gate = p.buffer("gate", heads * size)
        p.split_heads(out, gate, x, heads)
        p.sigmoid_gate(out, gate)

    x = numbers(ROWS, 2 * heads * size, scale=30)
    y = check_all_batches(gated, [x], heads * size, 0)
    first, second = np.moveaxis(x.reshape(ROWS, heads, 2, size).astype(np.float64), 2, 0)
    np.testing.assert_allclose(y, (first / (1 + np.exp(-second))).reshape(ROWS, -1), rtol=1e-5, atol=1e-6)
