"""The input: grows with its text, sends on Enter, remembers what was sent."""

from __future__ import annotations

from collections.abc import Mapping

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import TextArea

from tinyllm_chat.tui.text import clean, count
from tinyllm_chat.tui.widgets.ground import Row
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED

COUNT_DELAY = 0.12  # seconds of peace after a key before the draft's tokens are counted
COUNT_ON_DELAY = 0.01  # between two calls for a long draft
COUNT_WIDTH = 14
_NEWLINE_KEYS = {"alt+enter", "ctrl+enter", "shift+\r"}  # as some terminals report Shift+Enter and its kin
# Keys of the text area that do something unexpected in a chat. Those of the chat's own actions are taken from it too.
_RELEASED = {"f6", "f7", "super+c", "pageup", "pagedown"}
_EDITING = {
    binding.key: binding.action for binding in Binding.make_bindings(TextArea.BINDINGS) if binding.key not in _RELEASED
} | {"ctrl+underscore": "undo", "ctrl+slash": "undo"}  # as in a shell, where Ctrl+Z puts the program aside


class Prompt(TextArea, inherit_bindings=False):
    """The text area of the input.

    It acts on every key itself. Textual's own way leaves all but printable keys to bindings, which run only after the
    key has travelled up to the app: of keys that arrive together, as over a slow line, backspace would come last.
    `commands`: keys that do something in the app, Enter among them, and the action each of them runs.
    """

    def __init__(self, commands: Mapping[str, str]) -> None:
        super().__init__(
            compact=True, highlight_cursor_line=False, show_line_numbers=False, placeholder=Content("Message")
        )
        self.cursor_blink = False
        self._commands = dict(commands)
        self._sent: list[str] = []
        self._recalled: int | None = None  # which of `_sent` is shown; None: the draft
        self._draft = ""

    async def _on_key(self, event: events.Key) -> None:
        key = event.key
        if key in self._commands:
            await self.app.run_action(self._commands[key])
        elif key in _NEWLINE_KEYS:
            self.insert("\n")
        elif key in _EDITING and not self._recalls(key):
            await self.run_action(_EDITING[key])
        elif key not in _EDITING:
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

    def take(self) -> str:
        """Empties the input and returns what stood in it."""
        text = self.text
        self._recalled, self._draft = None, ""
        self.text = ""
        return text

    def give_back(self, text: str) -> None:
        """Puts a text in front of what was typed since."""
        self.set_text(f"{text}\n{self.text}" if self.text else text)

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
        self._too_many = False

    def show(self, tokens: int | None, *, too_many: bool = False) -> None:
        """`too_many`: they do not fit into the context."""
        text = count(tokens, "token") if tokens else ""
        if (text, too_many) != (self._text, self._too_many):
            self._text, self._too_many = text, too_many
            self.refresh()

    @property
    def text(self) -> str:
        return self._text

    def render(self) -> Content:
        return Content.styled(f"{self._text:>{COUNT_WIDTH}}", "$warning" if self._too_many else MUTED)


class InputBar(Row):
    """The prompt between its mark and the count of the draft's tokens."""

    class DraftChanged(Message):
        """The draft has been left alone long enough to be counted."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, commands: Mapping[str, str]) -> None:
        super().__init__()
        self.prompt = Prompt(commands)
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

    def count_on(self) -> None:
        """Asks once more for the same draft, after what else there is to do: so much of it is new."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(COUNT_ON_DELAY, self._report)

    def _report(self) -> None:
        self.post_message(self.DraftChanged(self.prompt.text))


class Mark(Widget):
    """Where to type."""

    def render(self) -> Content:
        return Content.styled("›", f"bold {ACCENT}")
