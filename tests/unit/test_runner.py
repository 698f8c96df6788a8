"""Runner and Sequence: however tokens are fed, cut, cancelled and spread over threads, the answer is the same."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from support import tiny_model
from support.gguf_files import Tensor, build
from support.golden import GOLDEN, nmse, toy_tokens
from tinyllm_engine import runner as runner_module
from tinyllm_engine.cancel import Cancel
from tinyllm_engine.errors import (
    CancelledError,
    ContextFullError,
    EngineError,
    TokenizerError,
    UnsupportedModelError,
)
from tinyllm_engine.kernels.arguments import BATCH
from tinyllm_engine.model import Model
from tinyllm_engine.processors import default_threads
from tinyllm_engine.reference import ReferenceRunner
from tinyllm_engine.runner import OUTPUTS, Runner
from tinyllm_engine.twins import check_pass

CONTEXT = 256
QUANTIZED = GOLDEN / "quants" / "llama-Q4_0.gguf"  # its answers are the same bits in any batch


@pytest.fixture(scope="module")
def model():
    return Model.open(QUANTIZED)


@pytest.fixture(scope="module")
def runner(model):
    made = Runner(model, context_length=CONTEXT, threads=2)
    yield made
    made.close()


@pytest.fixture
def sequence(runner):
    runner.truncate(0)
    return runner.sequence()


@pytest.fixture
def small_batches(monkeypatch):
    """Prompts come in several batches without being long."""
    monkeypatch.setattr(runner_module, "BATCH", 16)
    monkeypatch.setattr(runner_module, "OUTPUTS", 8)


def fresh(model, ids, all_logits=False, **options):
    made = Runner(model, context_length=CONTEXT, **options)
    try:
        return made.forward(ids, all_logits)
    finally:
        made.close()


# --- feeding ----------------------------------------------------------------------------------------------------------


def test_logits_come_after_the_last_token_or_after_each(sequence):
    ids = toy_tokens(30)
    last = sequence.forward(ids)
    assert (last.shape, last.dtype) == ((128,), np.float32)
    sequence.truncate(0)
    every = sequence.forward(ids, all_logits=True)
    assert (every.shape, every.dtype) == ((30, 128), np.float32)
    assert np.array_equal(every[-1], last)
    assert sequence.tokens == ids
    assert sequence.position == 30


def test_one_by_one_in_batches_and_at_once_are_the_same_bits(sequence):
    ids = toy_tokens(150)
    at_once = sequence.forward(ids, all_logits=True)
    sequence.truncate(0)
    one_by_one = np.stack([sequence.forward([id]) for id in ids])
    assert np.array_equal(one_by_one, at_once)
    sequence.truncate(0)
    at, parts = 0, []
    for size in (2, 1, 3, 60, 5, 64, 15):
        parts.append(sequence.forward(ids[at : at + size], all_logits=True))
        at += size
    assert at == 150
    assert np.array_equal(np.concatenate(parts), at_once)


@pytest.mark.parametrize("threads", [1, 3, 4])
def test_any_number_of_threads_gives_the_same_bits(model, sequence, threads):
    ids = toy_tokens(90)
    expected = [sequence.forward(ids), sequence.forward([7])]
    other = Runner(model, context_length=CONTEXT, threads=threads)
    try:
        assert other.threads == threads
        assert np.array_equal([other.forward(ids), other.forward([7])], expected)
    finally:
        other.close()


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.usefixtures("small_batches")
def test_a_prompt_of_several_batches(model, kv_type):
    ids = toy_tokens(53)  # 16, 16, 16, 5; and in eights where every row has logits
    runner = Runner(model, context_length=CONTEXT, kv_type=kv_type, threads=2)
    try:
        seen = []
        last = runner.sequence().forward(ids, progress=lambda done, total: seen.append((done, total)))
        assert seen == [(16, 53), (32, 53), (48, 53), (53, 53)]
        runner.truncate(0)
        assert np.array_equal(runner.forward(ids, all_logits=True)[-1], last)
    finally:
        runner.close()
    exact = ReferenceRunner(model).sequence().forward(ids)
    assert nmse(last, exact) < 0.01


# How far the logits of a toy may be from those with a cache of f32: of whatever type is the coarser one.
CACHE_ERRORS = {"f32": 0.0, "f16": 2e-4, "bf16": 3e-4, "q8_0": 7e-4, "q4_0": 4e-2}


@pytest.fixture(scope="module")
def exact_cache(model):
    return fresh(model, toy_tokens(150), all_logits=True, kv_type="f32", threads=1)


@pytest.mark.parametrize("k_type", CACHE_ERRORS)
@pytest.mark.parametrize("v_type", CACHE_ERRORS)
def test_each_pair_of_cache_types(model, exact_cache, k_type, v_type):
    """Near the exact cache, and the same bits one by one as at once."""
    ids = toy_tokens(150)
    runner = Runner(model, context_length=CONTEXT, k_type=k_type, v_type=v_type, threads=2)
    try:
        at_once = runner.forward(ids, all_logits=True)
        assert nmse(at_once, exact_cache) <= max(CACHE_ERRORS[k_type], CACHE_ERRORS[v_type])
        assert runner.truncate(120) >= 64  # in q4_0, where a page begins
        position = runner.position
        assert np.array_equal(np.stack([runner.forward([id]) for id in ids[position:]]), at_once[position:])
    finally:
        runner.close()


def test_rows_that_get_logits_are_those_asked_for(model):
    """More rows than can have logits in a pass, and a row alone in the last one."""
    assert OUTPUTS < 129 <= BATCH
    ids = toy_tokens(129)
    every = fresh(model, ids, all_logits=True)
    assert np.array_equal(every[-1], fresh(model, ids))
    assert np.array_equal(every[0], fresh(model, ids[:1]))


def test_the_answer_belongs_to_the_caller(sequence):
    first = sequence.forward([1, 2])
    kept = first.copy()
    sequence.forward([3])
    sequence.forward([4, 5])
    assert np.array_equal(first, kept)


def test_the_runner_speaks_of_its_sequence(runner):
    runner.truncate(0)
    runner.forward([1, 2, 3])
    assert runner.sequence() is runner.sequence()
    assert (runner.tokens, runner.position) == ([1, 2, 3], 3) == (runner.sequence().tokens, runner.sequence().position)
    assert runner.truncate(1) == 1 == runner.position
    assert runner.sequence().context_length == runner.context_length == CONTEXT


# --- truncating -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1, 63, 64, 65, 128, 140])
def test_truncated_and_continued_equals_fresh(sequence, kept):
    ids = toy_tokens(150)
    expected = sequence.forward(ids)
    sequence.truncate(0)
    sequence.forward([*ids[:kept], *[5] * (145 - kept)])
    assert sequence.truncate(kept) == kept == sequence.position
    assert sequence.runner.cache.pages_in_use == -(-kept // 64)
    assert np.array_equal(sequence.forward(ids[kept:]), expected)
    assert sequence.tokens == ids


@pytest.mark.parametrize(("n", "kept"), [(99, 3), (3, 3), (0, 0), (-1, 0)])
def test_truncate_keeps_at_most_what_is_there(sequence, n, kept):
    sequence.forward([1, 2, 3])
    assert sequence.truncate(n) == kept == sequence.position


# --- what is refused --------------------------------------------------------------------------------------------------


def cache_bytes(runner):
    return runner.cache._area.bytes.tobytes()


def test_tokens_that_do_not_fit_change_nothing(model):
    runner = Runner(model, context_length=70, threads=2)
    try:
        sequence = runner.sequence()
        sequence.forward(toy_tokens(60))
        before = cache_bytes(runner), runner.cache.pages_in_use
        with pytest.raises(ContextFullError, match="context: 11 tokens do not fit, 10 of 70 are free"):
            sequence.forward(toy_tokens(11))
        assert (cache_bytes(runner), runner.cache.pages_in_use) == before
        assert sequence.position == 60
        full = sequence.forward(toy_tokens(10))
        with pytest.raises(ContextFullError, match="1 tokens do not fit, 0 of 70 are free"):
            sequence.forward([1])
        assert np.array_equal(full, fresh(model, [*toy_tokens(60), *toy_tokens(10)]))
    finally:
        runner.close()


@pytest.mark.parametrize("id", [-1, 128, 1 << 40])
def test_an_id_outside_the_vocabulary_is_refused(sequence, id):
    with pytest.raises(TokenizerError, match=f"token id: expected 0 to 127, found {id}"):
        sequence.forward([1, 2, id])
    assert sequence.tokens == []


def test_nothing_to_evaluate_is_refused(sequence):
    with pytest.raises(EngineError, match="at least one token id"):
        sequence.forward([])


def test_a_cache_type_that_does_not_exist(model):
    with pytest.raises(UnsupportedModelError, match=r"expected one of f32, .*; found 'q9'"):
        Runner(model, kv_type="q9")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key_length": 60}, "attention.key_length: expected a multiple of 8, found 60"),
        ({"value_length": 60}, "attention.value_length: expected a multiple of 8, found 60"),
        ({"embedding_length": 260}, "embedding_length: expected a multiple of 8, found 260"),
        ({"feed_forward_length": (524,)}, "feed_forward_length: expected a multiple of 8, found 524"),
    ],
)
def test_shapes_no_kernel_is_made_for(change, message):
    model = Model.open(QUANTIZED)
    assert model.weights.layers  # read with the file's own shapes
    model.config = replace(model.config, **change)
    with pytest.raises(UnsupportedModelError, match=message):
        Runner(model)


# --- cancelling -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_a_cancelled_prompt_keeps_its_complete_batches(model):
    ids, cancel = toy_tokens(53), Cancel()
    runner = Runner(model, context_length=CONTEXT, threads=2)
    try:
        sequence = runner.sequence()

        def stop_after_two(done, total):
            if done == 32:
                cancel.set()

        with pytest.raises(CancelledError, match="cancelled after 32 of 53 tokens"):
            sequence.forward(ids, cancel=cancel, progress=stop_after_two)
        assert sequence.tokens == ids[:32]
        assert runner.cache.pages_in_use == 1
        cancel.clear()
        assert np.array_equal(sequence.forward(ids[32:], cancel=cancel), fresh(model, ids))
    finally:
        runner.close()


@pytest.mark.parametrize("count", [1, 70])
def test_a_flag_that_is_set_already_lets_nothing_through(sequence, count):
    expected = sequence.forward([*toy_tokens(64), 9])
    sequence.truncate(64)
    cancel = Cancel()
    cancel.set()
    with pytest.raises(CancelledError, match=f"after 0 of {count} tokens"):
        sequence.forward([1] * count, cancel=cancel)
    assert sequence.tokens == toy_tokens(64)
    assert sequence.runner.cache.pages_in_use == 1
    assert np.array_equal(sequence.forward([9]), expected)


def test_a_flag_set_by_another_thread(sequence):
    """Whenever it comes, the pass either is complete or leaves no trace."""
    ids, cancel = toy_tokens(128), Cancel()
    expected = sequence.forward(ids)
    for _ in range(20):
        sequence.truncate(0)
        cancel.clear()
        setter = threading.Thread(target=cancel.set)
        try:
            setter.start()
            sequence.forward(ids, cancel=cancel)
            assert sequence.tokens == ids
        except CancelledError:
            assert sequence.tokens == []
            assert sequence.runner.cache.pages_in_use == 0
        setter.join()
    sequence.truncate(0)
    assert np.array_equal(sequence.forward(ids), expected)


# --- the runner itself ------------------------------------------------------------------------------------------------


def test_defaults(model):
    runner = Runner(model)
    try:
        assert runner.context_length == model.config.context_length == 256
        assert runner.threads == default_threads()
        assert (runner.k_type, runner.v_type, runner.kv_bytes_per_token) == ("f16", "f16", 2 * 2 * (64 + 64))
    finally:
        runner.close()


def test_a_closed_runner_runs_again(model):
    runner = Runner(model, context_length=CONTEXT, threads=3)
    first = runner.forward([1, 2, 3])
    runner.close()
    runner.close()
    runner.truncate(0)
    assert np.array_equal(runner.forward([1, 2, 3]), first)
    runner.close()


def test_progress_counts_kernels_to_the_end(model):
    seen = []
    Runner(model, context_length=CONTEXT, progress=lambda *event: seen.append(event)).close()
    stages, done, totals = zip(*seen, strict=True)
    assert len(set(stages)) == 1
    assert set(stages) <= {"compiling kernels", "loading kernels"}  # whichever the cache leaves to do
    assert list(done) == sorted(done)
    assert done[-1] == totals[-1] == max(done)
    assert len(set(totals)) == 1


def test_a_profile_covers_every_op_of_the_programs_that_ran(runner):
    runner.truncate(0)
    runner.profile(True)
    runner.forward([1, 2, 3])
    runner.forward([4])
    measured = runner.profile(False)
    assert [clocks.shape for _, clocks in measured] == [(len(program.ops), 2) for program, _ in measured]
    assert len(measured) == 2
    runner.forward([5])
    assert runner.profile(False) == []


# --- layers that differ -----------------------------------------------------------------------------------------------


def write_uneven_model(path, heads, kv_heads, feed_forward):
    """A model of two blocks whose sizes are given for each; float32, heads of 16."""
    random = np.random.default_rng(3)
    size, embedding = 16, tiny_model.EMBEDDING
    shapes = {"token_embd": (258, embedding), "output_norm": (embedding,)}
    for block in range(2):
        shapes |= {
            f"blk.{block}.attn_norm": (embedding,),
            f"blk.{block}.attn_q": (heads[block] * size, embedding),
            f"blk.{block}.attn_k": (kv_heads[block] * size, embedding),
            f"blk.{block}.attn_v": (kv_heads[block] * size, embedding),
            f"blk.{block}.attn_output": (embedding, heads[block] * size),
            f"blk.{block}.ffn_norm": (embedding,),
            f"blk.{block}.ffn_gate": (feed_forward[block], embedding),
            f"blk.{block}.ffn_up": (feed_forward[block], embedding),
            f"blk.{block}.ffn_down": (embedding, feed_forward[block]),
        }
    weights = {f"{name}.weight": random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    metadata = tiny_model.metadata(
        attention__head_count=np.array(heads, np.uint32),
        attention__head_count_kv=np.array(kv_heads, np.uint32),
        feed_forward_length=np.array(feed_forward, np.uint32),
        attention__key_length=size,
        attention__value_length=size,
    )
    path.write_bytes(build(metadata, [Tensor.of(name, values) for name, values in weights.items()]))
    return path


@pytest.mark.parametrize("sizes", [([4, 2], [2, 2], [96, 32]), ([2, 8], [2, 4], [32, 96])])
def test_blocks_of_different_sizes(tmp_path, sizes):
    model = Model.open(write_uneven_model(tmp_path / "uneven.gguf", *sizes))
    ids = toy_tokens(20)
    exact = ReferenceRunner(model).sequence().forward(ids, all_logits=True)
    runner = Runner(model, kv_type="f32", threads=2)
    try:
        assert nmse(runner.forward(ids, all_logits=True), exact) < 1e-6
        runner.truncate(0)
        assert nmse(np.stack([runner.forward([id]) for id in ids]), exact) < 1e-6
        runner.truncate(0)
        check_pass(runner, ids)
        check_pass(runner, [1])
    finally:
        runner.close()
