"""DRY (p-e-w, 2024): which tokens would make a repeated sequence longer, what that costs, and what ends one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.sampling.params import SamplingParams

LONGEST_BREAKER = 40  # bytes of a breaker that count
LONGEST_TAIL = 20  # tokens that a breaker may go on for
MAX_EXPONENT_LOG = 88.7228391  # log of the highest float32

# A token that begins a breaker: what must follow it, () if it is one by itself.
Breakers = Mapping[int, tuple[tuple[int, ...], ...]]


def find_breakers(tokenizer: Any, texts: Sequence[str]) -> Breakers:
    """Where the texts can begin in tokens: within one, or at its end and going on in the next ones."""
    found: dict[int, dict[tuple[int, ...], None]] = {}
    breakers = [text.encode()[:LONGEST_BREAKER] for text in texts if text]
    tails: dict[bytes, tuple[int, ...]] = {}

    def tail_of(rest: bytes) -> tuple[int, ...]:
        if rest not in tails:
            ids = tokenizer.encode(rest.decode("utf-8", "replace"), add_bos=False)
            tails[rest] = tuple(ids[:LONGEST_TAIL])
        return tails[rest]

    for id in range(tokenizer.vocab_size):
        piece = tokenizer.piece(id)
        for breaker in breakers:
            if breaker in piece:
                found.setdefault(id, {})[()] = None
                continue
            for length in range(1, min(len(breaker), len(piece) + 1)):
                if piece.endswith(breaker[:length]):
                    found.setdefault(id, {})[tail_of(breaker[length:])] = None
    return {id: tuple(each) for id, each in found.items()}


def repetitions(
    tokens: Sequence[int] | NDArray[np.int32], params: SamplingParams, breakers: Breakers
) -> dict[int, int]:
    """For each token that would continue a repetition: how many tokens would have been repeated before it.

    Only those of at least the allowed length, and no token that is a breaker by itself.
    """
    last_n, allowed = params.dry_penalty_last_n, params.dry_allowed_length
    window = np.asarray(tokens if last_n < 0 else tokens[max(0, len(tokens) - last_n) :], np.int64)
    if window.size <= allowed:
        return {}
    limit = _reach(window, breakers)
    if limit < allowed:
        return {}
    lengths = suffix_lengths(window, min(limit, allowed + _most_exponent(params)))
    longest: dict[int, int] = {}
    for place in np.flatnonzero(lengths >= allowed).tolist():
        follower = int(window[place + 1])
        longest[follower] = max(longest.get(follower, 0), int(lengths[place]))
    return {id: length for id, length in longest.items() if () not in breakers.get(id, ())}


def penalty_of(length: int, params: SamplingParams) -> float:
    """What is subtracted from the logit of a token that continues a repetition of so many; a finite float32."""
    exponent = min(length - params.dry_allowed_length, _most_exponent(params))
    return params.dry_multiplier * params.dry_base**exponent


def _most_exponent(params: SamplingParams) -> int:
    """From which on a longer repetition costs no more: it would be no float32, or costs as much as a short one."""
    return int(MAX_EXPONENT_LOG / math.log(params.dry_base)) if params.dry_base > 1.000001 else 0


def suffix_lengths(window: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """int64 [size - 1]: how many tokens up to and including each place are those that the window ends with."""
    lengths = np.zeros(window.size - 1, np.int64)
    places = np.arange(window.size - 1)
    for back in range(limit):
        places = places[places >= back]
        places = places[window[places - back] == window[-1 - back]]
        if not places.size:
            break
        lengths[places] += 1
    return lengths


def _reach(window: NDArray[np.int64], breakers: Breakers) -> int:
    """How many of the last tokens a repetition may consist of: those after the last breaker."""
    backwards = window[::-1].tolist()
    for behind, id in enumerate(backwards):
        tails = breakers.get(id)
        if tails is None:
            continue
        complete = [
            len(tail)
            for tail in tails
            if len(tail) <= behind and all(backwards[behind - 1 - i] == token for i, token in enumerate(tail))
        ]
        if complete:
            return behind - max(complete)
    return window.size
