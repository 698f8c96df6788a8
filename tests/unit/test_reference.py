"""The reference runner keeps the contract of a Sequence, and its parts do what their formulas say."""

import math
import subprocess
import sys

import numpy as np
import pytest
from support.golden import nmse, toy_tokens, write_toy_model
from tinyllm_engine.cancel import Cancel
from tinyllm_engine.errors import (
    CancelledError,
    ContextFullError,
    EngineError,
    ModelError,
    TokenizerError,
    UnsupportedModelError,
)
from tinyllm_engine.model import Model
from tinyllm_engine.parts.attention import Scoring
from tinyllm_engine.reference import BATCH, ReferenceRunner, attention, rmsnorm, rotate, silu


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Model.open(write_toy_model(tmp_path_factory.mktemp("toy"), "llama-gqa"))


@pytest.fixture(scope="module")
def runner(model):
    return ReferenceRunner(model)


def forget(model, name):
    """The same model as if its file had no such tensor."""
    other = Model.open(model.path)
    other.tensors = {key: value for key, value in model.tensors.items() if key != name}
    return other


# --- the contract of a sequence ---------------------------------------------------------------------------------------


def test_forward_gives_the_last_logits_or_all(runner):
    ids = toy_tokens(10)
    last = runner.sequence().forward(ids)
    every = runner.sequence().forward(ids, all_logits=True)
    assert last.shape == (128,)
    assert every.shape == (10, 128)
    assert every.dtype == np.float32
    assert nmse(every[-1], last) < 1e-9


def test_tokens_and_position_follow(runner):
    sequence = runner.sequence()
    sequence.forward([1, 2])
    sequence.forward([3])
    assert (sequence.tokens, sequence.position) == ([1, 2, 3], 3)
    assert runner.sequence().position == 0


def test_truncated_and_continued_equals_fresh(runner):
    ids = toy_tokens(20)
    sequence = runner.sequence()
    sequence.forward([*ids[:8], 5, 6, 7])
    assert sequence.truncate(8) == 8
    found = sequence.forward(ids[8:])
    assert nmse(found, runner.sequence().forward(ids)) < 1e-9
    assert sequence.tokens == ids


@pytest.mark.parametrize(("n", "kept"), [(99, 3), (3, 3), (0, 0), (-1, 0)])
def test_truncate_keeps_at_most_what_is_there(runner, n, kept):
    sequence = runner.sequence()
    sequence.forward([1, 2, 3])
    assert sequence.truncate(n) == kept == sequence.position


def test_tokens_that_do_not_fit_change_nothing(model):
    sequence = ReferenceRunner(model, context_length=4).sequence()
    sequence.forward([1, 2])
    with pytest.raises(ContextFullError, match="3 tokens do not fit, 2 of 4 left"):
        sequence.forward([3, 4, 5])
    assert sequence.tokens == [1, 2]
    sequence.forward([3, 4])


def test_the_context_is_the_models_by_default(runner, model):
    assert runner.context_length == model.config.context_length == 256


@pytest.mark.parametrize("id", [-1, 128])
def test_an_id_outside_the_vocabulary_is_refused(runner, id):
    sequence = runner.sequence()
    with pytest.raises(TokenizerError, match=f"expected 0 to 127, found {id}"):
        sequence.forward([1, id])
    assert sequence.position == 0


def test_nothing_to_evaluate_is_refused(runner):
    with pytest.raises(EngineError, match="at least one token id"):
        runner.sequence().forward([])


def test_progress_and_cancel_come_between_batches(runner):
    sequence, cancel, seen = runner.sequence(), Cancel(), []

    def progress(done, total):
        seen.append((done, total))
        cancel.set()

    ids = [1] * (BATCH + 10)
    with pytest.raises(CancelledError, match=f"after {BATCH} of {BATCH + 10} tokens"):
        sequence.forward(ids, cancel=cancel, progress=progress)
    assert seen == [(BATCH, BATCH + 10)]
    assert sequence.tokens == [1] * BATCH
    cancel.clear()
    found = sequence.forward(ids[BATCH:])
    assert nmse(found, runner.sequence().forward(ids)) < 1e-9


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_it_cannot_run_is_refused_by_name(tmp_path):
    with pytest.raises(UnsupportedModelError, match=r"found Mamba2$"):
        ReferenceRunner(Model.open(write_toy_model(tmp_path, "mamba2-dense")))


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "output_norm.weight"])
def test_a_missing_tensor_is_named(model, name):
    with pytest.raises(ModelError, match=name):
        ReferenceRunner(forget(model, name))


