"""Layers with a window keep it, and what it takes to go back to a turn: answers are those of a cache that keeps all."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import windowed_model
from support.golden import nmse, write_toy_model
from tinyllm_engine import runner as runner_module
from tinyllm_engine.branches import Branches
from tinyllm_engine.cached_types import PAGE
from tinyllm_engine.errors import OutOfMemoryError, UnsupportedModelError
from tinyllm_engine.generation import Finished, Token, generate
from tinyllm_engine.kernels.arguments import BATCH
from tinyllm_engine.kv_cache import SPARE_BYTES, KVCache, LayerShape, PageTable
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.sampling import SamplingParams
from tinyllm_engine.twins import check_pass
from tinyllm_engine.windows import BATCH_ROWS, PAID_PLACES, Places, Windows, pages_of, runs, window_begin

CONTEXT = 4096
GREEDY = SamplingParams(temperature=0)
SIZES = st.integers(1, 400).map(lambda size: size if size % 3 else -size)


# --- which rows are needed --------------------------------------------------------------------------------------------


@given(st.integers(0, 3000), SIZES)
def test_a_window_begins_where_it_says(position, window):
    begin = window_begin(position, window)
    seen = [row for row in range(position + 1) if (position - row < window if window > 0 else begin <= row)]
    assert (begin, position) == (seen[0], seen[-1])
    assert window > 0 or (begin % -window == 0 and position - begin < -window)


@given(st.integers(0, 3000), st.lists(SIZES, min_size=1, max_size=3), st.integers(0, PAGE))
def test_a_place_keeps_what_is_needed_within_a_page_before_it(length, sizes, back):
    windows = Windows.within(4096, sizes)
    kept, needed = windows.kept(length), windows.needed(max(0, length - back))
    assert set(needed) <= set(kept)
    assert len(kept) <= windows.pages_of_place
    rows = range(windows.begin(length), length)
    assert set(windows.needed(length)) == {row // PAGE for row in rows} | ({length // PAGE} if length % PAGE else set())


def test_windows_as_wide_as_the_context_are_none():
    assert Windows.within(512, [0, 512, -512, 1024]) == Windows()
    assert Windows.within(513, [0, 512, 100, 512]).sizes == (100, 512)
    assert list(Windows().needed(130)) == [0, 1, 2]
    assert Windows().most_pages(7) == 7


@given(SIZES, st.lists(st.booleans(), min_size=1, max_size=24), st.integers(0, 1536))
def test_the_longest_beginning_whose_window_is_whole(window, held, asked):
    cache = KVCache([LayerShape(1, 8, 8, window)], 4096)
    table = PageTable(cache, 4096)
    table.grow(len(held) * PAGE)
    table.hold(np.flatnonzero(held))
    asked = min(asked, len(held) * PAGE)

    def whole(length):
        return all(held[index] for index in cache.windows.needed(length))

    assert table.longest(asked) == max(length for length in range(asked + 1) if whole(length))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3000)), max_size=30), SIZES)
def test_places_cost_what_few_places_cost_apart(steps, window):
    windows = Windows.within(4096, [window])
    places = Places(windows)
    for is_return, position in steps:
        (places.go_back if is_return else places.add)(position)
        latest = places.positions[-1]
        assert latest - PAGE <= position <= latest  # it stands for the position
        assert len(set(places.positions)) == len(places.positions)
        kept = places.kept(position, np.ones(-(-4096 // PAGE), np.bool_))
        assert np.count_nonzero(kept) <= PAID_PLACES * windows.pages_of_place
        assert kept[list(windows.kept(position))].all()
        for place in places.positions:
            assert kept[list(windows.kept(place))].all()
        assert places.positions[-1] == latest  # two places are always paid for


@given(st.lists(st.booleans(), max_size=40))
def test_runs(flags):
    found = runs(np.array(flags, np.bool_))
    assert [index for first, end in found for index in range(first, end)] == [i for i, flag in enumerate(flags) if flag]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))


def test_a_batch_is_as_large_as_the_runner_s():
    assert BATCH_ROWS == BATCH


# --- the cache --------------------------------------------------------------------------------------------------------

FULL, NARROW = LayerShape(1, 64, 64), LayerShape(2, 64, 64, window=100)


def test_windowed_parts_have_owners_of_their_own():
    cache = KVCache([FULL, NARROW, FULL], 1024)
    full, narrow = cache.bytes_of_page(windowed=False), cache.bytes_of_page(windowed=True)
    assert (full, narrow) == (2 * 2 * 64 * 64 * 2, 2 * 4 * 64 * 64 * 2)
    one = PageTable(cache, 1024)
    one.grow(4 * PAGE)
    assert cache.bytes_in_use == 4 * full
    one.hold(range(1, 4))
    assert cache.bytes_in_use == full + 3 * narrow
    other = one.fork(3 * PAGE)
    one.keep(np.array([True, True, False, False]))  # the other still holds pages 1 and 2
    assert (cache.windowed_pages_in_use, list(other.held[:4])) == (2, [False, True, True, False])
    other.shrink(2 * PAGE)
    assert cache.windowed_pages_in_use == 1
    other.own(0)  # copies what it holds
    assert cache.windowed_pages_in_use == 2
    for table in (one, other):
        table.shrink(0)
        assert not table.held.any()
    assert (cache.windowed_pages_in_use, cache.bytes_in_use) == (0, 0)


def test_all_windowed_parts_or_none_are_taken():
    cache, free = KVCache([NARROW], 1024), [1 << 40]
    table = PageTable(cache, 1024)
    table.grow(8 * PAGE)
    table.hold([0])
    cache.free_memory = lambda: free[0]
    cache._granted, free[0] = cache.bytes_of_page(windowed=True), SPARE_BYTES  # one more is granted
    with pytest.raises(OutOfMemoryError):
        table.hold([3, 5])
    assert table.held[:8].tolist() == [True] + [False] * 7
    assert cache.windowed_pages_in_use == 1


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def poison(monkeypatch):
    windowed_model.poison(monkeypatch)


def ids_of(count, seed=1):
    return np.random.default_rng(seed).integers(0, 128, count).tolist()


def keeping_all(model, context=CONTEXT, **options):
    """A runner for which windows are only a matter of what is seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Windows, "within", classmethod(lambda cls, context_length, windows: cls()))
        return Runner(model, context_length=context, threads=2, **options)


