"""A mistake of the program's own, in whatever handler: one line on the screen, a traceback in the log, and on it goes.

Textual ends the program at the first exception that leaves a handler, and stops the widget whose handler it was. A chat
that is worth keeping is not worth ending for that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from textual.message import Message
from textual.message_pump import MessagePump
from textual.worker import WorkerFailed

from tinyllm_chat.chat.mishaps import describe

QUIET_SECONDS = 5.0  # in which the same mishap is told once
TOO_MANY = 100  # mishaps in a second: nothing else goes on any more

log = logging.getLogger(__name__)
_dispatch = MessagePump._dispatch_message


async def _dispatch_whatever_happens(self: MessagePump, message: Message) -> None:
    """As Textual's, but the loop around it goes on after an exception, which is the app's to deal with."""
    try:
        await _dispatch(self, message)
    except Exception as error:
        self.app._handle_exception(error)


MessagePump._dispatch_message = _dispatch_whatever_happens  # type: ignore[method-assign]


class Mishaps:
    """Those of one app. `tell` shows a line; `clock` returns seconds."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._told: dict[str, float] = {}  # when, by what happened
        self._times: list[float] = []

    def survive(self, error: Exception) -> bool:
        """Tells of a mishap and logs it; False where there are so many that there is no going on."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error
        now = self._clock()
        self._times = [then for then in self._times if now - then < 1.0]
        self._times.append(now)
        if len(self._times) > TOO_MANY:
            log.critical("%d mishaps in a second", TOO_MANY, exc_info=error)
            return False
        known = f"{type(error).__name__}: {error}"
        if now - self._told.get(known, -QUIET_SECONDS) >= QUIET_SECONDS:
            self._told = {name: then for name, then in self._told.items() if now - then < QUIET_SECONDS}
            self._told[known] = now
            try:
                self._tell(describe(error))
            except Exception:
                log.exception("a mishap could not be shown")
        return True
