"""Profiles: every nanosecond is counted once, under its kind of op, beside the bytes and operations of the shapes."""

from types import SimpleNamespace

import numpy as np
import pytest
from support import tiny_model
from support.golden import GOLDEN
from tinyllm_engine.expert_ops import Meeting
from tinyllm_engine.measure import profiles
from tinyllm_engine.model import Model
from tinyllm_engine.profile import SAMPLING, Pass, name_of, profile_of, work_of
from tinyllm_engine.program import Op, Program
from tinyllm_engine.quants import QUANT_TYPES
from tinyllm_engine.runner import Runner
from tinyllm_engine.tensor import TensorView

OUTPUTS = 4711  # where the number of rows with logits would stand
TYPES = {quant.name: quant for quant in QUANT_TYPES.values()}


def matrix(type_name, columns, rows):
    quant = TYPES[type_name]
    nbytes = columns // quant.block_elements * quant.block_bytes * rows
    return TensorView("w", (columns, rows), quant, np.zeros(nbytes, np.uint8))


def op(kind, keep=(), **fields):
    return Op(kind, SimpleNamespace(name=kind), fields, keep=keep)


@pytest.mark.parametrize(("position", "rows", "keys"), [(0, 1, 1), (9, 1, 10), (0, 4, 10), (10, 3, 11 + 12 + 13)])
def test_rows_attend_to_everything_up_to_themselves(position, rows, keys):
    assert Pass(position, rows).keys == keys


def test_products_are_told_apart_by_type():
    assert name_of(op("matmul", (matrix("Q4_0", 64, 4), None))) == "matmul Q4_0"
    assert name_of(op("matmul", (matrix("Q4_K", 256, 4), matrix("Q6_K", 256, 4)))) == "matmul Q4_K+Q6_K"
    assert name_of(op("embed", (matrix("Q4_0", 64, 4),))) == "embedding"
    assert name_of(op("norm")) == "norm"
    assert name_of(op("something new")) == "something new"


def test_a_product_reads_its_weights_once_a_pass():
    product = op("matmul", (matrix("Q8_0", 64, 10),))
    assert work_of(product, [Pass(0, 1)] * 3, OUTPUTS) == (3 * 680, 3 * 2 * 640)
    assert work_of(product, [Pass(0, 512), Pass(512, 88)], OUTPUTS) == (2 * 680, 600 * 2 * 640)


def test_only_the_last_row_of_a_pass_has_logits():
    product = op("matmul", (matrix("Q8_0", 64, 10),), count=OUTPUTS)
    assert work_of(product, [Pass(0, 512), Pass(512, 88)], OUTPUTS) == (2 * 680, 2 * 2 * 640)


@pytest.mark.parametrize(("count", "rows"), [(None, 600), (OUTPUTS, 2)])
def test_experts_are_read_where_rows_meet_them(count, rows):
    """A row meets 2 of 8 matrices of 10 rows; many rows meet all of them, but each row still only 2."""
    product = op("matmul", (matrix("Q8_0", 64, 80), Meeting(2, 8, count)), rows=10, columns=64, row_bytes=68)
    met = {600: 8 + 8, 2: 2 + 2}[rows]
    assert work_of(product, [Pass(0, 512), Pass(512, 88)], OUTPUTS) == (met * 680, rows * 2 * 2 * 640)
    assert work_of(product, [Pass(0, 1)], OUTPUTS) == (2 * 680, 2 * 2 * 640)


def test_attention_reads_the_cache_where_a_row_is_alone():
    # 2 heads of K and V of 8 and 16 elements, two bytes each, in pages of 64 rows; 6 heads of queries
    fields = {"heads": 6, "k_size": 8, "v_size": 16, "k_page_bytes": 64 * 2 * 8 * 2, "v_page_bytes": 64 * 2 * 16 * 2}
    attention = op("attention", **fields)
    assert work_of(attention, [Pass(9, 1)], OUTPUTS) == (10 * 2 * 24 * 2, 10 * 6 * 24 * 2)
    assert work_of(attention, [Pass(0, 4)], OUTPUTS) == (0, 10 * 6 * 24 * 2)


