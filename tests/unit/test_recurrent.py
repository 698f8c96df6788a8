"""Models that remember: whatever is read, cut off, taken up again or cancelled, the answer is that of a fresh start."""

import threading

import numpy as np
import pytest
from support import recurrent_model
from tinyllm_engine import recurrent_state
from tinyllm_engine import runner as runner_module
from tinyllm_engine.cancel import Cancel
from tinyllm_engine.errors import CancelledError, ModelError, UnsupportedModelError
from tinyllm_engine.generation import Finished, Token, generate
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner, Sequence
from tinyllm_engine.sampling import SamplingParams
from tinyllm_engine.twins import check_pass

CONTEXT = 256
GREEDY = SamplingParams(temperature=0.0, seed=5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Model.open(recurrent_model.write(tmp_path_factory.mktemp("recurrent") / "toy.gguf"))


@pytest.fixture(scope="module")
def runner(model):
    made = Runner(model, context_length=CONTEXT, threads=2)
    yield made
    made.close()


@pytest.fixture
def sequence(runner):
    runner.truncate(0)
    return runner.sequence()


def ids_of(count, seed=1):
    return np.random.default_rng(seed).integers(0, 256, count).tolist()


@pytest.fixture(scope="module")
def fresh(model):
    """Logits after a prompt that a sequence of another runner has read at once from the beginning."""
    made = Runner(model, context_length=CONTEXT, threads=1)

    def logits(ids):
        made.truncate(0)
        return made.forward(ids)

    yield logits
    made.close()


def test_one_by_one_in_batches_and_at_once_are_the_same_bits(sequence):
    ids = ids_of(150)
    at_once = sequence.forward(ids, all_logits=True)
    sequence.truncate(0)
    assert np.array_equal(np.stack([sequence.forward([id]) for id in ids]), at_once)
    sequence.truncate(0)
    at, parts = 0, []
    for size in (2, 1, 3, 60, 5, 64, 15):
        parts.append(sequence.forward(ids[at : at + size], all_logits=True))
        at += size
    assert np.array_equal(np.concatenate(parts), at_once)


@pytest.mark.parametrize("threads", [1, 3, 4])
def test_any_number_of_threads_gives_the_same_bits(model, fresh, threads):
    ids = ids_of(90)
    other = Runner(model, context_length=CONTEXT, threads=threads)
    try:
        assert np.array_equal(other.forward(ids), fresh(ids))
        assert np.array_equal(other.forward([7]), fresh([*ids, 7]))
    finally:
        other.close()


def test_every_kernel_does_what_its_twin_says(runner):
    runner.truncate(0)
    check_pass(runner, ids_of(20), all_logits=True)
    check_pass(runner, [3])


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"ssm__group_count": 4}, ModelError, r"ssm.group_count'?: expected a divisor of .* 6, found 4"),
        ({"ssm__time_step_rank": 5}, ModelError, r"ssm.time_step_rank'?: expected a divisor of .* 96, found 5"),
        ({"ssm__time_step_rank": 8}, UnsupportedModelError, r"inner_size / .*: expected a multiple of 8, found 12"),
        ({"ssm__state_size": 18}, UnsupportedModelError, r"ssm.state_size'?: expected a multiple of 4, found 18"),
        (
            {"ssm__state_size": None},
            ModelError,
            r"ssm.state_size'?: expected an integer from 1 to .*, found no such key",
        ),
        ({"ssm__conv_kernel": 1 << 40}, ModelError, r"ssm.conv_kernel'?: expected an integer from 1 to 256, found"),
        ({"ssm__conv_kernel": 3}, ModelError, r"'blk.0.ssm_conv1d.weight': expected 3 x 160, found 4 x 160"),
        ({"ssm__state_size": 1 << 20}, ModelError, r"'blk.0.ssm_in.weight': expected 64 x 4194502, found 64 x 262"),
    ],
)
def test_sizes_that_do_not_belong_together(tmp_path, change, kind, message):
    model = Model.open(recurrent_model.write(tmp_path / "bad.gguf", **change))
    with pytest.raises(kind, match=message):
        Runner(model)


# --- going back -------------------------------------------------------------------------------------------------------


