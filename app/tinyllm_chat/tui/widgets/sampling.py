"""The sampling values with their origins; each can be turned, by the mouse or with the keyboard in the panel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.style import Style

from tinyllm_chat.chat.sampled import SamplingValue
from tinyllm_chat.chat.settings import RARE_SAMPLING, SCHEMA
from tinyllm_chat.tui.text import label, sampling_value
from tinyllm_chat.tui.widgets.panel import Panel, labelled
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, FLASH, MUTED

_LABELS = {
    "repeat_penalty": "repeat",
    "repeat_last_n": "repeat window",
    "presence_penalty": "presence",
    "frequency_penalty": "frequency",
}
_ORIGINS = {"command line": "command", "environment": "environ."}
# Values at which a setting does nothing: shown, but faint.
_OFF = {
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


class SamplingPanel(Panel, can_focus=True):
    """With the focus, or under the mouse, a row is selected and can be turned."""

    TITLE = "Sampling"
    FOCUS_ON_CLICK = False  # one types on
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "select(-1)", "Value above", show=False),
        Binding("down", "select(1)", "Value below", show=False),
        Binding("left", "turn(-1)", "Less", show=False),
        Binding("right", "turn(1)", "More", show=False),
        Binding("delete,backspace", "reset", "As it was", show=False),
        Binding("escape,enter,alt+v", "leave", "Back to the message", show=False),
    ]

    class Turned(Message):
        """A value is to be moved by so many steps; 0: back to what it was before it was turned."""

        def __init__(self, name: str, steps: int) -> None:
            super().__init__()
            self.name = name
            self.steps = steps

    class Left(Message):
        """The focus is wanted elsewhere, perhaps to type `text`."""

        def __init__(self, text: str = "") -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__()
        self._preset = ""
        self._selected: str | None = None
        self._values: dict[str, SamplingValue] = {}
        self._flashing: frozenset[str] = frozenset()
        self._short = False

    def show(
        self, values: Mapping[str, SamplingValue], flashing: frozenset[str] = frozenset(), preset: str = ""
    ) -> None:
        """`flashing`: names of values that changed a moment ago."""
        if (values, flashing, preset) == (self._values, self._flashing, self._preset):
            return
        self._values, self._flashing, self._preset = dict(values), flashing, preset
        self.renew()

    def limit_rows(self, count: int) -> None:
        short = count < len(self._values) - len(RARE_SAMPLING)
        if short != self._short:
            self._short = short
            self.renew()

    def heading(self) -> Content:
        preset = Content.styled(f"   preset: {self._preset}" if self._preset else "", MUTED)
        return Content.assemble(super().heading(), preset)

    # Turning

    def on_focus(self) -> None:
        if self._selected not in self._turnable():
            self._select("temperature")
        self.renew()

    def on_blur(self) -> None:
        self._select(None)

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character:
            event.stop()
            self.post_message(self.Left(event.character))

    def on_click(self, event: events.Click) -> None:
        meta = event.style.meta
        if isinstance(name := meta.get("sampling"), str) and name in self._turnable():
            event.stop()
            self._select(name)
            if isinstance(steps := meta.get("steps"), int):
                self.post_message(self.Turned(name, steps))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, -1)

    def on_leave(self) -> None:
        if not self.has_focus:
            self._select(None)

    def _wheel(self, event: events.MouseEvent, steps: int) -> None:
        name = event.style.meta.get("sampling")
        if isinstance(name, str) and name in self._turnable():
            event.stop()
            self._select(name)
            self.post_message(self.Turned(name, steps))

    def action_select(self, step: int) -> None:
        names = self._turnable()
        at = names.index(self._selected) if self._selected in names else -1
        self._select(names[(at + step) % len(names)])

    def action_turn(self, steps: int) -> None:
        if self._selected is not None:
            self.post_message(self.Turned(self._selected, steps))

    def action_reset(self) -> None:
        self.action_turn(0)

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def _select(self, name: str | None) -> None:
        if name != self._selected:
            self._selected = name
            self.renew()

    def _turnable(self) -> list[str]:
        return [name for name in self._names() if SCHEMA[name].step is not None]

    # Drawing

    def rows(self, width: int) -> list[Content]:
        return [self._row(name, width) for name in self._names()]

    def _names(self) -> list[str]:
        return [name for name in self._values if not self._is_hidden(name)]

    def _is_hidden(self, name: str) -> bool:
        rare = name in RARE_SAMPLING and name not in self._flashing
        return (rare and self._values[name].value == RARE_SAMPLING[name]) or (self._short and self._is_off(name))

    def _is_off(self, name: str) -> bool:
        return name in _OFF and self._values[name].value == _OFF[name] and name not in self._flashing

    def _row(self, name: str, width: int) -> Content:
        value = self._values[name]
        style = FLASH if name in self._flashing else FAINT if self._is_off(name) else ""
        number = sampling_value(value.value)
        if name == "seed" and value.value == -1:
            number = "–"
        origin = _ORIGINS.get(value.origin, value.origin)
        faint = FAINT if self._is_off(name) else MUTED
        left = labelled(_LABELS.get(name, label(name)), number, style, faint)
        own = Style.from_meta({"sampling": name})
        if name != self._selected:
            line = Content.assemble(left, "  ", (origin, faint))
        else:
            less, more = (
                Content.styled(arrow, ACCENT).stylize(Style.from_meta({"sampling": name, "steps": steps}))
                for arrow, steps in ((" ◂", -1), (" ▸", 1))
            )
            line = Content.assemble(left.stylize("bold"), less, more, " ", (origin, faint))
        return line.stylize_before(own).truncate(width, ellipsis=True)
