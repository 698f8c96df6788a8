"""Text out of ids, one at a time: a character may be spread over several tokens."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Gives each character as soon as its last byte is there. What was given is never taken back.

    Bytes that cannot become a character come out as U+FFFD, as they would from `bytes.decode(errors="replace")`.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, id: int) -> str:
        """The characters that this token completes; "" while one is incomplete."""
        return self._decoder.decode(self._piece(id))

    def flush(self) -> str:
        """U+FFFD for an incomplete character, "" otherwise. The decoder is then as new."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
