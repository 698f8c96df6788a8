"""The text of an answer, token by token: characters complete, stop strings cut off with all that follows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST_CHARACTER = 4  # bytes, and so tokens at most, of a character


class AnswerText:
    """What is shown of one answer; `stopped` is set once a stop string is complete.

    tokenizer: None: the tokens have no text
    show: control tokens whose text shall be seen
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str], show: Collection[int]) -> None:
        self._eog_ids: frozenset[int] = tokenizer.eog_ids if tokenizer is not None else frozenset()
        self.has_stops = bool(stops)
        self.stopped = False
        self._stream = tokenizer.stream(show) if tokenizer is not None else None
        self._stops = tuple(stops)
        self._held = ""  # the longest end of the text that begins a stop string

    def eog_mask(self, vocab_size: int) -> NDArray[np.bool_]:
        """bool [vocabulary]: the tokens that end a generation."""
        mask = np.zeros(vocab_size, np.bool_)
        mask[[id for id in self._eog_ids if id < vocab_size]] = True
        return mask

    def follow(self, prompt: Sequence[int]) -> None:
        """A character that the prompt leaves incomplete is completed by the first tokens."""
        if self._stream is not None:
            for id in prompt[-LONGEST_CHARACTER:]:
                self._stream.feed(id)

    def feed(self, id: int) -> str:
        """What can be shown after this token; sets `stopped` where it completes a stop string."""
        if self._stream is None:
            return ""
        text = self._held + self._stream.feed(id)
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        held = self._possible_stop(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def rest(self) -> str:
        """What is still held back, once no token follows."""
        if self.stopped or self._stream is None:
            return ""
        text, self._held = self._held + self._stream.flush(), ""
        return text

    def _possible_stop(self, text: str) -> int:
        """Length of the longest end of the text that is the beginning of a stop string."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[len(text) - length :]) for stop in self._stops):
                return length
        return 0
