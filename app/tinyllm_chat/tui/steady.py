"""An app that goes on: through mistakes of its own, and in good order to its end when it is asked to go."""

from __future__ import annotations

import os
import signal
import sys
from functools import lru_cache, partial
from typing import Any

from textual._styles_cache import StylesCache
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.events import Click
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import OptionList

from tinyllm_chat.tui.mishaps import Mishaps

# Textual would remember the codes of 16,384 styles. What can be clicked has one of its own in every message, so that a
# long chat gets there, with all that such a style refers to.
STYLES = 1024
Strip.render_ansi = classmethod(lru_cache(STYLES)(Strip.__dict__["render_ansi"].__func__.__wrapped__))  # type: ignore

_dismiss = Screen.dismiss


def _dismiss_once(self: Screen[Any], result: Any = None) -> AwaitComplete:
    """As Textual's, but of the screen that is on top: a second Enter or click, which was on its way when the screen
    closed, would close the one below it, or fail.
    """
    return _dismiss(self, result) if self.app.screen_stack[-1:] == [self] else AwaitComplete()


Screen.dismiss = _dismiss_once  # type: ignore[method-assign]

_click = OptionList._on_click


async def _click_what_is_there(self: OptionList, event: Click) -> None:
    """As Textual's, but of a list that has as many entries as when it was drawn; it may have become shorter since."""
    if event.style.meta.get("option", -1) < self.option_count:
        await _click(self, event)


OptionList._on_click = _click_what_is_there  # type: ignore[method-assign]

HUNG_UP = 128 + int(getattr(signal, "SIGHUP", 1))  # exit code


def is_open(screen: Screen[Any]) -> bool:
    """Whether a screen is there: what its workers find may come when it has been closed, and is half taken apart."""
    return screen.is_attached and screen in screen.app.screen_stack


class SteadyApp(App[None], inherit_bindings=False):
    """`stand` says that the screen does: mishaps are shown from then on. Before, they end the program."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_to_leave = False  # by a signal, or because the terminal is gone
        self._mishaps: Mishaps | None = None
        self._has_terminal = _is_terminal()

    def stand(self) -> None:
        self._mishaps = Mishaps(lambda text: self.notify(text, severity="error", markup=False))

    def mishap(self, error: Exception) -> None:
        """Tells of a mistake of the program's own."""
        self._handle_exception(error)

    def leave(self, code: int) -> None:
        """Ends the program; may be called from a signal's handler."""
        self.asked_to_leave = True
        if self._loop is None:
            raise SystemExit(code)
        self._loop.call_soon_threadsafe(partial(self.exit, return_code=code))

    def look_for_terminal(self) -> None:
        """Leaves if it was closed. Not everywhere is there a signal then, and not every one arrives."""
        if self._has_terminal and not self.asked_to_leave and not _is_terminal():
            self.leave(HUNG_UP)

    def pop_screen(self) -> AwaitComplete:
        # What a thousand widgets looked like, those of closed screens too, would be remembered otherwise.
        StylesCache.get_inner_outer.cache_clear()
        return super().pop_screen()

    def panic(self, *renderables: Any) -> None:
        """What Textual calls when it cannot read the terminal, among other things."""
        self.look_for_terminal()
        if not self.asked_to_leave:
            super().panic(*renderables)

    def _handle_exception(self, error: Exception) -> None:
        """What Textual calls for an exception that nobody caught."""
        if self.asked_to_leave or self._mishaps is None or not self._mishaps.survive(error):
            super()._handle_exception(error)
            return
        if self.is_headless and self._exception is None:  # tests are told at their end
            self._exception = error
        for screen in self.screen_stack[1:][-1:]:
            self.call_later(self._close_failed, screen)

    def _close_failed(self, screen: Screen[Any]) -> None:
        """What covers the chat may be half made, and deaf to its own keys."""
        if screen in self.screen_stack[1:][-1:]:
            self.pop_screen()


def _is_terminal() -> bool:
    try:
        return os.isatty(sys.__stdin__.fileno()) if sys.__stdin__ is not None else False
    except (OSError, ValueError):
        return False
