"""The types of the cache as the chat knows them: the engine's, their sizes, and what a model gets in place of one."""

import pytest
from tinyllm_chat.chat.cache_types import BLOCKS, CACHE_TYPES, bytes_per_token, described, full_bytes, types_for
from tinyllm_engine.cached_types import CACHED_TYPES
from tinyllm_engine.kv_cache import KVCache, LayerShape, PageTable

SHAPES = [LayerShape(3, 64, 96), LayerShape(0, 1, 1), LayerShape(1, 32, 64)]


def test_they_are_the_engines() -> None:
    assert {kind.name: (kind.block, kind.block_bytes) for kind in CACHED_TYPES.values()} == BLOCKS


@pytest.mark.parametrize("k_type", CACHE_TYPES)
@pytest.mark.parametrize("v_type", CACHE_TYPES)
def test_a_token_takes_what_the_engine_says(k_type: str, v_type: str) -> None:
    assert bytes_per_token(SHAPES, k_type, v_type) == KVCache(SHAPES, 64, k_type, v_type=v_type).bytes_per_token
    assert types_for(SHAPES, k_type, v_type) == (k_type, v_type, [])


@pytest.mark.parametrize(("k_type", "v_type"), [("f16", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0")])
@pytest.mark.parametrize("context_length", [64, 256])
def test_a_full_cache_takes_what_is_said(k_type: str, v_type: str, context_length: int) -> None:
    cache = KVCache(SHAPES, context_length, k_type, v_type=v_type)
    table = PageTable(cache, context_length)
    table.grow(context_length)
    table.close(context_length)
    assert full_bytes(SHAPES, k_type, v_type, context_length) == cache.bytes_in_use


def test_heads_that_fill_no_blocks_are_cached_as_they_can_be_and_that_is_told() -> None:
    shapes = [LayerShape(3, 64, 64), LayerShape(3, 80, 64)]
    assert types_for(shapes, "bf16", "f32") == ("bf16", "f32", [])
    k_type, v_type, notes = types_for(shapes, "q8_0", "q4_0")
    assert (k_type, v_type) == ("f16", "q4_0")
    assert notes == ["K is cached as f16: heads of 80 elements are no whole blocks of q8_0"]


def test_one_name_says_it_where_both_are_the_same() -> None:
    assert (described("f16", "f16"), described("q8_0", "f16")) == ("f16", "q8_0/f16")
