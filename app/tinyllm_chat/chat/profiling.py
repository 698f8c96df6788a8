"""Where the time of an answer goes, told while somebody wants to see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyllm_chat.chat.events import Event, OpProfile

INTERVAL = 1.0  # seconds between two reports


class Profiling:
    """Whether the clocks shall run. One thread sets `on`, the worker looks at it."""

    def __init__(self) -> None:
        self.on = False


class Clocks:
    """The clocks of one answer, turned on and off in the middle of it. All of it on the worker thread."""

    def __init__(self, wanted: Profiling, runner: Any, message_id: str, emit: Callable[[Event], None]) -> None:
        self._wanted = wanted
        self._runner = runner
        self._message_id = message_id
        self._emit = emit
        self._running = False
        self._began = self._told = 0.0  # seconds of perf_counter
        self._tokens = 0  # since then

    def token(self, now: float) -> None:
        """One more token has been written."""
        if self._wanted.on != self._running:
            self._turn(now)
        elif self._running:
            self._tokens += 1
            if now - self._told >= INTERVAL:
                self._tell(now)

    def end(self, now: float) -> None:
        """The answer has ended."""
        if self._running:
            if self._tokens:
                self._tell(now)
            self._turn(now)

    def _turn(self, now: float) -> None:
        self._running = not self._running
        self._runner.profile(self._running)
        self._began = self._told = now
        self._tokens = 0

    def _tell(self, now: float) -> None:
        self._told = now
        found = self._runner.written_profile(self._tokens, now - self._began)
        shares = tuple((cost.name, cost.percent / 100) for cost in found.costs)
        self._emit(OpProfile(self._message_id, self._tokens, now - self._began, shares))
