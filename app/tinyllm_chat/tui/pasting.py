"""Pasted text on its way from the terminal.

Textual's parser looks at what comes character by character, some microseconds for each. A pasted book would take it ten
seconds, in which a model that writes beside it gets half of the interpreter. Between the marks that a terminal puts
around a paste there is nothing to look at: what stands there is taken as it comes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.message import Message


class PasteParser(XTermParser):
    """Hands on everything but what is pasted."""

    def __init__(self, debug: bool = False) -> None:
        self._pasted: list[str] | None = None  # what has come of a paste so far
        self._before = ""  # the end of what came last: a mark may come in two pieces
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        if not data:  # the end
            yield from super().feed(data)
        while data:
            data = yield from self._plain(data) if self._pasted is None else self._paste(data)

    def _plain(self, data: str) -> Generator[Message, None, str]:
        """Hands on what comes up to the beginning of a paste; returns the rest."""
        seen = self._before + data
        start = seen.find(BRACKETED_PASTE_START)
        until = len(data) if start < 0 else start + len(BRACKETED_PASTE_START) - len(self._before)
        self._before = seen[-len(BRACKETED_PASTE_START) + 1 :] if start < 0 else ""
        yield from super().feed(data[:until])
        if start >= 0:
            self._pasted = []
        return data[until:]

    def _paste(self, data: str) -> Generator[Message, None, str]:
        """Takes what comes up to the end of a paste; returns the rest."""
        assert self._pasted is not None
        seen = self._before + data
        end = seen.find(BRACKETED_PASTE_END)
        if end < 0:
            kept = len(BRACKETED_PASTE_END) - 1
            self._pasted.append(seen[:-kept])
            self._before = seen[-kept:]
            return ""
        text = "".join([*self._pasted, seen[:end]])
        self._pasted, self._before = None, ""
        for event in super().feed(BRACKETED_PASTE_END):  # which ends a paste of nothing
            yield events.Paste(text.replace("\0", "")) if isinstance(event, events.Paste) else event
        return seen[end + len(BRACKETED_PASTE_END) :]
