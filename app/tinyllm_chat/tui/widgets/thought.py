"""What a model thinks before it answers: one line, under which all of it can be unfolded."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.content import Content
from textual.style import Style

from tinyllm_chat.chat.conversation import Message, MessageState
from tinyllm_chat.tui.text import clean, count, duration
from tinyllm_chat.tui.widgets.lines import Piece
from tinyllm_chat.tui.widgets.rows import FAINT, MUTED

PAINT_INTERVAL = 0.095  # seconds between two paintings of what grows

_EMPTY = Piece(lambda width: [Content()])


class Thought:
    """The reasoning of a message. Folded, its last line is seen while it grows.

    `feed` text, then `paint` several times a second, then `finish`; `pieces` is what to show.
    """

    def __init__(self, message: Message, unfolded: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.pieces: list[Piece] = []
        self._message = message
        self._unfolded = unfolded
        self._clock = clock
        self._lines: list[Piece] = []  # of the text, but the last one
        self._last = ""
        self._glimpsed = ""  # the last line with something in it
        self._changed = False
        self._shown_growing = False
        self._next_paint = 0.0
        if message.reasoning:
            self.feed(message.reasoning)
            self.finish()

    def feed(self, text: str) -> None:
        *whole, self._last = (self._last + clean(text)).split("\n")
        self._lines += map(_line, whole)
        self._glimpsed = next((line for line in (self._last, *reversed(whole)) if line.strip()), self._glimpsed)
        self._changed = True

    def paint(self) -> bool:
        """Brings `pieces` up to date as far as the pace allows; False if they stay as they are."""
        changed = self._changed or self._shown_growing != self._growing
        if not changed or self._clock() < self._next_paint:
            return False
        self.finish()
        return True

    def finish(self) -> None:
        """Brings `pieces` up to date. More may come."""
        self._next_paint = self._clock() + PAINT_INTERVAL
        self._changed, self._shown_growing = False, self._growing
        if not self._message.reasoning:
            self.pieces = []
        elif self._unfolded:
            gap = [_EMPTY] if self._message.content else []
            self.pieces = [self._heading(), *self._lines, _line(self._last), *gap]
        else:
            self.pieces = [self._heading(), *([_glimpse(self._glimpsed)] if self._growing else [])]

    def turn(self, unfolded: bool | None = None) -> None:
        """Unfolds what is folded, or folds it."""
        self._unfolded = not self._unfolded if unfolded is None else unfolded
        self.finish()

    @property
    def _growing(self) -> bool:
        return self._message.state is MessageState.WRITING and not self._message.content

    def _heading(self) -> Piece:
        message = self._message
        tokens = count(message.thought_tokens, "token")
        said = f"thinking, {tokens}" if self._growing else f"thought for {tokens}, {duration(message.thought_seconds)}"
        style = Style.from_meta({"fold": message.id})
        line = Content.styled(("▾ " if self._unfolded else "▸ ") + said, MUTED).stylize(style)
        return Piece(lambda width: [line.truncate(width, ellipsis=True)])


def _line(text: str) -> Piece:
    body = Content.styled(text, MUTED)

    def layout(width: int) -> list[Content]:
        return [Content.assemble(("│ ", FAINT), line) for line in body.wrap(max(1, width - 2)) or [Content()]]

    return Piece(layout)


def _glimpse(text: str) -> Piece:
    """The end of a line that grows."""
    body = Content.styled(text, MUTED)

    def layout(width: int) -> list[Content]:
        return [Content.assemble("  ", line) for line in body.wrap(max(1, width - 2))[-1:] or [Content()]]

    return Piece(layout)
