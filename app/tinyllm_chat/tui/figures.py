"""The figures beside the chat: panels where there is room for them, else one line above the input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.timer import Timer

from tinyllm_chat.chat.events import CacheState
from tinyllm_chat.tui.widgets.bars import Rule, VerticalRule, status, status_room
from tinyllm_chat.tui.widgets.cache import CacheFigures, token_cost
from tinyllm_chat.tui.widgets.lines import CENTERED_FROM
from tinyllm_chat.tui.widgets.panels import Panels, Speed

if TYPE_CHECKING:
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.tui.app import TinyLLMChatApp

PANEL_COLUMNS = 100  # a terminal this wide has room for the panels
PANEL_WIDTH = 38  # with the line before them
FLASH_SECONDS = 0.7


class Figures:
    """One per app; runs on its thread."""

    def __init__(self, app: TinyLLMChatApp) -> None:
        self._app = app
        self._wanted = bool(app.session.settings.value("show_panels"))
        self._speed = Speed()
        self._width = 0  # columns of the screen
        self.flashing: frozenset[str] = frozenset()  # sampling values that were just changed
        self._flash_timer: Timer | None = None
        self.top_rule = Rule(id="top-rule")
        self.input_rule = Rule(id="input-rule")
        self.panel_rule = VerticalRule()
        self.panels = Panels(self._text_of)
        self.panels.show_profile(app.session.settings.value("show_profile"))
        self.panels.styles.width = PANEL_WIDTH - 1

    @property
    def _session(self) -> Session:
        return self._app.session

    # Where they stand

    def arrange(self, width: int) -> None:
        """Takes its share of a screen of `width` columns."""
        self._width = width
        shown = self._wanted and width >= PANEL_COLUMNS
        self.panels.display = self.panel_rule.display = shown
        self.top_rule.set_joint(width - PANEL_WIDTH if shown else None)
        chat_width = width - PANEL_WIDTH if shown else width
        self._app.set_class(chat_width >= CENTERED_FROM, "-centered")
        self.show(self._speed)

    def want(self, panels: bool) -> None:
        """Shows the panels where there is room, or hides them."""
        self._wanted = panels
        self.arrange(self._app.size.width)

    def toggle(self) -> None:
        self.want(not self._wanted)
        if self._wanted and not self.panels.display:
            width = self._app.size.width
            self._app.say(f"The panels need a terminal of {PANEL_COLUMNS} columns; this one has {width}", "warning")

    def turn_profile(self) -> None:
        """Measures where the time of answers goes and shows it, or neither."""
        on = not self._session.settings.value("show_profile")
        self._session.show_profile(on)
        if on and not self.panels.display:
            self._app.say(f"The profile is shown in the panels, which need {PANEL_COLUMNS} columns", "warning")
        self.panels.show_profile(on)
        self.show(self._speed)

    def turn_values(self) -> None:
        """Lets the arrow keys turn the values of the sampling panel."""
        if self.panels.display:
            self.panels.sampling.focus()
        else:
            self._app.say(f"/set NAME VALUE turns any value; the panel needs {PANEL_COLUMNS} columns", "warning")

    # What they say

    def show(self, speed: Speed | None = None, sample: float | None = None) -> None:
        """Brings them up to date. `speed` None: as before; `sample`: another point of its curve."""
        self._speed = speed = self._speed if speed is None else speed
        if self.panels.display:
            self.panels.cache.show(self._cache_figures())
            self.panels.speed.show(speed, sample)
            self.panels.profile.show(self._session.profile)
            self.panels.sampling.show(self._session.sampling, self.flashing, self._session.preset or "")
        self._show_status(self.input_rule.note)

    def follow_cache(self) -> None:
        """Brings the picture of the cache up to date, if it is seen."""
        if self.panels.display:
            self.panels.cache.follow(self._cache_figures())

    def _cache_figures(self) -> CacheFigures:
        model = self._session.model
        cache_type, token = (model.cache_type, token_cost(model)) if model is not None else ("", "")
        return CacheFigures(self._cache(), cache_type, token, self._session.conversation.cut, self._app.feed.reading)

    def show_note(self, note: str) -> None:
        """What the line above the input reminds of."""
        if note != self.input_rule.note:
            self._show_status(note)

    def begin_curve(self) -> None:
        """Another answer begins: its speed is drawn from here on."""
        self.panels.speed.begin()

    def flash(self, name: str) -> None:
        """Marks a value that was just changed."""
        self.flashing |= {name}
        if self._flash_timer is not None:
            self._flash_timer.stop()
        self._flash_timer = self._app.set_timer(FLASH_SECONDS, self._end_flash)
        self.show()

    def _end_flash(self) -> None:
        self.flashing = frozenset()
        self.show()

    def _cache(self) -> CacheState | None:
        """What is in the cache: nothing, as long as a model has not been asked anything."""
        model, cache = self._session.model, self._session.cache
        if cache is None and model is not None:
            return CacheState(0, model.context_length, 0, model.full_cache_bytes)
        return cache

    def _show_status(self, note: str) -> None:
        line = None
        if not self.panels.display:
            room = status_room(self._width, note)
            line = status(self._cache(), self._speed.decode, self._session.sampling, self.flashing, room)
        self.input_rule.show(line, note)

    def _text_of(self, message_id: str) -> str:
        conversation = self._session.conversation
        if message_id in conversation:
            return conversation[message_id].content
        system = conversation.system
        return system.content if system is not None and system.id == message_id else ""
