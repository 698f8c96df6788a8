"""The number formats of cached keys and values: what a token takes, and what a model gets that cannot have its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Elements that share a block, and its bytes, by the names of the engine's cached_types: settings are read without it.
BLOCKS = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}
CACHE_TYPES = tuple(BLOCKS)
DEFAULT = "f16"


def cached_shapes(model: Any) -> list[Any]:
    """What each layer caches of a token: its heads, k_size and v_size, and the window in which it keeps that.

    Blocks without attention have no heads.
    """
    return list(model.weights.cached)


def types_for(shapes: Sequence[Any], k_type: str, v_type: str) -> tuple[str, str, list[str]]:
    """The types of K and V that a model gets, and what the user must know about them.

    Blocks that its heads do not fill cannot be had: then it is f16.
    """
    taken, notes = [], []
    for name, kind, field in (("K", k_type, "k_size"), ("V", v_type, "v_size")):
        block, _ = BLOCKS[kind]
        sizes = [getattr(shape, field) for shape in shapes if shape.heads]
        odd = next((size for size in sizes if size % block), None)
        if odd is not None:
            notes.append(f"{name} is cached as {DEFAULT}: heads of {odd} elements are no whole blocks of {kind}")
            kind = DEFAULT
        taken.append(kind)
    return taken[0], taken[1], notes


def bytes_per_token(shapes: Sequence[Any], k_type: str, v_type: str) -> int:
    """Bytes of keys and values that one token takes in all layers, with types from `types_for`."""
    (k_block, k_bytes), (v_block, v_bytes) = BLOCKS[k_type], BLOCKS[v_type]
    keys = sum(int(shape.heads * shape.k_size) for shape in shapes)
    values = sum(int(shape.heads * shape.v_size) for shape in shapes)
    return max(1, keys * k_bytes // k_block + values * v_bytes // v_block)


def lasting_bytes_per_token(shapes: Sequence[Any], k_type: str, v_type: str, context_length: int) -> int:
    """Of these, the bytes in layers that see the whole context: the others give theirs back behind their windows."""
    lasting = [shape for shape in shapes if not 0 < abs(shape.window) < context_length]
    return bytes_per_token(lasting, k_type, v_type) if any(shape.heads for shape in lasting) else 0


def full_bytes(shapes: Sequence[Any], k_type: str, v_type: str, context_length: int) -> int:
    """What a cache takes at most: all rows of layers that see the whole context, and of the others what they keep.

    Types that keep pages exact do so with the first one and the one that is written.
    """
    from tinyllm_engine.cached_types import PAGE, cached_type
    from tinyllm_engine.windows import Windows

    windows = Windows.within(context_length, [shape.window for shape in shapes if shape.heads])
    kept = min(context_length, PAGE * windows.most_pages(-(-context_length // PAGE)))
    lasting = lasting_bytes_per_token(shapes, k_type, v_type, context_length)
    exact = sum(
        shape.heads * (cached_type(k_type).exact_bytes(shape.k_size) + cached_type(v_type).exact_bytes(shape.v_size))
        for shape in shapes
        if shape.heads
    )
    rows = context_length * lasting + kept * (bytes_per_token(shapes, k_type, v_type) - lasting)
    return rows + min(2, -(-context_length // PAGE)) * int(exact)


def described(k_type: str, v_type: str) -> str:
    """f16, or q8_0/f16 where keys are q8_0 and values f16"""
    return k_type if k_type == v_type else f"{k_type}/{v_type}"
