"""Which part of a growing Markdown text is finished.

A finished block can be rendered once and for all; the rest is shown as plain text until its end is known. A wrong guess
does no harm: Markdown that is appended to is parsed again from the start of its last block.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*(?:[-*+]\s+|\d{1,9}[.)]\s+)?(`{3,}|~{3,})(.*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?:\s|$)")
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])\s+\S")


class BlockStream:
    """Splits streamed Markdown into finished text and an unfinished rest. All text comes out once, in order."""

    def __init__(self) -> None:
        self.rest = ""  # the unfinished part
        self.fence: str | None = None  # the marker of the code block that `rest` stands in
        self.joins_list = False  # `rest` starts with an item of the list that is finished so far
        self._in_list = False
        self._scanned = 0  # how much of `rest` is whole lines that were looked at

    def feed(self, text: str) -> str:
        """Takes more text and returns what is finished now."""
        self.rest += text
        finished = 0
        while (end := self.rest.find("\n", self._scanned)) >= 0:
            start, self._scanned = self._scanned, end + 1
            finished = max(finished, self._line(self.rest[start:end], start, end + 1))
        done, self.rest = self.rest[:finished], self.rest[finished:]
        self._scanned -= finished
        return done

    def flush(self) -> str:
        """The rest, finished because nothing more comes."""
        done, self.rest = self.rest, ""
        self._scanned, self.fence = 0, None
        self._leave_list()
        return done

    def _line(self, line: str, start: int, end: int) -> int:
        """Looks at one whole line of `rest`; returns up to where everything is finished because of it."""
        if self.fence is not None:
            if self._closes_fence(line):
                self.fence = None
            return end
        if (fence := _FENCE.match(line)) and "`" not in fence.group(2):
            self.fence = fence.group(1)
            return end
        if not line.strip() or _HEADING.match(line):
            self._leave_list()
            return end
        if _LIST_ITEM.match(line):
            # An item ends where the next begins, and only then: it may go on for lines.
            self.joins_list, self._in_list = self._in_list, True
            return start
        return 0

    def _leave_list(self) -> None:
        self.joins_list = self._in_list = False

    def _closes_fence(self, line: str) -> bool:
        assert self.fence is not None
        mark = line.strip()
        return len(mark) >= len(self.fence) and set(mark) == {self.fence[0]}