class Toy:
    def __init__(self, path, **options):
        model = Model.open(path)
        self.runner = Runner(model, context_length=CONTEXT, threads=2, **options)
        self._other = keeping_all(model, **options)

    def fresh(self, ids, all_logits=False):
        self._other.truncate(0)
        return self._other.forward(ids, all_logits)

    def would_answer(self, prompt, ids):
        """Whether a fresh start would have chosen these."""
        self._other.truncate(0)
        self._other.forward(prompt[:-1])
        logits = self._other.forward([prompt[-1], *ids[:-1]], all_logits=True)
        return logits.argmax(axis=1).tolist() == ids

    def close(self):
        self.runner.close()
        self._other.close()


@pytest.fixture(scope="module", params=["windowed", "hybrid"])
def toy(request, tmp_path_factory):
    path = windowed_model.write(tmp_path_factory.mktemp("windows") / "toy.gguf", request.param)
    made = Toy(path)
    made.is_hybrid = request.param == "hybrid"
    yield made
    made.close()


@pytest.fixture
def sequence(toy):
    made = toy.runner.new_sequence()
    yield made
    made.close()
    cache = toy.runner.cache
    assert cache.pages_in_use == cache.windowed_pages_in_use == cache.states.blocks == 0


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("gemma2-dense", [1, 0]),
        ("gemma3-dense", [1, 0]),
        ("gemma3-dense", [1, 1]),
        ("gpt-oss-moe", [1, 0]),
        ("cohere2-dense", [1, 0]),
    ],
)
def test_architectures(tmp_path, name, pattern):
    """A prompt of several windows in two batches, tokens one by one, and back: what was released is not missed."""
    path = write_toy_model(tmp_path, name, sliding_window=100, sliding_window_pattern=pattern)
    made = Toy(path, kv_type="f32")
    sequence, ids = made.runner.sequence(), ids_of(560)
    assert made.runner.cache.windows.sizes == (100,)
    sequence.forward(ids[:540])
    assert made.runner.cache.windowed_pages_in_use <= made.runner.cache.windows.pages_of_place
    found = np.stack([sequence.forward([id]) for id in ids[540:550]])
    assert sequence.truncate(540) == 540
    again = sequence.forward(ids[540:], all_logits=True)
    made.fresh(ids[:540])
    expected = made._other.forward(ids[540:], all_logits=True)
    assert nmse(found, expected[:10]) < 1e-9
    assert nmse(again, expected) < 1e-9
    made.close()


