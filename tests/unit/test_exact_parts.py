"""A cache in q4_0: pages are quantized when they are full, the first one and the one that is written stay exact."""

import numpy as np
import pytest
from support import recurrent_model
from support.golden import GOLDEN, toy_tokens
from tinyllm_engine.branches import Branches
from tinyllm_engine.cached_rows import read_keys, read_values
from tinyllm_engine.kv_cache import KVCache, LayerShape, PageTable
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.saved_state import load, save, saved_bytes

CONTEXT = 512
MODEL = GOLDEN / "quants" / "llama-Q4_0.gguf"
IDS = toy_tokens(300)


@pytest.fixture(scope="module")
def runner():
    made = Runner(Model.open(MODEL), context_length=CONTEXT, kv_type="q4_0", threads=2)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_is_lost(runner):
    runner.truncate(0)
    yield
    runner.truncate(0)
    assert runner.cache.pages_in_use == 0
    assert not runner.cache.exact.held.any()


@pytest.fixture(scope="module")
def expected(runner):
    """float32 [300, vocabulary]: after each token, all read at once."""
    return runner.forward(IDS, all_logits=True)


def open_pages(sequence):
    held = sequence.runner.cache.exact.held[sequence.pages.table[: sequence.pages.count]]
    return np.flatnonzero(held).tolist()


