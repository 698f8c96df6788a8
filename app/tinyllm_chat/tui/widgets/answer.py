"""The body of an answer: finished blocks as Markdown above, the unfinished rest as plain text below."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from tinyllm_chat.tui.blocks import BlockStream
from tinyllm_chat.tui.text import clean

if TYPE_CHECKING:
    from tinyllm_chat.tui.widgets.markdown import AnswerMarkdown

TAIL_INTERVAL = 0.095  # seconds between two paintings of the unfinished text
WRITE_SHARE = 12  # rendering Markdown takes at most one part in this many of the time: the model needs the processor

_BULLET = re.compile(r"^([ \t]*)[-*+] (?=\S)", re.MULTILINE)


class Tail(Widget):
    """Plain text that changes often. Asks for a new layout only when it needs another number of lines."""

    def __init__(self) -> None:
        super().__init__()
        self._content = Content()
        self._lines = 0

    def render(self) -> Content:
        return self._content

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._lines = self._content.get_height({}, width) if width else 0
        return self._lines

    def show(self, text: str) -> None:
        self._content = Content(text)
        self.display = bool(text)
        width = self.content_size.width
        self.refresh(layout=not width or self._content.get_height({}, width) != self._lines)


class AnswerBody(Vertical):
    """Shows an answer that grows: `feed` text, `paint` on a timer, `finish` at its end."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._initial = text
        self._blocks = BlockStream()
        self._unwritten = ""  # finished text that is not Markdown yet
        self._markdown: AnswerMarkdown | None = None
        self._tail = Tail()
        self._writing = asyncio.Lock()
        self._next_write = 0.0
        self._next_paint = 0.0
        self._changed = False
        self._ended = False

    def compose(self) -> ComposeResult:
        yield self._tail

    async def on_mount(self) -> None:
        self._tail.display = False
        if self._initial:
            self.feed(self._initial)
            await self.finish()

    @property
    def empty(self) -> bool:
        return self._markdown is None and not self._unwritten and not self._blocks.rest

    def feed(self, text: str) -> None:
        self._ended = False
        self._unwritten += self._blocks.feed(clean(text))
        self._changed = True

    def paint(self) -> None:
        """Brings the screen up to date as far as the pace allows. Called several times a second."""
        now = time.monotonic()
        if self._ended or not self._changed or now < self._next_paint:
            return
        self._next_paint = now + TAIL_INTERVAL
        if self._unwritten and now >= self._next_write and not self._writing.locked():
            self.run_worker(self._write(), exit_on_error=True)
        elif not self._writing.locked():
            self._show_tail()

    async def finish(self) -> None:
        """Renders everything; nothing more comes."""
        self._ended = True
        self._unwritten += self._blocks.flush()
        await self._write()

    async def _write(self) -> None:
        async with self._writing:
            text, self._unwritten = self._unwritten, ""
            started = time.monotonic()
            with self.app.batch_update():
                if text.strip() or self._markdown is not None:
                    markdown = await self._mounted_markdown()
                    await markdown.append(text)
                else:
                    self._unwritten = text
                self._show_tail()
            now = time.monotonic()
            self._next_write = now + WRITE_SHARE * (now - started)

    async def _mounted_markdown(self) -> AnswerMarkdown:
        if self._markdown is None:
            # Markdown brings its parser and the highlighter along: imported when there is something to render.
            from tinyllm_chat.tui.widgets.markdown import AnswerMarkdown

            self._markdown = AnswerMarkdown()
            await self.mount(self._markdown, before=self._tail)
        return self._markdown

    def _show_tail(self) -> None:
        self._changed = False
        inside_code = self._blocks.fence is not None and not self._unwritten
        text = self._unwritten + self._blocks.rest
        self._tail.set_class(inside_code, "-code")
        self._tail.set_class(self._markdown is None or self._blocks.joins_list, "-joined")
        self._tail.show(text.strip("\n") if inside_code else _BULLET.sub(r"\1• ", text.strip()))
