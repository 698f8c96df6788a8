"""What tokens that are there already were chosen from: the model reads them again, many at a time.

Logits do not depend on how many rows are evaluated together, so these are the figures that `generate` would have told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tinyllm_engine.cancel import Cancel
from tinyllm_engine.choices import MOST
from tinyllm_engine.errors import ContextFullError, EngineError, SamplingError
from tinyllm_engine.generation import Token, common_prefix, tokenizer_of
from tinyllm_engine.sampling.sampler import check_finite, log_probability
from tinyllm_engine.top_tokens import TopTokens

ROWS = 64  # evaluated between two looks at `cancel` of the caller's own


def look_back(
    sequence: Any, ids: Sequence[int], start: int, top_logprobs: int, cancel: Cancel | None = None
) -> Iterator[Token]:
    """Yields a Token with its `choice`, without text, for each of ids[start:]; `start` is at least 1.

    What the sequence has in common with `ids` before `start` is kept; afterwards it holds all of them but the last.
    Raises EngineError for bad arguments, ContextFullError, CancelledError, NonFiniteLogitsError.
    """
    if not 1 <= start <= len(ids):
        raise EngineError(f"look_back: expected a start of 1 to {len(ids)}, found {start}")
    if not 1 <= top_logprobs <= MOST:
        raise SamplingError(f"top_logprobs: expected 1 to {MOST}, found {top_logprobs}")
    room = sequence.runner.context_length
    if len(ids) - 1 > room:
        raise ContextFullError(f"context: expected at most {room + 1} tokens, found {len(ids)}")
    looking = TopTokens(top_logprobs, tokenizer_of(sequence))
    kept = sequence.truncate(common_prefix(sequence.tokens, ids[: start - 1]))
    if kept < start - 1:
        sequence.forward(ids[kept : start - 1], cancel=cancel)
    for first in range(start, len(ids), ROWS):
        tokens = ids[first : first + ROWS]
        rows = sequence.forward(ids[first - 1 : first - 1 + len(tokens)], all_logits=True, cancel=cancel)
        for logits, token in zip(rows, tokens, strict=True):
            check_finite(logits)
            yield Token(token, "", log_probability(logits, token), looking.look(logits, token))
