"""Mirostat (Basu et al., 2021): draws so that the surprise of the tokens, in bits, stays near a target."""

from __future__ import annotations

import math

import numpy as np

from tinyllm_engine.sampling.chain import Candidates, draw, top_k

ESTIMATED_FROM = 100  # candidates whose probabilities show the exponent of Zipf's law


def mirostat_1(candidates: Candidates, vocab_size: int, mu: float, u: float) -> tuple[int, float]:
    """(id, its surprise in bits among those it was drawn from): the top k, k being what would give a surprise of mu."""
    scores = np.sort(candidates.scores[candidates.scores > -np.inf])[::-1]
    log_ratios = scores[:-1][: ESTIMATED_FROM - 1] - scores[1:][: ESTIMATED_FROM - 1]
    ranks = np.arange(1, log_ratios.size + 1)
    log_ranks = np.log((ranks + 1) / ranks)
    exponent = float(log_ranks @ log_ratios) / float(log_ranks @ log_ranks) if ranks.size else 1.0
    return _draw(top_k(candidates, _size_of_top(exponent, vocab_size, mu)), vocab_size, u)


def mirostat_2(candidates: Candidates, vocab_size: int, mu: float, u: float) -> tuple[int, float]:
    """(id, its surprise in bits among those it was drawn from): those that surprise by at most mu."""
    p = candidates.probabilities()
    kept = p >= 2.0**-mu
    if not kept.any():
        kept[int(p.argmax())] = True
    return _draw(candidates.keep(kept), vocab_size, u)


def _size_of_top(exponent: float, vocab_size: int, mu: float) -> int:
    """k of a Zipf law with this exponent, where the top k are to surprise by mu on average; at least 1."""
    epsilon = exponent - 1
    try:
        ratio = epsilon / (1 - vocab_size**-epsilon) if epsilon else 1 / math.log(vocab_size)
        k = (ratio * 2.0**mu) ** (1 / exponent)
    except (OverflowError, ZeroDivisionError):
        return vocab_size
    return max(1, min(int(k), vocab_size)) if math.isfinite(k) else vocab_size


def _draw(candidates: Candidates, vocab_size: int, u: float) -> tuple[int, float]:
    index = draw(candidates, u, vocab_size)
    return int(candidates.ids[index]), -math.log2(float(candidates.probabilities()[index]))
