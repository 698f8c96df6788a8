"""Choosing experts and going through them: kernels against their twins, and one row against all of a batch."""

import numpy as np
import pytest
from support.recording import TYPES, random_tensor, recording
from tinyllm_engine import agreed
from tinyllm_engine.parts.experts import Routing
from tinyllm_engine.parts.stack import Stack
from tinyllm_engine.tensor import TensorView

GATINGS = [agreed.SOFTMAX, agreed.SIGMOID, agreed.SOFTMAX_OF_CHOSEN, agreed.SQRT_SOFTPLUS]


def routed(routing, scores, threads=1):
    """(chosen, weights) of these scores [rows, experts], each op checked against its twin."""
    rows = len(scores)
    with recording(rows, threads) as r:
        buffer = r.recorder.buffer("scores", routing.experts)
        buffer.array[:rows] = scores
        choice = r.recorder.route(buffer, routing)
        r.check()
        return choice.chosen.array.copy(), choice.weights.array.copy()


def random_scores(rows, experts, seed=1):
    return np.random.default_rng(seed).normal(0, 2, (rows, experts)).astype(np.float32)


@pytest.mark.parametrize("gating", GATINGS)
@pytest.mark.parametrize(("experts", "used"), [(1, 1), (2, 2), (7, 3), (60, 4), (128, 8)])
def test_routes(gating, experts, used):
    bias = np.random.default_rng(2).normal(0, 1, experts).astype(np.float32)
    for routing in (
        Routing(experts, used, gating, gating),
        Routing(experts, used, gating, gating, bias=bias, normalized=True, scale=2.5),
        Routing(experts, used, gating, agreed.SOFTMAX_OF_CHOSEN, normalized=True),
    ):
        scores = random_scores(9, experts)
        expected = routed(routing, scores)
        for rows, threads in ((9, 3), (4, 2), (1, 1), (1, 2)):
            for found, wanted in zip(routed(routing, scores[:rows], threads), expected, strict=True):
                assert np.array_equal(found, wanted[:rows])


@pytest.mark.parametrize(("sections", "used"), [(2, 1), (4, 2), (8, 5)])
def test_routes_within_the_best_sections(sections, used):
    bias = np.random.default_rng(3).normal(0, 0.3, 32).astype(np.float32)
    routing = Routing(32, 4, agreed.SIGMOID, agreed.SIGMOID, bias, sections, used, normalized=True)
    chosen, _ = routed(routing, random_scores(20, 32))
    assert all(len(set(row // (32 // sections))) <= used for row in chosen)


def test_of_equal_experts_the_first_are_chosen():
    for gating in GATINGS:
        chosen, weights = routed(Routing(6, 3, gating, gating), np.zeros((2, 6), np.float32))
        assert chosen.tolist() == [[0, 1, 2]] * 2
        assert (weights == weights[0, 0]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sections", [1, 3])
def test_no_expert_is_chosen_twice_whatever_the_scores(bad, sections):
    """An expert's rows have room for the batch, not for more; and a number that is none must not look like a result."""
    routing = Routing(6, 5, agreed.SOFTMAX, agreed.SOFTMAX, sections=sections, sections_used=1)
    scores = random_scores(3, 6)
    scores[0] = bad
    scores[1, 2] = bad
    chosen, weights = routed(routing, scores)
    assert all(len(set(row)) == 5 for row in chosen.tolist())
    assert ((chosen >= 0) & (chosen < 6)).all()
    assert not np.isfinite(weights[0]).all()
    assert np.isfinite(weights[2]).all()


# --- through the experts and back -------------------------------------------------------------------------------------

EXPERTS, USED, INPUTS, WIDTH = 6, 3, 96, 64


def stack_of(kind, inputs, outputs, seed, bias=False):
    tensor = random_tensor(TYPES[kind], inputs, outputs * EXPERTS, seed)
    weight = TensorView(tensor.name, (inputs, outputs, EXPERTS), tensor.type, tensor.data)
    biases = np.random.default_rng(seed).normal(0, 1, (EXPERTS, outputs)).astype(np.float32) if bias else None
    return Stack(weight, 0, outputs, EXPERTS, biases)


def through_experts(kinds, x, threads=1, fuse=False, weighted_inputs=False):
    """float32 [rows, INPUTS]: down(silu(gate(x)) * up(x)) of each row's experts, mixed, checked against the twins."""
    gate, up, down = (
        stack_of(kind, *shape, seed, bias)
        for seed, (kind, shape, bias) in enumerate(
            zip(kinds, ((INPUTS, WIDTH), (INPUTS, WIDTH), (WIDTH, INPUTS)), (True, False, True), strict=True)
        )
    )
    routing = Routing(EXPERTS, USED, agreed.SOFTMAX, agreed.SOFTMAX, normalized=True)
    rows = len(x)
    with recording(rows, threads) as r:
        p = r.recorder
        xb, scores, out = p.buffer("xb", INPUTS), p.buffer("scores", EXPERTS), p.buffer("out", INPUTS)
        xb.array[:rows], scores.array[:rows] = x, x[:, :EXPERTS]
        choice = p.route(scores, routing)
        xs = p.to_experts(xb, choice, (gate, up), weighted_inputs)
        hidden, ups = (p.expert_matmul(name, s, xs, choice) for name, s in (("gate", gate), ("up", up)))
        p.activate(hidden, ups, "silu")
        p.from_experts(out, p.expert_matmul("y", down, hidden, choice), choice, not weighted_inputs)
        r.check(fuse)
        return out.array[:rows].copy()


@pytest.mark.parametrize("kinds", [("Q8_0",) * 3, ("Q4_0", "F32", "Q8_0"), ("F32",) * 3], ids="-".join)
@pytest.mark.parametrize("weighted_inputs", [False, True])
def test_experts(kinds, weighted_inputs):
    """Whatever the batch and the number of threads: the same bits, where weights are stored in blocks."""
    x = np.random.default_rng(4).normal(0, 1, (11, INPUTS)).astype(np.float32)
    expected = through_experts(kinds, x, weighted_inputs=weighted_inputs)
    for rows, threads in ((11, 3), (5, 2)):
        found = through_experts(kinds, x[:rows], threads, weighted_inputs=weighted_inputs)
        assert np.array_equal(found, expected[:rows])
    one = through_experts(kinds, x[:1], weighted_inputs=weighted_inputs)
    np.testing.assert_allclose(one[0], expected[0], rtol=1e-4, atol=1e-4)
    if "F32" not in kinds:
        assert np.array_equal(one[0], expected[0])
    for threads in (2, 4):
        for fuse in (False, True):
            found = through_experts(kinds, x[:1], threads, fuse, weighted_inputs)
            assert np.array_equal(found, one)


def test_rows_are_gated():
    with recording(3, 2) as r:
        x, gate = r.filled("x", 96), r.filled("gate", 1, scale=50)
        r.recorder.gate_rows(x, gate)
        r.check()
