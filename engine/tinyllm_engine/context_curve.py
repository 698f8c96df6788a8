"""What a context of some length costs: how fast it is read, and how much longer a token takes behind it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tinyllm_engine.errors import EngineError
from tinyllm_engine.model import Progress

SHORTEST = 128  # tokens; every length is twice the one before
WRITTEN = 16  # tokens behind each length


@dataclass(frozen=True, slots=True)
class Point:
    """A context of so many tokens; medians."""

    tokens: int
    prefill_tokens_per_second: float  # all of it, read from an empty cache
    last_tokens_per_second: float  # the half that the length before does not have
    decode_ms: float  # one token behind it
    added_ms: float  # ... more than behind the shortest one
    cache_mb: float


def context_curve(
    runner: Any,
    longest: int,
    runs: int = 3,
    progress: Progress | None = None,
) -> list[Point]:
    """Measures lengths from SHORTEST to `longest`, at the end of which the last tokens are written.

    Raises EngineError if the context has no room for two lengths.
    """
    longest = min(longest, runner.context_length)
    lengths = [SHORTEST << doubled for doubled in range(64) if SHORTEST << doubled < longest]
    if not lengths:
        raise EngineError(f"bench: expected a context of more than {SHORTEST} tokens, found {longest}")
    lengths.append(longest)
    ids = np.random.default_rng(0).integers(0, runner.vocab_size, longest).tolist()
    reading: dict[int, list[float]] = {length: [] for length in lengths}  # seconds, of each half
    writing: dict[int, list[float]] = {length: [] for length in lengths}  # seconds a token
    cache: dict[int, int] = {}  # bytes
    sequence = runner.sequence()
    sequence.truncate(0)
    sequence.forward(ids[:SHORTEST])  # caches and clocks are cold the first time
    for run in range(runs):
        sequence.truncate(0)
        for step, length in enumerate(lengths):
            # The last length ends where the context does: its tokens are written in place of its end.
            end = min(length, longest - WRITTEN)
            seconds = _seconds(sequence, [ids[sequence.position : end]])
            cache[length] = runner.cache.bytes_in_use
            reading[length].append(seconds * (length - _before(length, lengths)) / (end - _before(length, lengths)))
            writing[length].append(_seconds(sequence, [[id] for id in ids[:WRITTEN]]) / WRITTEN)
            sequence.truncate(end)
            if progress is not None:
                progress("measuring", run * len(lengths) + step + 1, runs * len(lengths))
    points, total = [], 0.0
    for length in lengths:
        half, token = median(reading[length]), median(writing[length])
        total += half
        points.append(
            Point(
                tokens=length,
                prefill_tokens_per_second=length / total,
                last_tokens_per_second=(length - _before(length, lengths)) / half,
                decode_ms=1e3 * token,
                added_ms=1e3 * (token - median(writing[lengths[0]])),
                cache_mb=cache[length] / 1e6,
            )
        )
    sequence.truncate(0)
    return points


def _before(length: int, lengths: list[int]) -> int:
    return max((other for other in lengths if other < length), default=0)


def _seconds(sequence: Any, batches: list[list[int]]) -> float:
    started = time.perf_counter()
    for ids in batches:
        sequence.forward(ids)
    return time.perf_counter() - started
