"""Programs: arguments are checked, barriers stand wherever threads could meet, fusing changes no bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import GOLDEN, toy_tokens, write_toy_model
from support.recording import TYPES, random_norm, random_tensor, recording
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.jit import Kernel, layout
from tinyllm_engine.kernels import elementwise
from tinyllm_engine.model import Model
from tinyllm_engine.parts.base import Linear
from tinyllm_engine.program import ALL, Buffer, Op, Program, place_barriers, read_before_written
from tinyllm_engine.recorder import ALONE, GATED
from tinyllm_engine.runner import Runner
from tinyllm_engine.twins import check_pass


def never_called(thread, threads, pointer):
    raise AssertionError


KERNEL = Kernel(never_called, layout("x", "size", "scale:f"))


def op(reads=None, writes=None, barrier=True):
    return Op("test", KERNEL, {"x": 0, "size": 0, "scale": 0}, reads or {}, writes or {}, barrier)


def kinds(program):
    return [op.kind for op in program.ops]


# --- arguments --------------------------------------------------------------------------------------------------------


def test_arguments_are_laid_out_as_the_kernel_declares():
    buffer = Buffer("x", np.zeros(4, np.float32))
    record = Op("test", KERNEL, {"scale": 0.5, "size": 4, "x": buffer}).arguments()
    assert record.dtype == KERNEL.arguments
    assert record[0].tolist() == (buffer.array.ctypes.data, 4, 0.5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": 0, "size": 1}, r"never_called: missing \['scale'\], unexpected \[\]"),
        ({"x": 0, "size": 1, "scale": 1, "count": 2}, r"never_called: missing \[\], unexpected \['count'\]"),
        ({}, "missing .'scale', 'size', 'x'."),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(TypeError, match=message):
        Op("test", KERNEL, fields).arguments()


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises((TypeError, ValueError)):
        Op("test", KERNEL, {"x": None, "size": "many", "scale": 1}).arguments()


@pytest.mark.parametrize("fields", [{"x": 0, "size": 1, "scale": 1e300}, {"x": 0, "size": 1 << 70, "scale": 1}])
def test_a_number_that_its_field_cannot_hold_is_refused(fields):
    with pytest.raises(OverflowError):
        Op("test", KERNEL, fields).arguments()


@pytest.mark.parametrize("rows", [1, 2])
def test_integers_are_no_weights(rows):
    """However few columns they have: 8 are no block of activations either."""
    with recording(rows) as r, pytest.raises(UnsupportedModelError, match=r"tensor 'random\.I8': no mat\w+ kernel for"):
        r.recorder.matmul(r.recorder.buffer("y", 32), Linear(random_tensor(TYPES["I8"], 8, 32)), r.filled("x", 8))


def test_freezing():
    with recording(2) as r:
        x, y = r.filled("x", 32), r.filled("y", 32)
        r.recorder.add(x, y)
        r.recorder.add(y, x)
        program = Program(place_barriers(r.program().ops))
        assert [op.barrier for op in program.ops] == [False, False]  # each thread on its own columns
        rows = program.freeze()
        assert rows.shape == (2, 3)
        assert rows.dtype == np.int64
        assert rows[:, 0].tolist() == [elementwise.add_rows.address] * 2
        assert rows[:, 2].tolist() == [0, 1]  # the caller may look at the end
        assert program.freeze() is rows
        assert program.kernels == [elementwise.add_rows]


def test_describe_has_a_line_for_each_op():
    with recording(2) as r:
        r.recorder.add(r.filled("total", 32), r.filled("part", 32))
        assert [line.split() for line in r.program().describe().splitlines()] == [
            ["add_rows", "total", "<-", "part,", "total", "|"]
        ]


# --- barriers ---------------------------------------------------------------------------------------------------------

BUFFERS = [Buffer(name, np.empty(0)) for name in "abc"]
ACCESSES = st.dictionaries(st.sampled_from(BUFFERS), st.sampled_from([ALL, "columns 64", "3 heads"]), max_size=2)


def may_meet(first, second):
    """Whether two threads, one in each op, could touch the same element, one of them writing it."""
    for buffer in BUFFERS:
        for one, other in ((first.writes, second.reads), (first.reads, second.writes), (first.writes, second.writes)):
            if buffer in one and buffer in other and (one[buffer] == ALL or one[buffer] != other[buffer]):
                return True
    return False


@given(st.lists(st.builds(op, ACCESSES, ACCESSES, st.booleans()), max_size=12))
def test_a_barrier_stands_between_any_two_ops_that_may_meet(ops):
    placed = place_barriers(ops)
    assert [(op.reads, op.writes) for op in placed] == [(op.reads, op.writes) for op in ops]
    for last in range(len(placed)):
        for first in range(last):
            if may_meet(placed[first], placed[last]):
                assert any(op.barrier for op in placed[first:last]), (first, last)


@given(st.lists(st.builds(op, ACCESSES, ACCESSES, st.booleans()), max_size=12))
def test_no_barrier_stands_for_nothing(ops):
    placed = place_barriers(ops)
    start = 0
    for i, one in enumerate(placed):
        if one.barrier:
            assert any(may_meet(before, placed[i + 1]) for before in placed[start : i + 1])
            start = i + 1


def test_the_ops_given_keep_their_barriers():
    ops = [op(barrier=True), op(barrier=False)]
    place_barriers(ops)
    assert [op.barrier for op in ops] == [True, False]


def test_read_before_written():
    a, b, _ = BUFFERS
    ops = [op(writes={a: ALL}), op(reads={b: ALL}, writes={a: ALL}), op(reads={a: ALL}), op(reads={b: ALL})]
    assert not read_before_written(ops, 1, a)
    assert read_before_written(ops, 2, a)
    assert not read_before_written(ops, 3, a)
    assert not read_before_written(ops, 4, b)
    assert read_before_written([op(reads={a: ALL}, writes={a: ALL})], 0, a)


# --- fusing -----------------------------------------------------------------------------------------------------------


def linear(outputs, inputs, kind="Q8_0"):
    return Linear(random_tensor(TYPES[kind], inputs, outputs))


@pytest.mark.parametrize("rows", [1, 4])
def test_a_product_is_added_by_its_own_kernel(rows):
    with recording(rows, 2) as r:
        x, y, z = r.filled("x", 32), r.filled("y", 64), r.filled("z", 64)
        r.recorder.matmul(y, linear(64, 32), x)
        r.recorder.add(z, y)
        program = r.program(fuse=True)
        assert kinds(program) == ["quantize", "matmul"]
        assert program.ops[1].writes == {z: "columns 64"}


def test_a_product_that_is_needed_itself_is_not():
    with recording(4) as r:
        x, y, z, out = r.filled("x", 32), r.filled("y", 64), r.filled("z", 64), r.filled("out", 32)
        r.recorder.matmul(y, linear(64, 32), x)
        r.recorder.add(z, y)
        r.recorder.matmul(out, linear(32, 64), y)
        assert kinds(r.program(fuse=True)) == ["quantize", "matmul", "add", "quantize", "matmul"]


@pytest.mark.parametrize("rows", [1, 4])
def test_a_product_of_the_sum_itself_is_not(rows):
    """z += W z in one kernel would overwrite what other threads still read."""
    with recording(rows, 2) as r:
        y, z = r.filled("y", 32), r.filled("z", 32)
        r.recorder.matmul(y, linear(32, 32, "F32"), z)
        r.recorder.add(z, y)
        assert kinds(r.program(fuse=True)) == ["matmul", "add"]


def test_two_products_are_not_added_by_one_kernel():
    with recording(1) as r:
        x, y, z = r.filled("x", 32), r.filled("y", 32), r.filled("z", 32)
        for matrix in (linear(32, 32, "F32"), linear(32, 32, "F32")):
            r.recorder.matmul(y, matrix, x)
            r.recorder.add(z, y)
        assert kinds(r.program(fuse=True)) == ["matmul", "matmul"]


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_a_norm_makes_codes_for_every_thread_and_all_its_readers(kind):
    with recording(1, 3) as r:
        x, y = r.filled("x", 64), r.filled("y", 64)
        outs = [r.filled("out", 32), r.filled("out", 96)]
        for _ in range(2):
            r.recorder.norm(y, x, random_norm(kind, 64))
            for out in outs:
                r.recorder.matmul(out, linear(out.array.shape[1], 64), y)
        program = r.program(fuse=True)
        assert kinds(program) == ["norm", "matmul", "matmul"] * 2
        assert not any(op.barrier for op in program.ops[:2])  # every thread waits for nobody but itself
        strides = {op.fields["copy_bytes"] for op in program.ops}
        assert len(strides) == 1
        assert strides.pop() >= 64
        (copies,) = program.ops[0].writes
        assert all(copies in op.reads for op in program.ops if op.kind == "matmul")


def test_a_norm_whose_floats_are_needed_stays():
    with recording(1, 2) as r:
        x, y, out = r.filled("x", 64), r.filled("y", 64), r.filled("out", 32)
        r.recorder.norm(y, x, random_norm("rms", 64))
        r.recorder.matmul(out, linear(32, 64), y)
        r.recorder.add(x, y)
        assert kinds(r.program(fuse=True)) == ["norm", "quantize", "matmul", "add"]


@pytest.mark.parametrize(
    ("activation", "gated"), [*((name, True) for name in GATED), *((name, False) for name in ALONE)]
)
def test_an_activation_makes_codes(activation, gated):
    with recording(1, 2) as r:
        x, up, out = r.filled("x", 64), r.filled("up", 64), r.filled("out", 32)
        r.recorder.activate(x, up if gated else None, activation)
        r.recorder.matmul(out, linear(32, 64), x)
        assert kinds(r.program(fuse=True)) == ["activation", "matmul"]


def test_codes_are_made_again_when_what_they_came_from_changes():
    with recording(4) as r:
        x, y, out = r.filled("x", 64), r.filled("y", 64), r.filled("out", 32)
        r.recorder.matmul(out, linear(32, 64), x)
        r.recorder.matmul(out, linear(32, 64), x)
        r.recorder.add(x, y)
        r.recorder.matmul(out, linear(32, 64), x)
        program = r.program()
        assert kinds(program) == ["quantize", "matmul", "matmul", "add", "quantize", "matmul"]


# --- whole models: (file, ids) ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["Q4_0", "Q6_K", "F32"])
def model(request, tmp_path_factory):
    if request.param == "F32":
        return Model.open(write_toy_model(tmp_path_factory.mktemp("toy"), "llama-scales"))
    return Model.open(GOLDEN / "quants" / f"llama-{request.param}.gguf")


def logits(model, threads, fuse):
    runner = Runner(model, threads=threads, fuse=fuse)
    try:
        sequence = runner.sequence()
        batch = sequence.forward(toy_tokens(20), all_logits=True)
        return np.concatenate((batch, [sequence.forward([id]) for id in toy_tokens(5)]))
    finally:
        runner.close()


def test_fusing_changes_no_bit(model):
    plain = logits(model, 1, fuse=False)
    for threads in (1, 2, 3):
        assert np.array_equal(logits(model, threads, fuse=True), plain), threads
    assert np.array_equal(logits(model, 2, fuse=False), plain)


@pytest.mark.parametrize("fuse", [False, True])
def test_every_op_of_a_pass_does_what_its_twin_does(model, fuse):
    runner = Runner(model, threads=2, fuse=fuse)
    try:
        ids = toy_tokens(70)
        checked = [check_pass(runner, ids[:67], all_logits=False), *(check_pass(runner, [id]) for id in ids[67:])]
        assert runner.tokens == ids
        runner.truncate(0)
        plain = [runner.forward(ids[:67]), *(runner.forward([id]) for id in ids[67:])]
        assert np.array_equal(np.concatenate(checked), plain)
    finally:
        runner.close()
