"""An answer that grows: finished blocks as Markdown, the unfinished rest as plain text below."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from textual.content import Content

from tinyllm_chat.tui.blocks import BlockStream
from tinyllm_chat.tui.text import clean
from tinyllm_chat.tui.widgets.lines import Piece

if TYPE_CHECKING:
    from tinyllm_chat.tui.widgets.markdown import MarkdownText

TAIL_INTERVAL = 0.095  # seconds between two paintings of the unfinished text
WRITE_SHARE = 12  # rendering Markdown takes at most one part in this many of the time: the model needs the processor

_BULLET = re.compile(r"^([ \t]*)[-*+] (?=\S)", re.MULTILINE)


def load_markdown() -> ModuleType:
    """The renderer. Its parser and highlighter take a while to import: the first screen is painted without them."""
    from tinyllm_chat.tui.widgets import markdown

    return markdown


class Answer:
    """`feed` text, then `paint` several times a second, then `finish`; `pieces` is what to show."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pieces: list[Piece] = []
        self._clock = clock
        self._blocks = BlockStream()
        self._unwritten = ""  # finished text that is not Markdown yet
        self._markdown: MarkdownText | None = None
        self._after_item = False  # the Markdown so far ends in a list that the rest goes on with
        self._inside_code = False  # the Markdown so far ends inside a code block
        self._next_write = 0.0
        self._next_paint = 0.0
        self._changed = False

    def feed(self, text: str) -> None:
        self._unwritten += self._blocks.feed(clean(text))
        self._changed = True

    def paint(self) -> bool:
        """Brings `pieces` up to date as far as the pace allows; False if they stay as they are."""
        now = self._clock()
        if not self._changed or now < self._next_paint:
            return False
        self._next_paint = now + TAIL_INTERVAL
        if self._unwritten and now >= self._next_write:
            load_markdown()
            started = self._clock()
            self._write()
            done = self._clock()
            self._next_write = done + WRITE_SHARE * (done - started)
        self._changed = False
        self._show()
        return True

    def finish(self) -> None:
        """Renders everything. More may come if the answer is continued."""
        self._unwritten += self._blocks.flush()
        self._write()
        self._changed = False
        self._show()

    def _write(self) -> None:
        if self._markdown is None:
            if not self._unwritten.strip():
                return
            self._markdown = load_markdown().MarkdownText()
        text, self._unwritten = self._unwritten, ""
        self._markdown.append(text)
        self._after_item = self._blocks.joins_list
        self._inside_code = self._blocks.fence is not None

    def _show(self) -> None:
        finished = self._markdown.pieces if self._markdown is not None else []
        self.pieces = [*finished, *self._tail(bool(finished))]

    def _tail(self, follows: bool) -> list[Piece]:
        rest = self._unwritten + self._blocks.rest
        if self._inside_code and self._blocks.fence is not None:
            rest = rest.rstrip("\n")  # an empty line at the start is one of the code
            if not rest:
                return []
            return [Piece(lambda width: load_markdown().code(rest, "", width))]
        rest = _BULLET.sub(r"\1• ", rest.strip())
        if not rest:
            return []
        gap = 1 if follows and not self._after_item else 0
        return [Piece(Content(rest).wrap, gap)]
