"""The choice of a model: what is on this machine, what each file needs, and what can be downloaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from tinyllm_chat.chat.describing import ModelFacts
from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.tui.models import HUB_PREFIX, ModelChoice, ModelSource
from tinyllm_chat.tui.steady import is_open
from tinyllm_chat.tui.text import clean_line, size
from tinyllm_chat.tui.widgets.bars import Hint, Hints
from tinyllm_chat.tui.widgets.fields import Field
from tinyllm_chat.tui.widgets.fitted import MOVES, FittedList
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED, lines

TO_DOWNLOAD = "to download"
_PLACEHOLDER = "Search, or the path of a file, or hf:owner/repository/file.gguf"
_KEYS = (
    Hint("Enter", "open", "screen.open"),
    Hint("Ctrl+L", "chats", "app.act('history')", 2),
    Hint("Esc", "close", "screen.leave", 1),
)
_FRAME = 9  # rows of the sheet that are not the list's, its own margin among them
_TYPE, _ARCHITECTURE, _SIZE, _NEEDS = 9, 12, 9, 15  # cells of the columns


class ModelScreen(ModalScreen[ModelChoice | None]):
    """Comes back with the model to open, or to download and open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "Close", show=False, priority=True),
        *MOVES,
        Binding("home,ctrl+home", "move('first')", show=False, priority=True),
        Binding("end,ctrl+end", "move('last')", show=False, priority=True),
        Binding("ctrl+l", "app.act('history')", show=False, priority=True),
    ]

    def __init__(self, source: ModelSource) -> None:
        super().__init__()
        self._source = source
        self._choices: Sequence[ModelChoice] = ()
        self._facts: dict[str, ModelFacts] = {}  # by path
        self._listed: list[ModelChoice] = []  # by the ids of the options

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content.styled("Choose a model", f"bold {ACCENT}"), classes="title")
            yield Field(placeholder=_PLACEHOLDER, compact=True)
            yield FittedList()
            yield Static(Content.styled("looking for models …", MUTED), classes="foot")
            yield Hints(_KEYS)

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        self.run_worker(self._look, thread=True)

    @property
    def _list(self) -> FittedList:
        return self.query_one(FittedList)

    # On a worker thread: folders and disks may be slow

    def _look(self) -> None:
        worker = get_current_worker()
        try:
            choices = self._source.choices()
        except (ChatError, OSError) as error:
            self.app.call_from_thread(self._say, clean_line(str(error)), "$error")
            return
        self.app.call_from_thread(self._found, choices)
        for choice in choices:
            if worker.is_cancelled:
                return
            if choice.path is not None:
                facts = self._source.describe(choice.path)
                if not worker.is_cancelled:
                    self.app.call_from_thread(self._described, choice.path, facts)

    def _found(self, choices: Sequence[ModelChoice]) -> None:
        if is_open(self):
            self._choices = choices
            self._say("")
            self._fill()

    def _described(self, path: str, facts: ModelFacts) -> None:
        if not is_open(self):
            return
        self._facts[path] = facts
        for index, choice in enumerate(self._listed):
            if choice.path == path:
                self._list.replace_option_prompt(str(index), self._row(choice))

    # What is listed

    def _say(self, text: str, style: str = MUTED) -> None:
        if is_open(self):
            foot = self.query_one(".foot", Static)
            foot.display = bool(text)
            foot.update(Content.styled(text, style))

    def _fill(self) -> None:
        """Puts the choices that have all the typed words into the list, each under the place it was found in."""
        words = self.query_one(Input).value.lower().split()
        chosen = self._chosen
        self._listed = [
            choice
            for choice in self._choices
            if all(word in f"{choice.name} {choice.place or ''}".lower() for word in words)
        ]
        options: list[Option] = []
        heading, at = None, None
        if not any(choice.path is not None for choice in self._choices):
            options.append(Option(Content.styled("none on this machine yet", MUTED), disabled=True))
        for index, choice in enumerate(self._listed):
            place = choice.place if choice.path is not None else TO_DOWNLOAD
            if place and place != heading:
                gap = "\n" if options else ""
                options.append(Option(Content.styled(f"{gap}{place}", MUTED), disabled=True))
            heading = place
            if choice == chosen:
                at = len(options)
            options.append(Option(self._row(choice), id=str(index)))
        self._list.clear_options()
        self._list.add_options(options)
        if at is not None:
            self._list.highlighted = at
        else:
            self._list.action_first()

    @property
    def _chosen(self) -> ModelChoice | None:
        index = self._list.highlighted
        option = self._list.get_option_at_index(index) if index is not None else None
        return None if option is None or option.id is None else self._listed[int(option.id)]

    def _row(self, choice: ModelChoice) -> Content:
        width = max(20, self._list.row_width)
        detail = Content.styled(clean_line(choice.detail), MUTED)
        facts = self._facts.get(choice.path) if choice.path is not None else None
        right = detail if facts is None or facts.problem is not None else _columns(choice, facts, width)
        # The facts matter more than the end of a long name, but a name must be there.
        right = right.truncate(max(0, width - min(24, width // 2)), ellipsis=True)
        name = Content(clean_line(choice.name))
        first = Content.assemble(name.truncate(width - right.cell_length - 2, ellipsis=True, pad=True), "  ", right)
        if facts is None or facts.problem is None:
            return first
        problem = Content.styled(f"  does not run: {clean_line(facts.problem)}", "$warning")
        return lines([first, problem.truncate(width, ellipsis=True)])

    # What is done

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._fill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """What Enter does: an address of the Hub, else the chosen model, else the path of a file."""
        text = self.query_one(Input).value.strip()
        if text.lower().startswith(HUB_PREFIX):
            self.dismiss(ModelChoice(text, ""))
        elif self._chosen is not None:
            self.dismiss(self._chosen)
        elif text:
            self.dismiss(ModelChoice(text, "", os.path.expanduser(text)))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.dismiss(self._listed[int(event.option_id)])

    def on_resize(self, event: events.Resize) -> None:
        # What is above and below the list stays in sight in a low terminal.
        self._list.styles.max_height = max(3, event.size.height * 9 // 10 - _FRAME)

    def on_fitted_list_width_changed(self, event: FittedList.WidthChanged) -> None:
        event.stop()
        self._fill()

    def action_move(self, how: str) -> None:
        getattr(self._list, f"action_{how}")()

    def action_leave(self) -> None:
        self.dismiss(None)


def _columns(choice: ModelChoice, facts: ModelFacts, width: int) -> Content:
    """Size and whether it runs; where there is room type, architecture and the memory that a chat needs."""
    parts = [clean_line(choice.detail).rjust(_SIZE)]
    if width >= 68:
        parts.insert(0, clean_line(facts.file_type).ljust(_TYPE))
        parts.append(f"needs {size(facts.memory)}".rjust(_NEEDS))
    if width >= 76:
        parts.insert(1, clean_line(facts.architecture)[: _ARCHITECTURE - 1].ljust(_ARCHITECTURE))
    verdict = ("  too large", "$warning") if facts.tight else ("  runs     ", "$success")
    return Content.assemble(("".join(parts), MUTED), verdict)