def test_every_kernel_does_what_its_twin_says(toy):
    runner = toy.runner
    runner.forward(ids_of(300))
    assert not runner.sequence().pages.held[:2].any()
    check_pass(runner, ids_of(20, 2), all_logits=True)
    check_pass(runner, [3])
    runner.sequence().close()


def test_a_quantized_cache(tmp_path):
    made = Toy(windowed_model.write(tmp_path / "toy.gguf"), kv_type="q8_0")
    sequence, ids = made.runner.sequence(), ids_of(310)
    sequence.forward(ids[:300])
    for count in range(300, 310):
        found = sequence.forward(ids[count : count + 1])
    assert np.array_equal(found, made.fresh(ids))
    made.close()


def test_a_long_prompt_holds_about_one_window(toy, sequence):
    cache, windows = toy.runner.cache, toy.runner.cache.windows
    ids = ids_of(1200)
    most = []
    sequence.forward(ids, progress=lambda done, total: most.append(cache.windowed_pages_in_use))
    assert max(most) <= windows.pages_of_place
    assert cache.pages_in_use == 19
    for id in ids[:140]:
        found = sequence.forward([id])
        assert cache.windowed_pages_in_use <= 2 * windows.pages_of_place
    assert sequence.held_rows[-1][1] == sequence.position
    assert np.array_equal(found, toy.fresh([*ids, *ids[:140]]))


# --- going back -------------------------------------------------------------------------------------------------------


def spoken(sequence, prompt, count=150):
    """Ids of an answer, and how many tokens of the prompt were read for it."""
    ids = []
    for event in generate(sequence, prompt, GREEDY, max_tokens=count):
        if isinstance(event, Token):
            ids.append(event.id)
        elif isinstance(event, Finished):
            stats = event.stats
    return ids, stats.prompt_tokens - stats.reused_tokens


def test_another_answer_reads_the_last_token_only(toy, sequence):
    prompt = ids_of(400)
    ids, read = spoken(sequence, prompt)
    assert read == 400
    assert toy.would_answer(prompt, ids)
    for count in (150, 3, 3):
        assert spoken(sequence, prompt, count) == (ids[:count], 1)


def test_an_answer_goes_on_where_it_stopped(toy, sequence):
    prompt = ids_of(300)
    ids, _ = spoken(sequence, prompt, 90)
    more, read = spoken(sequence, [*prompt, *ids], 10)
    assert read == 1
    assert toy.would_answer(prompt, [*ids, *more])
    again, read = spoken(sequence, [*prompt, *ids[:85]], 10)  # stopped a little earlier
    assert again == [*ids, *more][85:95]
    assert read <= (96 if toy.is_hybrid else 15)


def test_the_last_message_is_edited_again_and_again(toy, sequence):
    """Only what follows the edit is read, or the message where recurrent states are kept at its ends only."""
    start = ids_of(300)
    first, _ = spoken(sequence, start, 10)
    history = [*start, *first]
    message = ids_of(200, 2)
    spoken(sequence, [*history, *message])
    for turn, same in enumerate((5, 0, 150, 30)):
        prompt = [*history, *message[:same], *ids_of(80, 3 + turn)]
        ids, read = spoken(sequence, prompt, 70)
        assert toy.would_answer(prompt, ids)
        assert read <= (len(prompt) - len(history) + 1 if toy.is_hybrid else 80 + same)


def test_an_old_message_is_read_again_once(toy, sequence):
    start = ids_of(500)
    first, _ = spoken(sequence, start, 10)
    spoken(sequence, [*start, *first, *ids_of(200, 2)], 10)
    for turn in range(3):
        prompt = [*start[:200], *ids_of(200, 3 + turn)]
        ids, read = spoken(sequence, prompt, 10)
        assert toy.would_answer(prompt, ids)
        if turn == 0:
            assert read == 400  # nothing is left of the window there
        elif not toy.is_hybrid:
            assert read == 200  # now it is a place


def test_truncate_says_what_it_keeps(toy, sequence):
    ids = ids_of(400)
    sequence.forward(ids)
    for asked in (400, 399, 336, 300, 200):
        kept = sequence.kept_by_truncating(asked)
        fork = sequence.fork(asked)
        assert fork.position == kept <= asked
        assert kept == asked or asked < 336 or toy.is_hybrid
        assert np.array_equal(fork.forward([*ids[kept:asked], 3]), toy.fresh([*ids[:asked], 3]))
        fork.close()
    assert sequence.truncate(200) == 0


