"""The input: grows with its text, sends on Enter, remembers what was sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import TextArea

from tinyllm_chat.chat.attaching import named
from tinyllm_chat.chat.conversation import Attachment
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.prompt_history import PromptHistory
from tinyllm_chat.tui.text import clean, count, size
from tinyllm_chat.tui.widgets.fields import Area
from tinyllm_chat.tui.widgets.ground import Row
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED

COUNT_DELAY = 0.12  # seconds of peace after a key before the draft's tokens are counted
COUNT_ON_DELAY = 0.01  # between two calls for a long draft
COUNT_WIDTH = 14
# A paste with more lines or characters than this is folded to a label.
FOLD_LINES, FOLD_CHARACTERS = 10, 1000
SHOWN_WHOLE = 20_000  # characters of a text that is brought back and still shown whole
COUNTED = 20_000  # characters of a paste whose tokens are counted at once
_NEWLINE_KEYS = {"alt+enter", "ctrl+enter", "shift+\r"}  # as some terminals report Shift+Enter and its kin
# Keys of the text area that do something unexpected in a chat. Those of the chat's own actions are taken from it too.
_RELEASED = {"f6", "f7", "super+c", "pageup", "pagedown"}
_EDITING = {
    binding.key: binding.action for binding in Binding.make_bindings(TextArea.BINDINGS) if binding.key not in _RELEASED
} | {"ctrl+underscore": "undo", "ctrl+slash": "undo"}  # as in a shell, where Ctrl+Z puts the program aside


class Prompt(Area, inherit_bindings=False):
    """The text area of the input.

    It acts on every key itself. Textual's own way leaves all but printable keys to bindings, which run only after the
    key has travelled up to the app: of keys that arrive together, as over a slow line, backspace would come last.
    `commands`: keys that do something in the app, Enter among them, and the action each of them runs. `count_tokens`
    gives the size of a paste, None if it is not known.
    """

    def __init__(
        self,
        commands: Mapping[str, str],
        history: PromptHistory | None = None,
        count_tokens: Callable[[str], int | None] = lambda text: None,
    ) -> None:
        super().__init__(
            compact=True, highlight_cursor_line=False, show_line_numbers=False, placeholder=Content("Message")
        )
        self.cursor_blink = False
        self._commands = dict(commands)
        self._history = history or PromptHistory(None)
        self._count_tokens = count_tokens
        self.take_waiting: Callable[[], bool] = lambda: False  # Up in an empty input: brings back what waits, if it can
        self._folded: dict[str, str] = {}  # each label with the text it stands for
        self._files: tuple[Attachment, ...] = ()  # that the text names and that have been read already
        self._recalled: int | None = None  # which of the texts sent is shown; None: the draft
        self._draft = Draft()

    async def _on_key(self, event: events.Key) -> None:
        key = event.key
        if key in self._commands:
            await self.app.run_action(self._commands[key])
        elif key in _NEWLINE_KEYS:
            self.insert("\n")
        elif key == "backspace" and self._delete_label():
            pass
        elif key in _EDITING and not self._recalls(key):
            await self.run_action(_EDITING[key])
        elif key not in _EDITING:
            return
        event.stop()
        event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Inserts a text; a long one is folded."""
        text = clean(text.replace("\r\n", "\n").replace("\r", "\n"))
        long = len(text) > FOLD_CHARACTERS or text.count("\n") >= FOLD_LINES
        self.insert(self._label(text) if long else text)

    def unfold(self) -> bool:
        """Shows everything that is folded; False if nothing is, or too much to be shown."""
        whole = self.whole_text
        if whole == self.text or len(whole) > 10 * SHOWN_WHOLE:
            return False
        self._show(Draft(whole))
        return True

    @property
    def whole_text(self) -> str:
        """What stands in the input, with everything unfolded."""
        return self.draft.whole

    @property
    def draft(self) -> Draft:
        text = self.text
        draft = Draft(text, {label: whole for label, whole in self._folded.items() if label in text})
        return replace(draft, files=named(draft.whole, self._files)) if self._files else draft

    def set_draft(self, draft: Draft) -> None:
        self._recalled = None
        self._show(draft)

    def remember(self, text: str) -> None:
        """Adds a text to what Up brings back."""
        self._history.add(text)
        self._recalled = None

    def set_text(self, text: str, files: tuple[Attachment, ...] = ()) -> None:
        """Shows a text; of one that is too long, its label. `files`: those that it names."""
        if len(text) > SHOWN_WHOLE:
            self._folded.clear()
            self._show(Draft(label := self._label(text), {label: text}, files))
        else:
            self._show(Draft(text, files=files))

    def take(self) -> str:
        """Empties the input and returns what stood in it, with everything unfolded."""
        text = self.whole_text
        self._recalled, self._draft = None, Draft()
        self._show(Draft())
        return text

    def give_back(self, draft: Draft) -> None:
        """Puts a draft in front of what was typed since."""
        self.set_draft(draft.before(self.draft))

    def _show(self, draft: Draft) -> None:
        self._folded, self._files = dict(draft.folded), draft.files
        self.text = draft.text
        self.move_cursor(self.document.end)

    def _label(self, text: str) -> str:
        """A short name for a text, to stand in its place."""
        tokens = None
        if len(text) <= COUNTED:  # which takes the counter a few calls
            tokens = next((each for each in (self._count_tokens(text) for _ in range(4)) if each is not None), None)
        length = f"{tokens:,} {'token' if tokens == 1 else 'tokens'}" if tokens is not None else ""
        lines = text.count("\n") + (not text.endswith("\n"))
        what = f"{lines:,} {'line' if lines == 1 else 'lines'}, {length or size(len(text.encode('utf-8', 'replace')))}"
        label, number = f"[pasted {what}]", 2
        while self._folded.get(label, text) != text:
            label, number = f"[pasted {what}, {number}]", number + 1
        self._folded[label] = text
        return label

    def _delete_label(self) -> bool:
        """Backspace behind a label takes it away whole."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        label = next((label for label in self._folded if before.endswith(label)), None)
        if label is None or self.selected_text:
            return False
        self.delete((row, column - len(label)), (row, column))
        return True

    def _recalls(self, key: str) -> bool:
        """Up on the first line and Down on the last go through what was sent."""
        if key == "up" and not self.text and self.take_waiting():
            return True
        if key == "up":
            return self.cursor_at_first_line and self._recall(-1)
        return key == "down" and self.cursor_at_last_line and self._recall(1)

    def _recall(self, step: int) -> bool:
        sent = self._history.texts
        if self._recalled is None:
            if step > 0 or not sent:
                return False
            self._draft, position = self.draft, len(sent) - 1
        else:
            position = self._recalled + step
        if position < 0:
            return True
        self._recalled = position if position < len(sent) else None
        self._show(self._draft if self._recalled is None else Draft(sent[self._recalled]))
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

    def __init__(self, prompt: Prompt) -> None:
        super().__init__()
        self.prompt = prompt
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
        self.post_message(self.DraftChanged())


class Mark(Widget):
    """Where to type."""

    def render(self) -> Content:
        return Content.styled("›", f"bold {ACCENT}")
