"""What the terminal sends, as keys, without waiting: Esc above all, with which an answer is stopped.

A lone Esc may be the beginning of the sequence of another key. Textual's drivers look ten times a second whether the
time for the rest of it is over; here the rest is waited for just as long as ESCDELAY says.

A terminal may also send what is no UTF-8: the letters of another encoding, or a file that somebody pastes. Textual's
readers end at the first such byte, and the program with them. Here U+FFFD stands for it.
"""

from __future__ import annotations

import codecs
import select
import sys
from collections.abc import Callable, Iterable
from functools import partial

from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.driver import Driver
from textual.message import Message

from tinyllm_chat.tui.pasting import PasteParser

LATE = 0.001  # seconds that a clock may be behind another one


def more_comes(seconds: float) -> bool:
    """Whether the terminal has more to read, or has so many seconds from now."""
    if sys.__stdin__ is None:
        return True
    try:
        return bool(select.select([sys.__stdin__], [], [], seconds)[0])
    except (OSError, ValueError):  # nothing that can be waited for: that is the driver's to find out
        return True


class InputParser(PasteParser):
    """Takes pastes whole, and Esc for a key once nothing has come behind it."""

    def __init__(self, debug: bool = False, more_comes: Callable[[float], bool] = more_comes) -> None:
        self._more_comes = more_comes
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        yield from super().feed(data)
        if self._timeout_time is not None and not self.is_eof:
            left = self._timeout_time - get_time() + LATE
            if left <= 0 or not self._more_comes(left):
                yield from self.tick()


def forgiving_decoder(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    """As codecs.getincrementaldecoder, but one that goes on behind what it cannot decode."""
    return partial(codecs.getincrementaldecoder(encoding), errors="replace")


def use_input_parser(driver: type[Driver]) -> None:
    """Has a driver read the terminal with these, if it uses those that they are made from."""
    module = sys.modules[driver.__module__]
    if getattr(module, "getincrementaldecoder", None) is codecs.getincrementaldecoder:
        module.getincrementaldecoder = forgiving_decoder  # type: ignore[attr-defined]
    if getattr(module, "XTermParser", None) is XTermParser:
        module.XTermParser = InputParser  # type: ignore[attr-defined]
