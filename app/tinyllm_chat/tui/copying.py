"""Copying, and saying what became of it."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from tinyllm_chat.tui.clipboard import Clipboard, Copied
from tinyllm_chat.tui.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tinyllm_chat.tui.app import TinyLLMChatApp

CLIPBOARD = "clipboard"  # the group of workers that wait for a clipboard program


class Copying:
    """One per app; runs on its thread. `write` sends a sequence to the terminal."""

    def __init__(self, app: TinyLLMChatApp, write: Callable[[str], None]) -> None:
        self._app = app
        self._clipboard = Clipboard(write, os.environ)

    def copy(self, text: str, what: str) -> None:
        """Puts a text on the clipboard; `what` names it."""
        if self._clipboard.tools:
            self._app.run_worker(partial(self._copy_with_tool, text, what), group=CLIPBOARD, thread=True)
        else:
            self._say(self._clipboard.send(text), text, what)

    def _copy_with_tool(self, text: str, what: str) -> None:
        """On a worker thread: programs may be slow."""
        copied = self._clipboard.copy(text)
        if self._app.is_running:
            self._app.call_from_thread(self._say, copied, text, what)

    def _say(self, copied: Copied, text: str, what: str) -> None:
        size = f"{what}, {len(text):,} {'character' if len(text) == 1 else 'characters'}"
        self._app.say(f"{clean_line(size)}: {copied.how}", "information" if copied.done else "warning")
