"""The input: grows with its text, sends on Enter, remembers what was sent."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import TextArea

from tinyllm_chat.tui.text import clean, count
from tinyllm_chat.tui.widgets.ground import Row
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED

COUNT_DELAY = 0.12  # seconds of peace after a key before the draft's tokens are counted
COUNT_WIDTH = 14
_NEWLINE_KEYS = {"ctrl+j", "shift+enter", "alt+enter", "ctrl+enter", "shift+\r"}
# Keys of the text area that the chat needs for itself, or that do something unexpected in a chat.
_RELEASED = {"shift+up", "shift+down", "pageup", "pagedown", "f6", "f7", "ctrl+c", "super+c", "ctrl+d", "ctrl+y"}


def _editing_bindings() -> list[BindingType]:
    """The text area's own bindings without the released keys."""
    kept: list[BindingType] = []
    for binding in Binding.make_bindings(TextArea.BINDINGS):
        if binding.key not in _RELEASED:
            kept.append(binding)
    return kept


class Prompt(TextArea, inherit_bindings=False):
    """A text area in which Enter sends."""

    BINDINGS: ClassVar[list[BindingType]] = _editing_bindings()

    class Submitted(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Completed(Message):
        """Tab was pressed."""

    def __init__(self) -> None:
        super().__init__(
            compact=True, highlight_cursor_line=False, show_line_numbers=False, placeholder=Content("Message")
        )
        self.cursor_blink = False
        self._sent: list[str] = []
        self._recalled: int | None = None  # which of `_sent` is shown; None: the draft
        self._draft = ""

    async def _on_key(self, event: events.Key) -> None:
        key = event.key
        if key == "enter":
            self.post_message(self.Submitted(self.text))
        elif key in _NEWLINE_KEYS:
            self.insert("\n")
        elif key == "tab":
            self.post_message(self.Completed())
        elif not self._recalls(key):
            return
        event.stop()
        event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert(clean(event.text.replace("\r\n", "\n").replace("\r", "\n")))

    def remember(self, text: str) -> None:
        """Adds a text to what Up brings back."""
        if not self._sent or self._sent[-1] != text:
            self._sent.append(text)
        self._recalled = None

    def set_text(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def take(self) -> None:
        """Empties the input, because its text went somewhere."""
        self._recalled, self._draft = None, ""
        self.text = ""

    def _recalls(self, key: str) -> bool:
        """Up on the first line and Down on the last go through what was sent."""
        if key == "up":
            return self.cursor_at_first_line and self._recall(-1)
        return key == "down" and self.cursor_at_last_line and self._recall(1)

    def _recall(self, step: int) -> bool:
        if self._recalled is None:
            if step > 0 or not self._sent:
                return False
            self._draft, position = self.text, len(self._sent) - 1
        else:
            position = self._recalled + step
        if position < 0:
            return True
        self._recalled = position if position < len(self._sent) else None
        self.set_text(self._draft if self._recalled is None else self._sent[self._recalled])
        return True


class DraftCount(Widget):
    """How many tokens the draft is."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""

    def show(self, tokens: int | None) -> None:
        text = count(tokens, "token") if tokens else ""
        if text != self._text:
            self._text = text
            self.refresh()

    @property
    def text(self) -> str:
        return self._text

    def render(self) -> Content:
        return Content.styled(f"{self._text:>{COUNT_WIDTH}}", MUTED)


class InputBar(Row):
    """The prompt between its mark and the count of the draft's tokens."""

    class DraftChanged(Message):
        """The draft has been left alone long enough to be counted."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__()
        self.prompt = Prompt()
        self.count = DraftCount()
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Mark()
        yield self.prompt
        yield self.count

    def on_text_area_changed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(COUNT_DELAY, self._report)

    def _report(self) -> None:
        self.post_message(self.DraftChanged(self.prompt.text))


class Mark(Widget):
    """Where to type."""

    def render(self) -> Content:
        return Content.styled("›", f"bold {ACCENT}")
