"""What a template may cost. It comes with the file, from whoever made that."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from jinja2 import Undefined
from jinja2.utils import Namespace

MAX_SOURCE = 1 << 20  # characters of a template
_MAX_STEPS = 1_000_000  # loop passes, calls, operators, filters
_MAX_SECONDS = 5.0
_MAX_TEXT = 1 << 23  # characters of one text
_MAX_TEXTS = 1 << 28  # characters of all texts that are made
_MAX_ITEMS = 100_000  # of a list
_MAX_BITS = 4096  # of an integer
_MAX_WIDTH = 10_000  # to pad or indent to

_LONG_NUMBER = re.compile(r"\d{5}")
_WIDTH_FROM_VALUE = re.compile(r"\*|\{[^{}]*\{")  # in "%*d" and "{:{}}"


class LimitError(Exception):
    """The template wants more than it may have."""


class _Uncollected:
    """`with uncollected:` no thread collects garbage. A template leads to the end of the stack if it likes, and what is
    finalized there fails for want of a frame, and is never finalized again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._collecting = False  # when the first came in

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._collecting = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._collecting:
                gc.enable()


uncollected = _Uncollected()


class Limits:
    """Counts what one rendering uses. What could become large is announced before it is made."""

    def __init__(self) -> None:
        self._steps = _MAX_STEPS
        self._characters = _MAX_TEXTS
        self._deadline = time.monotonic() + _MAX_SECONDS

    def step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise LimitError(f"it takes more than {_MAX_STEPS} steps")
        if time.monotonic() > self._deadline:
            raise LimitError(f"it takes longer than {_MAX_SECONDS:.0f} seconds")

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """The same values, a step each."""
        for value in values:
            self.step()
            yield value

    def text(self, length: int) -> None:
        self._characters -= length
        if length > _MAX_TEXT or self._characters < 0:
            raise LimitError(f"it makes texts of more than {_MAX_TEXT} characters")

    def pieces(self, parts: Iterable[str]) -> Iterator[str]:
        """The same parts of one text, while it stays short enough."""
        total = 0
        for part in parts:
            total += len(part)
            self._characters -= len(part)
            if total > _MAX_TEXT or self._characters < 0:
                self.text(total)
            yield part

    def items(self, count: int) -> None:
        if count > _MAX_ITEMS:
            raise LimitError(f"it makes lists of more than {_MAX_ITEMS} items")

    def bits(self, count: int) -> None:
        if count > _MAX_BITS:
            raise LimitError(f"it makes numbers of more than {_MAX_BITS} bits")

    def width(self, values: Iterable[Any]) -> None:
        """The numbers among these are widths, indents, precisions or counts."""
        if any(isinstance(value, int) and abs(value) > _MAX_WIDTH for value in values):
            raise LimitError(f"it pads to more than {_MAX_WIDTH} characters")

    def contained(self, value: Any) -> None:
        """A step for all that is in a container, and in what is in it."""
        if isinstance(value, Collection) and not isinstance(value, str):
            for item in self.counted(value.items() if isinstance(value, Mapping) else value):
                self.contained(item)

    def printed(self, value: Any) -> None:
        """Something that is not text is printed as Python would show it."""
        self.text(self._length(value, 0))

    def _length(self, value: Any, so_far: int) -> int:
        """About the length of a value in print, added to `so_far`; stops as soon as that is too much."""
        so_far += len(value) if isinstance(value, str) else 2
        if so_far > _MAX_TEXT:
            self.text(so_far)
        if isinstance(value, Namespace):
            raise LimitError("it prints a namespace")
        if callable(value) and not isinstance(value, Undefined):
            raise LimitError("it prints a function")
        if isinstance(value, Collection) and not isinstance(value, str):
            for item in self.counted(value.items() if isinstance(value, Mapping) else value):
                so_far = self._length(item, so_far)
        return so_far

    def filled(self, template: str, placeholder: str, values: list[Any]) -> None:
        """`template` is filled in with `values`, of which each placeholder could stand for all, padded."""
        if _WIDTH_FROM_VALUE.search(template):
            self.width(values)
        if _LONG_NUMBER.search(template):
            raise LimitError(f"it pads to more than {_MAX_WIDTH} characters")
        self.text(len(template) + template.count(placeholder) * (self._length(values, 0) + _MAX_WIDTH))
