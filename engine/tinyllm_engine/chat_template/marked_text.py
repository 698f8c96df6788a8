"""Text that knows where each of its characters came from.

Beside the text runs a second string of the same length, the marks. What is done to the text is done to the marks, so
that slicing, splitting and joining cost no more thought than for plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, SupportsIndex

import numpy as np

TEMPLATE = "\0"  # written by the template's author
OUTSIDE = "\1"  # came in from elsewhere, but not with a message
_FIRST_MESSAGE = 2


def message_mark(index: int) -> str:
    """The mark of what came in with the message of this index."""
    return chr(_FIRST_MESSAGE + index)


def message_index(mark: str) -> int | None:
    return ord(mark) - _FIRST_MESSAGE if ord(mark) >= _FIRST_MESSAGE else None


class MarkedText(str):
    """A str with `marks`, one character for each of its own.

    It stays one through +, *, indexing, iteration and the methods of str that return text. Where a method does not
    tell which character came from where, the whole result counts as from outside if anything in it does.
    """

    marks: str

    def __new__(cls, text: str = "", marks: str | None = None) -> MarkedText:
        """`text` may be marked already; `marks`: TEMPLATE throughout by default."""
        self = super().__new__(cls, plain(text))
        self.marks = marks_of(text) if marks is None else marks
        return self

    def __str__(self) -> str:  # str() would lose the marks otherwise
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> MarkedText:
        return MarkedText(super().__getitem__(key), self.marks[key])

    def __iter__(self) -> Iterator[MarkedText]:
        return map(MarkedText, super().__iter__(), self.marks)

    def __add__(self, other: str) -> MarkedText:
        return MarkedText(super().__add__(other), self.marks + marks_of(other))

    def __radd__(self, other: str) -> MarkedText:
        return MarkedText(other + plain(self), marks_of(other) + self.marks)

    def __mul__(self, count: SupportsIndex) -> MarkedText:
        return MarkedText(super().__mul__(count), self.marks * count)

    __rmul__ = __mul__

    def join(self, parts: Iterable[str]) -> MarkedText:
        parts = list(parts)
        return MarkedText(super().join(parts), self.marks.join(map(marks_of, parts)))

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> MarkedText:
        if old:
            return MarkedText(new).join(self.split(old, count))
        pieces = ["", *self, ""]  # an empty text is found before each character and at the end
        if 0 <= (limit := int(count)) < len(pieces) - 1:
            pieces[limit:] = [MarkedText().join(pieces[limit:])]
        return MarkedText(new).join(pieces)

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[MarkedText]:  # type: ignore[override]
        return self._pieces(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[MarkedText]:  # type: ignore[override]
        return self._pieces(super().rsplit(sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[MarkedText]:  # type: ignore[override]
        return self._pieces(super().splitlines(keepends), None)

    def partition(self, sep: str) -> tuple[MarkedText, MarkedText, MarkedText]:
        return tuple(self._pieces(super().partition(sep), ""))  # type: ignore[return-value]

    def rpartition(self, sep: str) -> tuple[MarkedText, MarkedText, MarkedText]:
        return tuple(self._pieces(super().rpartition(sep), ""))  # type: ignore[return-value]

    def _pieces(self, pieces: Iterable[str], sep: str | None) -> list[MarkedText]:
        """Pieces of this text, in order, with their marks.

        sep: stands between any two of them; None: white space does, or line ends, of which no piece contains any there
        """
        marked = []
        start = 0
        for piece in pieces:
            if sep is None:
                start = self.find(piece, start)
            stop = start + len(piece)
            marked.append(self[start:stop])
            start = stop + len(sep or "")
        return marked

    def strip(self, chars: str | None = None) -> MarkedText:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None) -> MarkedText:
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None) -> MarkedText:
        return self[: len(super().rstrip(chars))]

    def removeprefix(self, prefix: str) -> MarkedText:
        return self[len(self) - len(super().removeprefix(prefix)) :]

    def removesuffix(self, suffix: str) -> MarkedText:
        return self[: len(super().removesuffix(suffix))]

    def upper(self) -> MarkedText:
        return self._recased(str.upper)

    def lower(self) -> MarkedText:
        return self._recased(str.lower)

    def capitalize(self) -> MarkedText:
        return self._recased(str.capitalize)

    def title(self) -> MarkedText:
        return self._recased(str.title)

    def swapcase(self) -> MarkedText:
        return self._recased(str.swapcase)

    def casefold(self) -> MarkedText:
        return self._recased(str.casefold)

    def _recased(self, change: Callable[[str], str]) -> MarkedText:
        text = change(plain(self))
        if len(text) == len(self):
            return MarkedText(text, self.marks)
        # "ß" has two capitals; in a title only where a word begins, which is not followed here.
        lengths = [len(change(char)) for char in plain(self)]
        if sum(lengths) != len(text):
            return wholly_marked(text, self)
        return MarkedText(text, "".join(mark * length for mark, length in zip(self.marks, lengths, strict=True)))

    def __mod__(self, values: Any) -> MarkedText:
        return wholly_marked(plain(self) % values, self, values)

    def __rmod__(self, template: str) -> MarkedText:
        return wholly_marked(template % plain(self), template, self)

    def __format__(self, spec: str) -> MarkedText:
        return wholly_marked(super().__format__(spec), self)

    def format(self, *values: Any, **named: Any) -> MarkedText:
        return wholly_marked(super().format(*values, **named), self, values, named)

    def center(self, width: SupportsIndex, fill: str = " ") -> MarkedText:
        return wholly_marked(super().center(width, fill), self, fill)

    def ljust(self, width: SupportsIndex, fill: str = " ") -> MarkedText:
        return wholly_marked(super().ljust(width, fill), self, fill)

    def rjust(self, width: SupportsIndex, fill: str = " ") -> MarkedText:
        return wholly_marked(super().rjust(width, fill), self, fill)

    def zfill(self, width: SupportsIndex) -> MarkedText:
        return wholly_marked(super().zfill(width), self)

    def expandtabs(self, tabsize: SupportsIndex = 8) -> MarkedText:
        return wholly_marked(super().expandtabs(tabsize), self)


def plain(text: str) -> str:
    """The same text as nothing but a str."""
    return str.__str__(text)


def marks_of(text: str) -> str:
    """Plain text is the template's own."""
    return text.marks if isinstance(text, MarkedText) else TEMPLATE * len(text)


def runs(marks: str) -> list[tuple[int, int]]:
    """Where the same mark goes on, from and up to, in order."""
    if not marks:
        return []
    codes = np.frombuffer(marks.encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(marks)]
    return list(pairwise(ends))


def wholly_marked(text: str, *sources: Any) -> MarkedText:
    """A text made from these values in ways unknown: all of it from outside if any of them is."""
    return MarkedText(plain(text), strongest_mark(sources) * len(text))


def strongest_mark(value: Any) -> str:
    """TEMPLATE if nothing in the value is from outside; the message's mark if all that is came with one message."""
    marks = set(_marks_in(value)) - {TEMPLATE}
    return marks.pop() if len(marks) == 1 else OUTSIDE if marks else TEMPLATE


def _marks_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from set(marks_of(value))
    elif isinstance(value, Mapping):
        for item in value.items():
            yield from _marks_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _marks_in(item)
    elif not (value is None or isinstance(value, (bool, int, float))):
        yield OUTSIDE  # an object of who knows what
