"""Several sequences in one cache: whatever is shared, copied, given up or made room for, answers are those of a fresh
start, and no page is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import recurrent_model, windowed_model
from support.golden import GOLDEN
from tinyllm_engine.branches import Branches
from tinyllm_engine.errors import ContextFullError
from tinyllm_engine.kv_cache import PAGE
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.saved_state import load, save

CONTEXT = 512
VOCABULARY = 128


class Kind:
    """A model, a runner for sequences, and one for answers from a fresh start."""

    def __init__(self, path, **options):
        model = Model.open(path)
        self.runner = Runner(model, context_length=CONTEXT, threads=2, **options)
        self._other = Runner(model, context_length=CONTEXT, threads=1, **options)
        self._known = {}

    def fresh(self, ids):
        """Logits after ids."""
        key = tuple(ids)
        if key not in self._known:
            self._other.truncate(0)
            self._known[key] = self._other.forward(ids)
        return self._known[key]

    def check(self, sequence):
        """What the sequence holds is what a fresh evaluation of its tokens makes: one more token shows it."""
        tokens = list(sequence.tokens)
        probe = sequence.fork(len(tokens))
        assert np.array_equal(probe.forward([*tokens[probe.position :], 7]), self.fresh([*tokens, 7]))
        probe.close()
        assert sequence.tokens == tokens

    def close(self):
        self.runner.close()
        self._other.close()


@pytest.fixture(scope="module")
def attention():
    kind = Kind(GOLDEN / "quants" / "llama-Q4_0.gguf")  # its answers are the same bits in any batch
    yield kind
    kind.close()


@pytest.fixture(scope="module")
def four_bits():
    """Quantized a page at a time: one goes back to where a page begins."""
    kind = Kind(GOLDEN / "quants" / "llama-Q4_0.gguf", kv_type="q4_0")
    yield kind
    kind.close()


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    kind = Kind(recurrent_model.write(tmp_path_factory.mktemp("recurrent") / "toy.gguf"))
    yield kind
    kind.close()


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    kind = Kind(windowed_model.write(tmp_path_factory.mktemp("windowed") / "toy.gguf"))
    yield kind
    kind.close()


@pytest.fixture(scope="module")
def windowed_four_bits(tmp_path_factory):
    path = windowed_model.write(tmp_path_factory.mktemp("windowed") / "toy.gguf")
    kind = Kind(path, kv_type="q4_0")
    yield kind
    kind.close()


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    """Layers with a window beside recurrent ones."""
    kind = Kind(windowed_model.write(tmp_path_factory.mktemp("hybrid") / "toy.gguf", "hybrid"))
    yield kind
    kind.close()


@pytest.fixture(autouse=True)
def released_rows_are_not_read(monkeypatch):
    windowed_model.poison(monkeypatch)


@pytest.fixture(params=["attention", "recurrent", "windowed", "hybrid"])
def kind(request):
    found = request.getfixturevalue(request.param)
    cache = found.runner.cache
    assert cache.pages_in_use == cache.windowed_pages_in_use == cache.states.blocks == 0
    yield found
    found.runner.cache.make_room = lambda: False
    found.runner.sequence().close()


def ids_of(count, seed=1):
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).tolist()


def pages_used(runner):
    return runner.cache.pages_in_use


# --- fork -------------------------------------------------------------------------------------------------------------


def test_a_fork_shares_pages_and_copies_the_last_one_when_it_writes(attention):
    runner = attention.runner
    one = runner.new_sequence()
    one.forward(ids_of(150))
    other = one.fork(140)
    assert (other.tokens, pages_used(runner)) == (one.tokens[:140], 3)
    other.forward([1, 2, 3])
    assert pages_used(runner) == 4
    assert list(other.pages.table[:2]) == list(one.pages.table[:2])
    one.forward([4])  # the last page is its own again
    assert pages_used(runner) == 4
    attention.check(one)
    attention.check(other)
    one.close()
    assert (one.position, pages_used(runner)) == (0, 3)
    attention.check(other)
    other.close()
    assert pages_used(runner) == 0


@pytest.mark.parametrize("kept", [0, 1, 64, 127, 128, 150, 999])
def test_a_fork_goes_on_as_a_fresh_start_would(kind, kept):
    one = kind.runner.new_sequence()
    one.forward(ids_of(100))
    one.forward(ids_of(50, seed=2))
    other = one.fork(kept)
    if kind.runner.cache.states.block_bytes:  # what is needed by windows is still there
        assert other.position == max(p for p in (0, 100, 150) if p <= kept)
    else:
        assert other.position == min(kept, 150)
    assert other.tokens == one.tokens[: other.position]
    other.forward([9, 8, 7])
    kind.check(other)
    kind.check(one)
    one.close()
    kind.check(other)
    other.close()
    assert kind.runner.cache.pages_in_use == kind.runner.cache.states.blocks == 0


def test_truncating_into_a_shared_page_changes_nobody_else(attention):
    one = attention.runner.new_sequence()
    one.forward(ids_of(100))
    other = one.fork(100)
    one.truncate(70)
    one.forward(ids_of(10, seed=3))
    attention.check(one)
    attention.check(other)
    one.close()
    other.close()


def test_all_pages_or_none_are_taken(attention):
    one, other = attention.runner.new_sequence(), attention.runner.new_sequence()
    one.forward(ids_of(300))
    other.forward(ids_of(10))
    with pytest.raises(ContextFullError, match="all 8 pages of 64 tokens are in use"):
        other.forward(ids_of(200))
    assert (other.position, pages_used(attention.runner)) == (10, 6)
    attention.check(other)
    one.close()
    other.close()


# --- branches ---------------------------------------------------------------------------------------------------------


def run(branches, ids):
    """Evaluates a prompt as `generate` does; returns the sequence, how much was reused, and the logits."""
    sequence = branches.select(ids)
    same = next((i for i, (a, b) in enumerate(zip(sequence.tokens, ids[:-1], strict=False)) if a != b), None)
    reused = sequence.truncate(min(sequence.position, len(ids) - 1) if same is None else same)
    return sequence, reused, sequence.forward(ids[reused:])


def test_going_back_to_a_branch_reads_one_token(attention):
    branches = Branches(attention.runner)
    start = ids_of(40)
    first, second = start + ids_of(30, seed=2), start + ids_of(30, seed=3)
    _, reused, _ = run(branches, first)
    assert reused == 0
    _, reused, logits = run(branches, second)
    assert reused == 40
    assert np.array_equal(logits, attention.fresh(second))
    for prompt in (first, second, first):
        sequence, reused, logits = run(branches, prompt)
        assert (reused, sequence.tokens) == (69, prompt)
        assert np.array_equal(logits, attention.fresh(prompt))
    close(branches)


def test_a_chat_that_goes_on_stays_in_its_sequence(kind):
    branches = Branches(kind.runner)
    prompt = ids_of(20)
    one, _, _ = run(branches, prompt)
    for turn in range(3):
        prompt = prompt + ids_of(20, seed=turn)
        other, reused, logits = run(branches, prompt)
        assert other is one
        assert reused == len(prompt) - 20
        assert np.array_equal(logits, kind.fresh(prompt))
    close(branches)


def test_the_least_recently_used_gives_way_from_its_end_on_and_the_one_in_use_never(attention):
    branches = Branches(attention.runner)
    old, middle, new = (ids_of(count, seed) for count, seed in ((250, 1), (60, 2), (380, 3)))
    one, _, _ = run(branches, old)
    two, _, _ = run(branches, middle)
    three, _, logits = run(branches, new)
    assert np.array_equal(logits, attention.fresh(new))
    assert (one.position, two.position, three.position) == (64, 60, 380)
    for sequence in (one, two):
        assert run(branches, [*sequence.tokens, 1])[:2] == (sequence, sequence.position - 1)
    run(branches, new)
    run(branches, [*new, *ids_of(70, seed=4)])
    assert (one.position, two.position, three.position) == (0, 0, 450)
    with pytest.raises(ContextFullError, match="63 tokens do not fit"):
        three.forward(ids_of(63))
    close(branches)


def test_a_page_shared_with_what_gives_way_needs_no_copy(attention):
    """The cache is full of pages that two share: the one in use must not fail for want of a page to copy into."""
    branches = Branches(attention.runner)
    ids = ids_of(500)
    run(branches, ids)
    edited = [*ids[:450], *ids_of(10, seed=5)]
    _, reused, logits = run(branches, edited)
    assert reused == 450
    assert np.array_equal(logits, attention.fresh(edited))
    close(branches)


def test_a_prompt_that_cannot_fit_changes_nothing(attention):
    branches = Branches(attention.runner)
    one, _, _ = run(branches, ids_of(100))
    assert branches.select([*ids_of(50), *ids_of(500, seed=2)]) is one
    assert one.position == 100
    close(branches)


def test_recurrent_states_have_a_limit_too(recurrent):
    branches = Branches(recurrent.runner)
    states = recurrent.runner.cache.states
    for seed in range(40):
        prompt = ids_of(4, seed)
        _, _, logits = run(branches, prompt)
        assert np.array_equal(logits, recurrent.fresh(prompt))
        assert states.bytes_in_use <= 2 * states.most_bytes + 3 * states.block_bytes
    close(branches)


def close(branches):
    for sequence in branches.kept:
        sequence.close()
    cache = branches.runner.cache
    assert cache.pages_in_use == cache.windowed_pages_in_use == cache.states.blocks == 0


# --- any sequence of operations ---------------------------------------------------------------------------------------

STEP = st.tuples(
    st.sampled_from(["forward", "one by one", "fork", "truncate", "go back", "drop", "reload"]),
    st.integers(0, 3),
    st.integers(0, 90),
)


@settings(max_examples=25)
@given(steps=st.lists(STEP, max_size=14))
@pytest.mark.parametrize("name", ["attention", "four_bits", "recurrent", "windowed", "windowed_four_bits", "hybrid"])
def test_any_operations(request, tmp_path_factory, name, steps):
    kind, path = request.getfixturevalue(name), tmp_path_factory.getbasetemp() / "any.kv"
    cache = kind.runner.cache
    sequences = [kind.runner.new_sequence()]
    for step, which, number in steps:
        sequence = sequences[which % len(sequences)]
        ids = [(sequence.position * 7 + number + i) % VOCABULARY for i in range(number)]  # few different prompts
        try:
            match step:
                case "forward" if ids:
                    sequence.forward(ids)
                case "one by one":
                    for id in ids[:3]:
                        sequence.forward([id])
                case "fork" if len(sequences) < 4:
                    sequences.append(sequence.fork(number))
                    assert sequences[-1].position == sequence.kept_by_truncating(number)
                case "truncate":
                    kept = sequence.kept_by_truncating(number)
                    assert sequence.truncate(number) == kept == sequence.position
                case "go back":
                    kept = sequence.kept_by_truncating(sequence.position - number)
                    assert sequence.truncate(sequence.position - number) == kept == sequence.position
                case "drop":
                    sequence.close()
                case "reload" if sequence.position:
                    tokens = list(sequence.tokens)
                    with open(path, "wb") as file:
                        save(sequence, file.write, "toy")
                    sequence.close()
                    sequences[which % len(sequences)] = load(kind.runner, path, "toy")
                    assert sequences[which % len(sequences)].tokens == tokens
        except ContextFullError:
            pass
        owned = [set(map(int, each.pages.table[: each.pages.count])) for each in sequences]
        assert [len(pages) for pages in owned] == [-(-each.position // PAGE) for each in sequences]
        assert len(set().union(*owned)) == cache.pages_in_use
        held = [set(each.pages.table[each.pages.held].tolist()) for each in sequences]
        assert len(set().union(*held)) == cache.windowed_pages_in_use
        for each in sequences:
            assert each.pages.held[list(cache.windows.needed(each.position))].all()
    for sequence in sequences:
        if cache.pages_in_use < cache.pages - 1:
            kind.check(sequence)
        sequence.close()
    assert cache.pages_in_use == cache.windowed_pages_in_use == cache.states.blocks == 0