def test_truncate_goes_back_to_where_a_turn_began(sequence, fresh):
    ids = ids_of(120)
    sequence.forward(ids[:40])
    for id in ids[40:60]:
        sequence.forward([id])
    sequence.forward(ids[60:100])
    for id in ids[100:]:
        sequence.forward([id])
    for asked, kept in ((120, 120), (119, 100), (100, 100), (99, 60), (60, 60), (59, 40), (39, 0)):
        assert sequence.truncate(asked) == kept == sequence.position
        assert sequence.tokens == ids[:kept]
        assert sequence.runner.cache.pages_in_use == -(-kept // 64)
        assert np.array_equal(sequence.forward([9, 8]), fresh([*ids[:kept], 9, 8]))
        sequence.truncate(kept)


def test_what_follows_a_return_does_not_spoil_it(sequence, fresh):
    """The same turn is taken back again and again, and left in different ways."""
    prompt = ids_of(50)
    sequence.forward(prompt)
    for answer in (ids_of(1, 2), ids_of(2, 3), ids_of(5, 4), ids_of(30, 5)):
        for id in answer:
            sequence.forward([id])
        assert sequence.truncate(50) == 50
        assert np.array_equal(sequence.forward(answer), fresh([*prompt, *answer]))
        assert sequence.truncate(50) == 50


def test_checkpoints_take_memory_within_bounds(model, monkeypatch):
    monkeypatch.setattr(recurrent_state, "MOST_CHECKPOINTS", 4)
    runner = Runner(model, context_length=CONTEXT, threads=1)
    try:
        states = runner.cache.states
        per_block = recurrent_model.XBC * (recurrent_model.TAPS - 1) + recurrent_model.INNER * recurrent_model.STATE
        assert states.block_bytes == recurrent_model.BLOCKS * 4 * per_block
        assert runner.cache.bytes_in_use == 0
        for turn in range(1, 8):
            runner.forward(ids_of(10, turn))
            runner.forward([1])
        assert runner.cache.bytes_in_use == 2 * 64 * runner.kv_bytes_per_token + runner.state_bytes
        assert runner.state_bytes == 6 * states.block_bytes
        assert runner.truncate(76) == 76
        runner.truncate(0)
        assert runner.cache.bytes_in_use == 2 * states.block_bytes
    finally:
        runner.close()


def test_sequences_remember_each_their_own(runner, fresh):
    one, other = Sequence(runner), Sequence(runner)
    try:
        left, right = ids_of(50, 1), ids_of(50, 2)
        for at in range(0, 50, 10):
            for id in left[at : at + 10]:
                one.forward([id])
            last = other.forward(right[at : at + 10])
        assert np.array_equal(last, fresh(right))
        assert one.truncate(0) == 0
        assert np.array_equal(other.forward([3]), fresh([*right, 3]))
        assert np.array_equal(one.forward(left), fresh(left))
    finally:
        one.truncate(0)
        other.truncate(0)


# --- cancelling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 70])
def test_a_cancelled_pass_leaves_no_trace(sequence, fresh, count):
    prompt, cancel = ids_of(64), Cancel()
    sequence.forward(prompt)
    cancel.set()
    for _ in range(3):
        with pytest.raises(CancelledError):
            sequence.forward([1] * count, cancel=cancel)
        assert sequence.tokens == prompt
    assert np.array_equal(sequence.forward([9]), fresh([*prompt, 9]))


def test_a_prompt_that_is_cancelled_halfway(model, fresh, monkeypatch):
    monkeypatch.setattr(runner_module, "BATCH", 16)
    ids, cancel = ids_of(53), Cancel()
    runner = Runner(model, context_length=CONTEXT, threads=2)
    try:
        sequence = runner.sequence()

        def stop_after_two(done, total):
            if done == 32:
                cancel.set()

        with pytest.raises(CancelledError, match="cancelled after 32 of 53 tokens"):
            sequence.forward(ids, cancel=cancel, progress=stop_after_two)
        assert sequence.tokens == ids[:32]
        assert np.array_equal(sequence.forward(ids[32:]), fresh(ids))
        assert sequence.truncate(40) == 32
        assert np.array_equal(sequence.forward(ids[32:]), fresh(ids))
    finally:
        runner.close()


def test_a_flag_set_by_another_thread(sequence, fresh):
    """Whenever it comes, the pass either is complete or leaves no trace."""
    ids, cancel = ids_of(128), Cancel()
    expected = fresh(ids)
    for _ in range(10):
        sequence.truncate(0)
        cancel.clear()
        setter = threading.Thread(target=cancel.set)
        try:
            setter.start()
            sequence.forward(ids, cancel=cancel)
        except CancelledError:
            assert sequence.tokens == []
        setter.join()
        assert np.array_equal(sequence.forward(ids[sequence.position :] or [5]), fresh([*ids, 5][: sequence.position]))
    sequence.truncate(0)
    assert np.array_equal(sequence.forward(ids), expected)


# --- conversations ----------------------------------------------------------------------------------------------------


def answer(sequence, prompt, max_tokens=12, cancel=None, stop_after=None, **options):
    """Ids and statistics of an answer; `cancel` is set after so many tokens."""
    ids = []
    for event in generate(sequence, prompt, GREEDY, max_tokens=max_tokens, cancel=cancel, **options):
        if isinstance(event, Token):
            ids.append(event.id)
            if len(ids) == stop_after:
                cancel.set()
        if isinstance(event, Finished):
            return ids, event.stats


@pytest.fixture(scope="module")
def expected_answer(model):
    """The answer of a sequence that has read nothing before, its tokens evaluated one by one."""
    made = Runner(model, context_length=CONTEXT, threads=1)

    def ids_after(prompt, count=12):
        made.truncate(0)
        logits, ids = made.forward(prompt), []
        while len(ids) < count:
            ids.append(int(np.argmax(logits)))
            logits = made.forward(ids[-1:])
        return ids

    yield ids_after
    made.close()


def test_several_tokens_in_one_call_are_those_of_one_by_one(sequence, expected_answer):
    prompt = ids_of(30)
    assert answer(sequence, prompt, max_tokens=40)[0] == expected_answer(prompt, 40)


def test_regenerate_reads_the_last_token_of_the_prompt_only(sequence, expected_answer):
    prompt = ids_of(60)
    for _ in range(3):
        ids, stats = answer(sequence, prompt)
        assert ids == expected_answer(prompt)
    assert stats.reused_tokens == 59


def test_another_turn_reads_what_is_new_only(sequence, expected_answer):
    prompt = ids_of(60)
    first, _ = answer(sequence, prompt)
    longer = [*prompt, *first, *ids_of(20, 2)]
    ids, stats = answer(sequence, longer)
    assert ids == expected_answer(longer)
    assert stats.reused_tokens == 60 + 11  # the last token of an answer is not evaluated


def test_an_edited_message_is_read_from_the_turn_before_it(sequence, expected_answer):
    prompt = ids_of(60)
    first, _ = answer(sequence, prompt)
    history = [*prompt, *first]
    answer(sequence, [*history, *ids_of(30, 2)])
    for same in (0, 1, 20):  # tokens of the message that stay
        edited = [*history, *ids_of(30, 2)[:same], *ids_of(10, 3)]
        ids, stats = answer(sequence, edited)
        assert ids == expected_answer(edited)
        assert stats.reused_tokens == 71
    other = [*prompt[:30], *ids_of(10, 4)]
    ids, stats = answer(sequence, other)
    assert ids == expected_answer(other)
    assert stats.reused_tokens == 0


def test_a_cancelled_answer_is_continued_where_it_stopped(sequence, expected_answer):
    prompt, cancel = ids_of(40), Cancel()
    ids, _ = answer(sequence, prompt, max_tokens=40, cancel=cancel, stop_after=5)
    assert 5 <= len(ids) < 40
    assert ids == expected_answer(prompt, len(ids))
    assert sequence.tokens == [*prompt, *ids][: sequence.position]
    more, stats = answer(sequence, [*prompt, *ids])
    assert more == expected_answer([*prompt, *ids])
    assert stats.reused_tokens >= 40


def test_a_conversation_with_stop_strings_goes_token_by_token(sequence, expected_answer):
    prompt = ids_of(40)
    ids, _ = answer(sequence, prompt, stop=["never there"])
    assert ids == expected_answer(prompt)
