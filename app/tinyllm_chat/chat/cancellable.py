"""What an order to the engine has in common with the others that another thread may cancel."""

from __future__ import annotations

import threading
from typing import Any

from tinyllm_chat.chat.engine_api import EngineApi


class Cancellable:
    """One thread runs it, another may cancel it: before it begins as well as while the engine is at it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._cancel: Any = None  # the engine's, while it runs

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._cancel is not None:
                self._cancel.set()

    def _begin(self, engine: EngineApi) -> bool:
        """Takes a cancel flag of the engine; False, and there is none, if it has been cancelled already."""
        with self._lock:
            if not self._cancelled:
                self._cancel = engine.Cancel()
            return not self._cancelled