def test_costs_add_up_and_the_highest_comes_first():
    program = Program([op("norm"), op("matmul", (matrix("Q8_0", 64, 10),)), op("norm")])
    clocks = np.array([[100, 10], [5000, 2000], [300, 0]], np.int64)
    found = profile_of([(program, clocks)], [[Pass(0, 1)] * 2], OUTPUTS, seconds=9e-6, rest="sampling")
    assert found.tokens == 2
    assert found.seconds == pytest.approx(9e-6)
    assert [(cost.name, round(cost.seconds * 1e9)) for cost in found.costs] == [
        ("matmul Q8_0", 5000),
        ("barrier wait", 2010),
        ("sampling", 1590),
        ("norm", 400),
    ]
    assert sum(cost.percent for cost in found.costs) == pytest.approx(100)
    product, norm = found.costs[0], found.costs[-1]
    # the barrier behind it is part of the time in which a product is made
    assert product.gb_per_second == pytest.approx(2 * 680 / 7000)
    assert product.gop_per_second == pytest.approx(2 * 2 * 640 / 7000)
    assert norm.gb_per_second is norm.gop_per_second is None


def test_programs_are_summed_up_and_what_took_no_time_is_left_out():
    one_row, batch = Program([op("norm"), op("rope")]), Program([op("norm")])
    measured = [(one_row, np.array([[1, 0], [0, 0]])), (batch, np.array([[2, 0]]))]
    found = profile_of(measured, [[Pass(4, 1)], [Pass(0, 4)]], OUTPUTS, seconds=0.0, rest="calls")
    assert found.tokens == 5
    assert [(cost.name, cost.percent) for cost in found.costs] == [("norm", 100.0)]


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    runner = Runner(Model.open(tiny_model.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")), threads=2)
    yield runner
    runner.close()


def test_a_model_is_profiled_in_reading_and_writing(runner):
    found = profiles(runner, prompt=12, predict=10, runs=2)
    for profile, tokens, rest in ((found.prefill, 12, "calls"), (found.decode, 10, "sampling")):
        names = {cost.name for cost in profile.costs}
        assert names >= {"matmul F32", "attention", "norm", "rope", "append", "activation", "embedding", rest}
        assert profile.tokens == tokens
        assert sum(cost.percent for cost in profile.costs) == pytest.approx(100)
        assert sum(cost.seconds for cost in profile.costs) == pytest.approx(profile.seconds)
        costs = [cost.seconds for cost in profile.costs]
        assert costs == sorted(costs, reverse=True)


def test_clocks_are_off_again(runner):
    profiles(runner, prompt=4, predict=1, runs=1)
    runner.sequence().forward([1])
    assert not any(clocks.any() for _, clocks in runner.profile(False))


def test_products_of_a_real_program_are_all_of_its_matrices(runner):
    """Each weight once, the embedding as the output; fusing loses none."""
    model, passes = runner.model, [Pass(0, 1)]
    runner.profile(True)
    (program, _), _ = runner.profile(False)
    work = [work_of(op, passes, runner.state.outputs_address) for op in program.ops if op.kind != "attention"]
    matrices = [tensor for tensor in model.tensors.values() if len(tensor.dims) > 1]
    assert sum(nbytes for nbytes, _ in work) == sum(tensor.nbytes for tensor in matrices)
    assert sum(operations for _, operations in work) == sum(2 * np.prod(tensor.dims) for tensor in matrices)


def test_what_is_written_can_be_profiled_while_it_goes_on():
    runner = Runner(Model.open(GOLDEN / "quants" / "llama-Q4_0.gguf"), context_length=64, threads=1)
    try:
        assert [cost.name for cost in runner.written_profile(3, 0.5).costs] == [SAMPLING]  # no clocks
        runner.profile(True)
        for id in (1, 2, 3):
            runner.forward([id])
        found = runner.written_profile(3, 10.0)
        assert (found.tokens, found.seconds) == (3, pytest.approx(10.0))
        assert found.costs[0].name == SAMPLING
        assert {"matmul Q4_0", "attention"} <= {cost.name for cost in found.costs}
        assert sum(cost.percent for cost in found.costs) == pytest.approx(100)
        before = next(cost.seconds for cost in found.costs if cost.name == "attention")
        runner.forward([4])
        after = next(cost.seconds for cost in runner.written_profile(4, 10.0).costs if cost.name == "attention")
        assert after > before
    finally:
        runner.close()
