"""Moving what is cached to other positions: room is made in the middle of a sequence without evaluating it again.

A key that was rotated for position p is the key of position p' once it is turned by the difference of the two angles.
So the rows behind a gap move down and their keys turn back. Values and everything else in the rows stays as it was
made, and it was made while the removed tokens could still be seen: what comes after a shift is therefore not what a
fresh evaluation of the remaining tokens gives. It still knows something of what is gone.

Not every model permits it: positions that are learned or that recurrent layers have counted are part of every value,
and a norm after the rotation cannot be undone. Layers with a window move what they still have, which may not be all
that they would see at the new end.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.cached_rows import read_keys, read_values, write_keys, write_values
from tinyllm_engine.cached_types import PAGE
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.kv_cache import KVCache, PageTable
from tinyllm_engine.parts.attention import Attention
from tinyllm_engine.parts.latent_attention import AbsorbedHeads, LatentAttention
from tinyllm_engine.rope import Rope
from tinyllm_engine.weights import Layer
from tinyllm_engine.windows import runs

if TYPE_CHECKING:
    from tinyllm_engine.model import Model
    from tinyllm_engine.runner import Runner

PIECE = 8  # pages that are moved at a time: what is made of them stays in the processor's cache


def check_shift(model: Model) -> None:
    """UnsupportedModelError names what of the model does not let tokens be removed from the middle of a sequence."""
    where = f"{model.path}: tokens cannot be removed from the middle of a chat:"
    if model.weights.position_embd is not None:
        raise UnsupportedModelError(f"{where} position_embd.weight has put their positions into all that follows")
    for block, layer in enumerate(model.weights.layers):
        if layer.state_size:
            raise UnsupportedModelError(f"{where} block {block} is recurrent and remembers them")
        for part in layer.mixers:
            if isinstance(part, Attention) and part.rope is not None and part.norm_after_rope and part.k_norm:
                raise UnsupportedModelError(f"{where} blk.{block}.attn_k_norm norms keys that have been rotated")


def check_windows(model: Model, pages: PageTable, begin: int, end: int, position: int) -> NDArray[np.bool_]:
    """Which pages layers with a window have once the rows from `end` to `position` are at `begin`: bool [pages].

    UnsupportedModelError if what they see from there on is not among them.
    """
    held = pages.held_after_removing(begin, end, position)
    needed = pages.cache.windows.needed(position - (end - begin))
    if not held[needed.start : needed.stop].all():
        raise UnsupportedModelError(
            f"{model.path}: tokens cannot be removed here: layers with a window no longer have those before"
        )
    return held


def rotation_of(layer: Layer) -> tuple[Rope, int] | None:
    """How cached keys of a layer rotate, and from which element of a head on; None where they do not."""
    for part in layer.mixers:
        if isinstance(part, Attention):
            return None if part.rope is None else (part.rope, 0)
        if isinstance(part, LatentAttention):
            absorbed = isinstance(part.heads_of, AbsorbedHeads)
            return part.rope, part.latent.outputs if absorbed else part.resting
    return None


def move_down(runner: Runner, pages: PageTable, begin: int, end: int, position: int, held: NDArray[np.bool_]) -> None:
    """Moves the rows from `end` to `position` down to `begin`, in pages that nobody shares from `begin` on.

    held: what `check_windows` found
    """
    layers, last = runner.model.weights.layers, position - (end - begin)
    whole = [(begin, last)]
    windowed = [(max(begin, first * PAGE), min(last, until * PAGE)) for first, until in runs(held)]
    first_moved = begin // PAGE
    pages.hold(np.flatnonzero(held[first_moved:]) + first_moved)
    turns = {rope: _turns(rope, runner.context_length, begin, end, position) for rope in runner.model.weights.ropes}

    def move(layer: int) -> None:
        rotation = rotation_of(layers[layer])
        turned = None if rotation is None else (*turns[rotation[0]], rotation[0].interleaved, rotation[1])
        for first, until in windowed if runner.cache.is_windowed[layer] else whole:
            _move_layer(runner.cache, layer, pages, begin, end - begin, range(first, until), turned)

    cached = [layer for layer, shape in enumerate(runner.cache.layers) if shape.heads]
    with ThreadPoolExecutor(runner.threads) as pool:  # NumPy lets go of the interpreter
        list(pool.map(move, cached))
    pages.keep(np.append(held, np.zeros(pages.count - len(held), np.bool_)))


Turns = tuple[NDArray[np.float32], NDArray[np.float32]]
Turned = tuple[NDArray[np.float32], NDArray[np.float32], bool, int]


def _turns(rope: Rope, context_length: int, begin: int, end: int, position: int) -> Turns:
    """cos and sin, float32 [pairs, rows], of the angle by which each row that moves turns.

    It is the difference of the two angles as they are rounded when a row is rotated.
    """
    frequencies, _ = rope.frequencies(context_length)
    old = np.arange(end, position, dtype=np.float32)
    new = np.arange(begin, position - (end - begin), dtype=np.float32)
    before, after = (np.outer(frequencies, rows).astype(np.float64) for rows in (old, new))
    return np.cos(after - before).astype(np.float32), np.sin(after - before).astype(np.float32)


def _move_layer(
    cache: KVCache, layer: int, pages: PageTable, begin: int, gap: int, targets: range, turned: Turned | None
) -> None:
    """Fills rows from those `gap` behind them; the first that is turned at all is `begin`.

    Piece by piece from the first row on: a row's old place is behind its new one, so nothing is lost.
    """
    target = targets.start
    while target < targets.stop:
        until = min((target // PAGE + PIECE) * PAGE, targets.stop)
        first = (target + gap) // PAGE
        sources = pages.table[first : -(-(until + gap) // PAGE)]
        rows = slice(target + gap - first * PAGE, until + gap - first * PAGE)
        keys, values = read_keys(cache, layer, sources)[:, :, rows], read_values(cache, layer, sources)[:, rows]
        if turned is not None:
            cos, sin, interleaved, element = turned
            angles = slice(target - begin, until - begin)
            _rotate(keys[:, element:], cos[:, angles], sin[:, angles], interleaved)
        write_keys(cache, layer, pages.table, target, keys)
        write_values(cache, layer, pages.table, target, values)
        target = until


def _rotate(keys: NDArray[np.float32], cos: NDArray[np.float32], sin: NDArray[np.float32], interleaved: bool) -> None:
    """Turns pairs of elements of keys [heads, elements, rows] by angles [pairs, rows], in place."""
    pairs = len(cos)
    first = keys[:, : 2 * pairs : 2] if interleaved else keys[:, :pairs]
    second = keys[:, 1 : 2 * pairs : 2] if interleaved else keys[:, pairs : 2 * pairs]
    x = first * cos - second * sin
    second[:] = first * sin + second * cos
    first[:] = x
