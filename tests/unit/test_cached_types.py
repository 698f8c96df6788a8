"""Pages of the cache in NumPy: what goes in comes out, as near as the type allows. (Kernels: see test_kernels.)"""

import numpy as np
import pytest
from tinyllm_engine.cached_types import (
    CACHED_TYPES,
    PAGE,
    k_slots,
    pack_k,
    pack_v,
    turned,
    unpack_k,
    unpack_v,
    v_slots,
)
from tinyllm_engine.errors import UnsupportedModelError

ERRORS = {"f32": 0.0, "f16": 3e-4, "bf16": 2.5e-3, "q8_0": 7e-3, "q4_0": 0.1}  # of numbers of deviation 1
WAYS = [(pack_k, unpack_k, k_slots), (pack_v, unpack_v, v_slots)]


def rows(*shape):
    return np.random.default_rng(3).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("kind", CACHED_TYPES.values(), ids=CACHED_TYPES)
@pytest.mark.parametrize(("pack", "unpack", "slots"), WAYS, ids=["K", "V"])
def test_there_and_back(kind, pack, unpack, slots):
    x = rows(2, 3, PAGE, 96)
    pages = pack(kind, x)
    assert (pages.shape, pages.dtype) == ((2, 3, kind.head_bytes(96)), np.uint8)
    back = unpack(kind, pages, 96)
    assert np.sqrt(np.mean((back - x) ** 2)) <= ERRORS[kind.name]
    assert np.array_equal(pages, pack(kind, back)) or kind.is_quantized  # turning rounds
    if kind.exact and pack is pack_k:
        return  # all rows make the scales of such a page
    x[..., 5, :] += 1
    changed = pages != pack(kind, x)
    assert changed.any()
    assert set(np.nonzero(changed)[-1]) <= set(np.flatnonzero(slots(kind, 96) == 5))
    assert (np.bincount(slots(kind, 96)) == kind.head_bytes(96) // PAGE).all()


def test_turning_leaves_products_and_turns_back():
    q, k = rows(10, 64), rows(10, 64)[::-1]
    assert np.allclose(turned(turned(q)), q, atol=1e-6)
    assert np.allclose(turned(q) @ turned(k).T, q @ k.T, atol=1e-5)


def test_a_large_element_does_not_drown_the_others():
    x = rows(1, PAGE, 32)
    x[..., 7] *= 100
    kind = CACHED_TYPES["q8_0"]
    found = np.delete(unpack_k(kind, pack_k(kind, x), 32) - x, 7, axis=-1)
    assert np.abs(found).max() < 100 / 127 / 2  # the step between codes without turning


def test_each_element_of_a_key_in_q4_0_has_its_own_scale_and_middle():
    """Neither a large element nor one that is always far from zero costs the others anything."""
    x = rows(1, PAGE, 32)
    x[..., 7] *= 100
    x[..., 9] += 1000
    kind = CACHED_TYPES["q4_0"]
    found = np.abs(unpack_k(kind, pack_k(kind, x), 32) - x)
    steps = (x.max(axis=-2) - x.min(axis=-2)) / 15
    assert (found <= steps[:, None] * 0.51 + np.where(np.arange(32) == 9, 0.5, 0)).all()  # halves near 1000


def test_no_whole_blocks():
    for name in ("q8_0", "q4_0"):
        with pytest.raises(UnsupportedModelError, match=f"{name}: expected heads of a multiple of 32 .*, found 80"):
            CACHED_TYPES[name].head_bytes(80)
