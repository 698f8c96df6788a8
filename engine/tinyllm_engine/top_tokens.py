"""Looks at the logits that tokens are drawn from: the likeliest, by their texts (see choices)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.choices import CONTROL, END, Alternative, Choice
from tinyllm_engine.kernels.top_tokens import TOP, find_top_tokens


class TopTokens:
    """Looks at the logits that tokens are drawn from; `take` gives what was seen since the last time.

    most: alternatives of each token; tokenizer: for their texts, None: they have none
    """

    def __init__(self, most: int, tokenizer: Any = None) -> None:
        self._most = most
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, str]] = {}
        self._arguments = np.zeros(1, TOP)
        self._address = self._arguments.ctypes.data
        self._ids = np.zeros((0, 0), np.int32)
        self._logprobs, self._entropies = np.zeros((0, 0)), np.zeros(0)
        self._ranks = np.zeros(0, np.int64)

    def prepare(self, logits: NDArray[np.float32], rows: int) -> int:
        """Address of the arguments with which `find_top_tokens` looks at these logits up to so many times."""
        most = min(self._most, logits.size)
        if self._ids.shape[0] < rows or self._ids.shape[1] != most:
            self._ids, self._logprobs = np.zeros((rows, most), np.int32), np.zeros((rows, most))
            self._ranks, self._entropies = np.zeros(rows, np.int64), np.zeros(rows)
        values = {
            "logits": logits.ctypes.data,
            "vocabulary": logits.size,
            "most": most,
            "row": 0,
            "ids": self._ids.ctypes.data,
            "logprobs": self._logprobs.ctypes.data,
            "ranks": self._ranks.ctypes.data,
            "entropies": self._entropies.ctypes.data,
        }
        for name, value in values.items():
            self._arguments[name] = value
        return self._address

    def look(self, logits: NDArray[np.float32], token: int) -> Choice:
        """What else could have been drawn from these logits, float32 [vocab], in place of `token`."""
        logits = np.ascontiguousarray(logits, np.float32)
        self.prepare(logits, 1)
        self._arguments["token"] = token
        find_top_tokens(0, 1, self._address)
        return self.take([token])[0]

    def take(self, tokens: list[int]) -> list[Choice]:
        """What was seen when these tokens were drawn, which are the first since `prepare`."""
        return [
            Choice(
                self._text_and_kind(token)[0],
                int(self._ranks[row]),
                float(self._entropies[row]),
                tuple(
                    Alternative(id, text, logprob, kind)
                    for id, logprob in zip(self._ids[row].tolist(), self._logprobs[row].tolist(), strict=True)
                    for text, kind in (self._text_and_kind(id),)
                ),
            )
            for row, token in enumerate(tokens)
        ]

    def _text_and_kind(self, id: int) -> tuple[str, str]:
        known = self._known.get(id)
        if known is None:
            known = self._known[id] = text_and_kind(self._tokenizer, id)
        return known


def text_and_kind(tokenizer: Any, id: int) -> tuple[str, str]:
    """What a token adds to a text, and whether it is one, as in Alternative."""
    if tokenizer is None or not 0 <= id < tokenizer.vocab_size:
        return "", ""
    piece = tokenizer.piece(id)
    if id in tokenizer.eog_ids:
        return tokenizer.token_text(id), END
    return (piece.decode("utf-8", "surrogateescape"), "") if piece else (tokenizer.token_text(id), CONTROL)