def test_without_an_output_matrix_the_embedding_is_used(model):
    tied = ReferenceRunner(forget(model, "output.weight")).sequence().forward([1])
    twice = forget(model, "output.weight")
    twice.tensors["output.weight"] = model.tensors["token_embd.weight"]
    np.testing.assert_array_equal(tied, ReferenceRunner(twice).sequence().forward([1]))


def test_it_needs_no_compiler():
    code = "import sys, tinyllm_engine.reference; assert 'numba' not in sys.modules, 'numba was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the parts --------------------------------------------------------------------------------------------------------


def test_rmsnorm():
    x = np.array([[3, 4], [0, 0]], np.float32)
    expected = [[3 / math.sqrt(12.5 + 0.5) * 2, 4 / math.sqrt(13) * 3], [0, 0]]
    np.testing.assert_allclose(rmsnorm(x, np.array([2, 3], np.float32), 0.5), expected, rtol=1e-6)


def test_silu_is_smooth_and_survives_large_values():
    x = np.array([-1000, -1, 0, 1, 1000], np.float32)
    with np.errstate(over="raise"):
        found = silu(x)
    np.testing.assert_allclose(found, [0, -1 / (1 + math.e), 0, math.e / (1 + math.e), 1000], rtol=1e-6, atol=1e-30)


def test_rotation_turns_neighbours_and_leaves_the_rest():
    x = np.array([[[1, 0, 0, 1, 5, 6]]], np.float32)  # two pairs of three rotate
    angle = np.array([[[math.pi / 2, math.pi]]], np.float32)
    np.testing.assert_allclose(rotate(x, np.cos(angle), np.sin(angle)), [[[0, 1, 0, -1, 5, 6]]], atol=1e-6)


def test_rotation_may_turn_the_halves_of_what_rotates():
    x = np.array([[[1, 0, 0, 1, 5, 6]]], np.float32)
    angle = np.array([[[math.pi / 2, math.pi]]], np.float32)
    turned = rotate(x, np.cos(angle), np.sin(angle), interleaved=False)
    np.testing.assert_allclose(turned, [[[0, 0, 1, -1, 5, 6]]], atol=1e-6)


def test_rotation_makes_scores_depend_on_distance_alone():
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 1, 1, 8)).astype(np.float32)
    inv_freq = np.array([1.0, 0.3, 0.1, 0.01], np.float32)

    def score(p, r):
        turned = [
            rotate(x, np.cos(a * inv_freq)[None, None], np.sin(a * inv_freq)[None, None]) for x, a in ((q, p), (k, r))
        ]
        return float((turned[0] * turned[1]).sum())

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)


def test_attention_against_its_definition():
    rng = np.random.default_rng(3)
    n, past, heads, n_kv, d, d_v = 3, 2, 4, 2, 8, 6
    q = rng.standard_normal((n, heads, d)).astype(np.float32)
    k = rng.standard_normal((past + n, n_kv, d)).astype(np.float32)
    v = rng.standard_normal((past + n, n_kv, d_v)).astype(np.float32)
    found = attention(q, k, v, np.arange(past, past + n), Scoring(d**-0.5)).reshape(n, heads, d_v)
    for row in range(n):
        for head in range(heads):
            shared, visible = head // 2, past + row + 1
            scores = k[:visible, shared] @ q[row, head] / math.sqrt(d)
            p = np.exp(scores - scores.max())
            np.testing.assert_allclose(found[row, head], p / p.sum() @ v[:visible, shared], rtol=1e-4, atol=1e-6)
