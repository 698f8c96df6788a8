"""Being asked to end: by `kill`, by a system that shuts down, by a terminal that is closed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

REQUESTS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def ending_with(leave: Callable[[int], None]) -> Iterator[None]:
    """Has a request to end call `leave` with the exit code, on the main thread. The next one ends the program at once.

    A signal that whoever started the program wants ignored, as `nohup` does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        leave(128 + number)

    before: dict[signal.Signals, Any] = {}
    for request in REQUESTS:
        handler = signal.getsignal(request)
        if handler is not signal.SIG_IGN:
            before[request] = handler
            signal.signal(request, end)
    try:
        yield
    finally:
        for request, handler in before.items():
            if signal.getsignal(request) is end:
                signal.signal(request, handler)


def exit_at_once(code: int) -> None:
    """For programs whose way out is an exception."""
    raise SystemExit(code)
