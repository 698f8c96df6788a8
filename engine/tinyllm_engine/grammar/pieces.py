"""The bytes that the tokens of a vocabulary stand for, as a trie that is walked level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Pieces:
    """A node is a beginning of some pieces. Node 0 is the empty one; children follow each other, in levels."""

    last_byte: NDArray[np.uint8]  # [nodes]
    first_child: NDArray[np.int64]  # [nodes]
    children: NDArray[np.int64]  # [nodes] how many
    node: NDArray[np.int64]  # [vocabulary] the node of a token's whole piece; 0: it has none
    pieces: Sequence[bytes]


def trie_of(pieces: Sequence[bytes]) -> Pieces:
    """The trie of each token's piece; an empty one is not in it."""
    order = sorted(range(len(pieces)), key=pieces.__getitem__)
    lengths = np.array([len(pieces[id]) for id in order], np.int64)
    flat = np.frombuffer(b"".join(pieces[id] for id in order), np.uint8)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
    at = np.zeros(len(order), np.int64)  # the node that each piece has come to
    levels: list[NDArray[np.uint8]] = [np.zeros(1, np.uint8)]
    parents: list[NDArray[np.int64]] = [np.full(1, -1, np.int64)]
    nodes = 1
    for depth in range(int(lengths.max(initial=0))):
        going_on = np.flatnonzero(lengths > depth)
        byte, parent = flat[starts[going_on] + depth], at[going_on]
        new = np.ones(going_on.size, np.bool_)
        new[1:] = (parent[1:] != parent[:-1]) | (byte[1:] != byte[:-1])
        at[going_on] = nodes + np.cumsum(new) - 1
        levels.append(byte[new])
        parents.append(parent[new])
        nodes += int(np.count_nonzero(new))
    parent = np.concatenate(parents)[1:]
    children = np.bincount(parent, minlength=nodes).astype(np.int64)
    node = np.zeros(len(pieces), np.int64)
    node[np.array(order, np.int64)] = at
    # Nodes are numbered by levels, and in a level by their parents: children follow each other.
    first_child = np.concatenate(([1], 1 + np.cumsum(children)[:-1])).astype(np.int64)
    return Pieces(np.concatenate(levels), first_child, children, node, pieces)