@pytest.mark.parametrize("sizes", [[300], [1, 62, 1, 1, 63, 65, 107], [50] * 6, [129] + [1] * 20 + [151]], ids=str)
def test_the_same_bits_however_tokens_come(runner, expected, sizes):
    position = 0
    for size in sizes:
        last = runner.forward(IDS[position : position + size])
        position += size
        assert np.array_equal(last, expected[position - 1])
        assert open_pages(runner.sequence()) == sorted({0, (position - 1) // 64})


def test_full_pages_are_not_exact(runner, expected):
    exact = Runner(runner.model, context_length=CONTEXT, threads=2)
    difference = np.abs(exact.forward(IDS, all_logits=True) - expected).max(axis=-1)
    exact.close()
    assert 4 * difference[:128].mean() < difference[128:].mean()  # rounding to 8 bits makes much of little


def test_going_back(runner, expected):
    """To any length within the first page and the last one, else to where a page begins."""
    for asked, kept in ((290, 290), (256, 256), (255, 192), (192, 192), (130, 128), (64, 64), (63, 63), (1, 1)):
        sequence = runner.sequence()
        sequence.forward(IDS[sequence.position :])
        assert sequence.kept_by_truncating(asked) == kept
        fork = sequence.fork(asked)
        assert fork.tokens == IDS[:kept]
        assert np.array_equal(fork.forward(IDS[kept : kept + 20]), expected[min(kept + 20, 300) - 1])
        fork.close()
        assert sequence.truncate(asked) == sequence.position == kept
        assert np.array_equal(sequence.forward(IDS[kept : kept + 9]), expected[kept + 8])


def test_a_page_that_two_are_in_stays_open_for_both(runner, expected):
    one = runner.sequence()
    one.forward(IDS[:100])
    other = one.fork(90)
    one.forward(IDS[100:200])
    assert np.array_equal(other.forward(IDS[90:140]), expected[139])
    other.close()
    one.forward(IDS[200:201])
    assert open_pages(one) == [0, 3]
    full = one.fork(128)
    assert open_pages(full) == [0]
    assert full.kept_by_truncating(127) == 64
    full.close()


def test_it_is_saved_and_comes_back(runner, expected, tmp_path):
    path = tmp_path / "saved.kv"
    for count in (40, 128, 200):
        sequence = runner.new_sequence()
        sequence.forward(IDS[:count])
        with open(path, "wb") as file:
            save(sequence, file.write, "model")
        assert 0 < path.stat().st_size - saved_bytes(sequence) < 1000
        sequence.close()
        back = load(runner, path, "model")
        assert open_pages(back) == sorted({0, *([count // 64] if count % 64 else [])})
        assert np.array_equal(back.forward(IDS[count : count + 70]), expected[count + 69])
        assert back.truncate(30) == 30
        assert np.array_equal(back.forward(IDS[30:50]), expected[49])
        back.close()


@pytest.mark.parametrize(("begin", "end"), [(10, 30), (10, 138), (70, 300), (130, 193), (128, 192), (290, 295)])
def test_removing(runner, expected, begin, end):
    """Rows move from exact to quantized pages and the other way; what is before their page is as it was."""
    sequence = runner.sequence()
    sequence.forward(IDS)
    left, kept = 300 - (end - begin), np.r_[:begin, end:300]
    tables = [sequence.pages.table[:5].copy() for _ in range(2)]
    keys, values = read_keys(runner.cache, 0, tables[0]), read_values(runner.cache, 0, tables[0])
    sequence.remove(begin, end)
    assert sequence.tokens == [IDS[i] for i in kept]
    assert open_pages(sequence) == sorted({0, *([left // 64] if left % 64 else [])})
    table = sequence.pages.table[: sequence.pages.count]
    found_keys, found = read_keys(runner.cache, 0, table)[:, :, :left], read_values(runner.cache, 0, table)[:, :left]
    assert np.abs(found - values[:, kept]).max() < 0.15 * np.abs(values).max()
    lengths = [(rows.astype(np.float64) ** 2).sum(axis=1) for rows in (found_keys, keys[:, :, kept])]
    assert np.allclose(*lengths, rtol=0.3, atol=0.3 * lengths[1].mean())  # keys turn, so their lengths stay
    fresh = begin if begin < 64 or (end == 300 and begin % 64 == 0) else begin // 64 * 64
    assert sequence.exact == (fresh if fresh < left else left)
    sequence.forward([1, 2, 3])
    assert sequence.truncate(fresh) == fresh
    assert sequence.exact == fresh
    assert np.array_equal(sequence.forward(IDS[fresh : fresh + 5]), expected[fresh + 4])


def test_branches(runner, expected):
    branches = Branches(runner)
    try:
        sequence = branches.select(IDS[:200])
        sequence.forward(IDS[:200])
        other = branches.select([*IDS[:150], 1, 2, 3])
        assert other is not sequence
        assert other.tokens == IDS[:128]
        again = branches.select(IDS[:230])
        assert again is sequence
        assert np.array_equal(again.forward(IDS[200:230]), expected[229])
    finally:
        for kept in branches.kept:
            kept.close()
        runner.cache.make_room = lambda: False


def test_recurrent_layers_keep_what_their_checkpoints_are_in(tmp_path, monkeypatch):
    """One goes back to a checkpoint, and not because of the pages to where one begins."""
    monkeypatch.setattr(recurrent_model, "HEAD", 32)
    path = recurrent_model.write(tmp_path / "m.gguf", attention__key_length=32, attention__value_length=32)
    runner = Runner(Model.open(path), context_length=CONTEXT, kv_type="q4_0", threads=2)
    try:
        sequence = runner.sequence()
        for begin, end in ((0, 100), (100, 101), (101, 250)):
            expected = sequence.forward(IDS[begin:end])
        assert 100 in sequence.recurrent.positions
        assert sequence.truncate(120) in sequence.recurrent.positions
        assert sequence.position >= 100
        assert np.array_equal(sequence.forward(IDS[sequence.position : 250]), expected)
    finally:
        runner.close()


def test_memory():
    """Exact parts count as long as they are there; types that have none take nothing."""
    shapes = [LayerShape(2, 64, 96), LayerShape(0, 0, 0)]
    for k_type, v_type, size in (("q4_0", "q4_0", 160), ("q4_0", "f16", 64), ("q8_0", "q4_0", 96), ("f16", "f16", 0)):
        cache = KVCache(shapes, 256, k_type, v_type=v_type)
        assert cache.exact.page_bytes == 64 * 2 * 2 * size
        assert (cache.exact.k_address(0) != 0, cache.exact.v_address(0) != 0) == (k_type == "q4_0", v_type == "q4_0")
        table = PageTable(cache, 256)
        table.grow(256)
        taken = 4 * 64 * cache.bytes_per_token
        assert cache.bytes_in_use == taken + 4 * cache.exact.page_bytes
        table.close(256)
        assert cache.bytes_in_use == taken + 2 * cache.exact.page_bytes
        table.shrink(0)
        assert cache.bytes_in_use == 0
