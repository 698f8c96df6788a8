"""How well a model predicts a text."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.errors import EngineError
from tinyllm_engine.model import Progress

LOGIT_ROWS = 64  # scored at a time: a row of a large vocabulary takes half a megabyte


@dataclass(frozen=True, slots=True)
class Perplexity:
    """How well a model predicts a text; 1 would be word for word."""

    value: float  # exp of the mean surprise
    tokens: int  # scored
    windows: int
    seconds: float


def perplexity(
    runner: Any,
    ids: Sequence[int],
    context: int = 512,
    bos_id: int | None = None,
    progress: Progress | None = None,
) -> Perplexity:
    """The perplexity of a text by the method of llama-perplexity, so that figures can be compared.

    `ids` is the text tokenized once. It is cut into windows of `context` tokens, a shorter rest is left out; each is
    evaluated from an empty cache, and the tokens of its second half are scored, so that each has at least half a window
    before it. `bos_id`, for models that begin with one, replaces the first token of every window.

    Raises EngineError if not one window comes together or it does not fit the runner's context.
    """
    if not 4 <= context <= runner.context_length:
        raise EngineError(f"perplexity: expected a context of 4 to {runner.context_length} tokens, found {context}")
    windows = len(ids) // context
    if windows == 0:
        raise EngineError(f"perplexity: expected a text of at least {context} tokens, found {len(ids)}")
    started = time.perf_counter()
    sequence = runner.sequence()
    surprise, scored, half = 0.0, 0, context // 2
    for window in range(windows):
        tokens = list(ids[window * context : (window + 1) * context])
        if bos_id is not None:
            tokens[0] = bos_id
        sequence.truncate(0)
        sequence.forward(tokens[:half])
        for start in range(half, context - 1, LOGIT_ROWS):
            end = min(start + LOGIT_ROWS, context - 1)
            logits = sequence.forward(tokens[start:end], all_logits=True)  # [rows, vocab]
            surprise += surprise_of(logits, tokens[start + 1 : end + 1])
            scored += end - start
        if progress is not None:
            progress("scoring", window + 1, windows)
    return Perplexity(math.exp(surprise / scored), scored, windows, time.perf_counter() - started)


def surprise_of(logits: NDArray[np.float32], ids: Sequence[int]) -> float:
    """Sum of -ln p(id) over rows: logits float32 [rows, vocab], one id for each row."""
    highest = logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(logits - highest).sum(axis=1, dtype=np.float64))  # [rows]
    chosen = logits[np.arange(len(ids)), ids] - highest[:, 0]
    return float((log_sums - chosen).sum())