# --- branches ---------------------------------------------------------------------------------------------------------


def test_branches_share_windows_and_give_way_when_there_are_too_many(toy, monkeypatch):
    cache = toy.runner.cache
    monkeypatch.setattr(cache, "most_windowed_pages", 24)
    branches = Branches(toy.runner)
    start = ids_of(300)
    for turn in range(10):
        prompt = [*start, *ids_of(130, 10 + turn)]
        ids, read = spoken(branches.select(prompt), prompt, 4)
        assert read == 430 if turn < 2 else 120 < read <= 130 or toy.is_hybrid
        assert cache.windowed_pages_in_use <= cache.most_windowed_pages
        assert turn % 4 or toy.would_answer(prompt, ids)
    assert branches.kept[0].position < 430 < branches.kept[-2].position
    for again in (9, 0):  # one that is there, one that has given way
        prompt = [*start, *ids_of(130, 10 + again)]
        ids, read = spoken(branches.select(prompt), prompt, 4)
        assert read == 1 if again else 120 < read <= 130 or toy.is_hybrid
        assert toy.would_answer(prompt, ids)
    for kept in branches.kept:
        kept.close()
    assert cache.pages_in_use == cache.windowed_pages_in_use == cache.states.blocks == 0
    cache.make_room = lambda: False


# --- shift ------------------------------------------------------------------------------------------------------------


def test_rows_of_windows_move_with_the_others(tmp_path):
    """A layer sees its window behind a shift as one that has kept everything does."""
    model = Model.open(windowed_model.write(tmp_path / "toy.gguf"))
    runner, other = Runner(model, context_length=CONTEXT, threads=2), keeping_all(model)
    for begin, end in ((0, 100), (37, 200), (64, 128), (150, 251)):
        one, two = runner.new_sequence(), other.new_sequence()
        for sequence in (one, two):
            sequence.forward(ids_of(400))
            sequence.remove(begin, end)
        assert one.tokens == two.tokens
        assert runner.cache.windowed_pages_in_use <= runner.cache.windows.pages_of_place
        assert np.array_equal(
            one.forward(ids_of(200, 2), all_logits=True), two.forward(ids_of(200, 2), all_logits=True)
        )
        one.close()
        two.close()
    assert runner.cache.pages_in_use == runner.cache.windowed_pages_in_use == 0
    runner.close()
    other.close()


def test_a_shift_that_would_miss_rows_is_refused_before_anything_moves(tmp_path):
    made = Toy(windowed_model.write(tmp_path / "toy.gguf"))
    sequence, ids = made.runner.new_sequence(), ids_of(400)
    sequence.forward(ids)
    fork, table = sequence.fork(400), sequence.pages.table.copy()
    with pytest.raises(UnsupportedModelError, match="layers with a window no longer have those before"):
        sequence.remove(40, 360)
    assert (sequence.tokens, sequence.exact) == (ids, 400)
    assert np.array_equal(sequence.pages.table, table)
    assert np.array_equal(sequence.forward([3]), made.fresh([*ids, 3]))
    assert np.array_equal(fork.forward([3]), made.fresh([*ids, 3]))
    made.close()


# --- memory runs out --------------------------------------------------------------------------------------------------


def test_complete_batches_stay_when_memory_ends(toy, sequence, monkeypatch):
    monkeypatch.setattr(runner_module, "OUTPUTS", 64)
    cache, ids = toy.runner.cache, ids_of(300)
    taken, take = [], cache.take_windowed

    def refuse(page):
        if len(taken) == 3:
            raise OutOfMemoryError("no more")
        taken.append(page)
        take(page)

    monkeypatch.setattr(cache, "take_windowed", refuse)
    with pytest.raises(OutOfMemoryError):
        sequence.forward(ids, all_logits=True)
    assert (sequence.tokens, cache.pages_in_use) == (ids[:192], 3)
    monkeypatch.setattr(cache, "take_windowed", take)
    assert np.array_equal(sequence.forward(ids[192:]), toy.fresh(ids))


def test_pages_of_rows():
    assert [list(pages_of(*rows)) for rows in ((0, 0), (0, 1), (63, 65), (64, 64), (130, 131))] == [
        [],
        [0],
        [0, 1],
        [],
        [2],
    ]
