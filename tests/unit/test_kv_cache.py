"""The cache's pages: where they lie, who owns them, and that their memory comes and goes."""

import mmap
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine.errors import ContextFullError, OutOfMemoryError, UnsupportedModelError
from tinyllm_engine.kv_cache import PAGE, KVCache, LayerShape, PageTable
from tinyllm_engine.measure import private_bytes
from tinyllm_engine.memory import array_at

SHAPES = [LayerShape(2, 64, 64), LayerShape(1, 80, 96)]


def pages_of(cache, layer):
    """K and V of a layer as bytes: uint8 [pages, page bytes] each."""
    return (
        array_at(cache.k_address(layer), np.uint8, cache.pages, cache.k_page_bytes[layer]),
        array_at(cache.v_address(layer), np.uint8, cache.pages, cache.v_page_bytes[layer]),
    )


def test_sizes_of_types():
    assert KVCache([LayerShape(2, 64, 96)], 64, "q8_0", v_type="q4_0").bytes_per_token == 2 * (2 * 34 + 3 * 18)
    assert KVCache([LayerShape(2, 64, 96)], 64, "bf16").bytes_per_token == 2 * 2 * (64 + 96)


@pytest.mark.parametrize(("kv_type", "element"), [("f16", 2), ("f32", 4)])
def test_sizes(kv_type, element):
    cache = KVCache(SHAPES, 130, kv_type)
    assert cache.pages == 3
    assert cache.bytes_per_token == element * (2 * (64 + 64) + 1 * (80 + 96))
    assert (cache.pages_in_use, cache.bytes_in_use) == (0, 0)
    cache.take_page()
    assert cache.bytes_in_use == PAGE * cache.bytes_per_token


def test_layers_and_pages_share_no_byte():
    cache = KVCache(SHAPES, 130)
    parts = [memory for layer in range(2) for memory in pages_of(cache, layer)]
    for number, memory in enumerate(parts, start=1):
        assert memory.ctypes.data % 64 == 0
        assert not memory.any()
        memory[:] = number
    for number, memory in enumerate(parts, start=1):
        assert (memory == number).all()


def test_another_type_is_refused():
    with pytest.raises(UnsupportedModelError, match=r"KV cache type: expected one of f32, .*, q4_0; found 'q3'"):
        KVCache(SHAPES, 64, "q3")


def test_heads_that_fill_no_blocks_are_refused():
    for types in (("q8_0", "f16"), ("f16", "q8_0")):
        with pytest.raises(UnsupportedModelError, match=r"KV cache type q8_0: expected heads .* of 32 .*, found 80"):
            KVCache([LayerShape(1, 80, 80)], 64, types[0], v_type=types[1])


def test_more_than_there_is_address_space():
    with pytest.raises(OutOfMemoryError, match=r"KV cache: the system refuses .* MB of address space"):
        KVCache(SHAPES, 1 << 55)


def test_pages_are_handed_out_once_until_none_is_left():
    cache = KVCache(SHAPES, 200)
    taken = [cache.take_page() for _ in range(4)]
    assert sorted(taken) == [0, 1, 2, 3]
    with pytest.raises(ContextFullError, match="all 4 pages of 64 tokens are in use"):
        cache.take_page()
    cache.drop_page(taken[1])
    assert cache.pages_in_use == 3
    assert cache.take_page() == taken[1]


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED") or sys.platform != "linux", reason="needs MADV_DONTNEED")
def test_a_dropped_page_gives_its_memory_back():
    cache = KVCache([LayerShape(2, 64, 64)], 256)  # pages of 16384 bytes: whole pages of the system
    first, second = cache.take_page(), cache.take_page()
    for memory in pages_of(cache, 0):
        memory[:] = 7
    cache.drop_page(first)
    for memory in pages_of(cache, 0):
        inner = memory[first][mmap.PAGESIZE : -mmap.PAGESIZE]
        assert not inner.any()  # reads as zero: the system has taken it
        assert (memory[second] == 7).all()


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED") or sys.platform != "linux", reason="needs MADV_DONTNEED")
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_windowed_parts_that_are_dropped_give_their_memory_back(kv_type):
    """Those of q8_0 end in the middle of a page of the system; neighbours that are free go together."""
    cache = KVCache([LayerShape(8, 64, 64), LayerShape(32, 64, 64, window=100)], 1 << 15, kv_type)
    table, before = PageTable(cache, 1 << 15), private_bytes()
    table.grow(128 * PAGE)
    table.hold(range(128))
    for page in table.table[:128]:
        for part in cache.page_bytes(int(page)):
            part[:] = 1
    whole = private_bytes() - before
    table.keep(np.arange(128) >= 120)
    left = private_bytes() - before
    assert cache.bytes_in_use < 0.3 * cache.bytes_per_token * 128 * PAGE
    assert abs(whole - left - (128 * PAGE * cache.bytes_per_token - cache.bytes_in_use)) < 0.02 * whole
    for page in table.table[:128]:
        assert all((part == 1).all() for part in cache.page_bytes(int(page), windowed=page >= table.table[120]))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 500)), max_size=30))
def test_tables_hold_just_the_pages_their_sequences_need(steps):
    cache = KVCache([LayerShape(1, 8, 16)], 3 * 512)
    tables = [PageTable(cache, 512) for _ in range(3)]
    lengths = [0, 0, 0]
    for number, length in steps:
        before = tables[number].table[: tables[number].count].copy()
        if length > lengths[number]:
            tables[number].grow(length)
        else:
            tables[number].shrink(length)
        lengths[number] = length
        kept = min(len(before), tables[number].count)
        assert np.array_equal(tables[number].table[:kept], before[:kept])
        assert [table.count for table in tables] == [-(-length // PAGE) for length in lengths]
        owned = np.concatenate([table.table[: table.count] for table in tables])
        assert len(set(owned.tolist())) == len(owned) == cache.pages_in_use


def test_growing_beyond_what_is_free_says_so():
    cache = KVCache([LayerShape(1, 8, 16)], 128)
    one, other = PageTable(cache, 128), PageTable(cache, 128)
    one.grow(65)
    with pytest.raises(ContextFullError):
        other.grow(1)
    one.shrink(64)
    other.grow(1)
    assert (one.count, other.count) == (1, 1)
