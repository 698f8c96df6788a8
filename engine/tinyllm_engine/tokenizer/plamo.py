"""PLaMo's tokenizer (`tokenizer.ggml.model` plamo2): the tokens of the highest sum of scores, found from the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tinyllm_engine.tokenizer.vocab import TokenType, Vocabulary, byte_token

_SCALE = 10_000  # scores are rounded, so that sums are exact
_UNKNOWN = 1000 * _SCALE  # cost of a character that is spelled in bytes
_INVALID = -2000 * _SCALE  # tokens that score no higher are not used


class BestSumEncoder:
    """Ids of a text without special tokens. ids: token text -> id, of those that may be used"""

    def __init__(self, vocabulary: Vocabulary, ids: Mapping[str, int]) -> None:
        self._costs = _costs(vocabulary.scores, vocabulary.types, ids)
        self._longest_first: dict[str, list[int]] = {}
        for text in self._costs:
            self._longest_first.setdefault(text[0], []).append(len(text))
        for lengths in self._longest_first.values():
            lengths[:] = sorted(set(lengths), reverse=True)
        self._bytes = {byte: ids[text] for byte in range(256) if (text := byte_token(byte)) in ids}

    def encode(self, text: str) -> list[int]:
        text = text.removeprefix("\ufeff")
        costs = [0] * (len(text) + 1)
        steps = [(1, -1)] * len(text)  # length of the token that is best there, and its id
        for at in range(len(text) - 1, -1, -1):
            best = costs[at + 1] + _UNKNOWN + 1
            for length in self._longest_first.get(text[at], ()):
                token = self._costs.get(text[at : at + length]) if at + length <= len(text) else None
                if token is not None and costs[at + length] + token[0] < best:
                    best, steps[at] = costs[at + length] + token[0], (length, token[1])
            if costs[at + 1] + _UNKNOWN < best:
                best, steps[at] = costs[at + 1] + _UNKNOWN, (1, -1)
            costs[at] = best
        ids: list[int] = []
        at = 0
        while at < len(text):
            length, id = steps[at]
            ids += [id] if id >= 0 else [self._bytes[byte] for byte in text[at].encode() if byte in self._bytes]
            at += length
        return ids


def _costs(scores: Sequence[float], types: Sequence[int], ids: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Token text -> its cost and its id."""
    scaled = {text: scores[id] * _SCALE for text, id in ids.items() if types[id] != TokenType.BYTE}
    return {
        text: (-_rounded(score), ids[text])
        for text, score in scaled.items()
        if math.isfinite(score) and score > _INVALID
    }


def _rounded(value: float) -> int:
    """To the nearest integer, halves away from zero."""
    return int(value + 0.5) if value >= 0 else -int(-value + 0.5)
