"""The loop that byte-level BPE and SentencePiece share: join the best adjacent pair until none is left."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

Rank = Callable[[str, str], float | None]


def merge_pairs(symbols: list[str], rank: Rank) -> list[str]:
    """Join the adjacent pair of lowest rank, of equal ones the leftmost, until no pair has a rank.

    rank: of (left, right); None if the two do not join. Takes n log n steps for n symbols.
    """
    parts = list(symbols)  # "" once joined to the left neighbour
    left_of = list(range(-1, len(parts) - 1))
    right_of = [*range(1, len(parts)), -1]
    queue = []  # (rank, position of the left part)

    for at in range(len(parts) - 1):
        if (pair_rank := rank(parts[at], parts[at + 1])) is not None:
            queue.append((pair_rank, at))
    heapify(queue)

    while queue:
        best, at = heappop(queue)
        left, neighbour = parts[at], right_of[at]
        # Entries outdated by a merge stay in the queue. Should the pair that now stands here have the same rank, it is
        # this entry's equal: its own has the same key.
        if not left or neighbour < 0 or rank(left, parts[neighbour]) != best:
            continue
        joined = parts[at] = left + parts[neighbour]
        parts[neighbour] = ""
        before, after = left_of[at], right_of[neighbour]
        right_of[at] = after
        if after >= 0:
            left_of[after] = at
            if (pair_rank := rank(joined, parts[after])) is not None:
                heappush(queue, (pair_rank, at))
        if before >= 0 and (pair_rank := rank(parts[before], joined)) is not None:
            heappush(queue, (pair_rank, before))
    return [part for part in parts if part]
