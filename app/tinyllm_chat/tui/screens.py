"""What covers the chat for a moment: help, and the choice of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.tui.models import ModelChoice, ModelSource
from tinyllm_chat.tui.registry import GROUPS, Action, key_name
from tinyllm_chat.tui.text import clean_line
from tinyllm_chat.tui.widgets.rows import ACCENT, GAP, MUTED, columns, lines

HELP_COLUMN = 30  # cells for the keys and the slash command
NAME_COLUMN = 48  # cells for the names of models, at most
_CLOSING: list[BindingType] = [Binding("escape,ctrl+c", "dismiss_empty", "Close", show=False)]


class HelpScreen(ModalScreen[None]):
    """Every action with its keys and its slash command."""

    BINDINGS: ClassVar[list[BindingType]] = [*_CLOSING, Binding("f1,q,enter", "dismiss_empty", "Close", show=False)]

    def __init__(self, actions: Iterable[Action]) -> None:
        super().__init__()
        self._actions = tuple(actions)

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet -high"):
            yield Static(Content.styled("Keys and commands", f"bold {ACCENT}"), classes="title")
            with VerticalScroll():
                for group in GROUPS:
                    yield Static(Content.styled(group, "bold"), classes="group")
                    for entry in self._actions:
                        if entry.group == group:
                            yield HelpRow(entry)
            yield Static(
                Content.styled("Esc closes · a message that starts with / is written //", MUTED), classes="foot"
            )

    def action_dismiss_empty(self) -> None:
        self.dismiss(None)


class HelpRow(Widget):
    """How to ask for an action, and what it does."""

    def __init__(self, entry: Action) -> None:
        super().__init__()
        keys = "  ".join(key_name(key) for key in entry.keys)
        self._cells = [
            Content.assemble((keys, "bold"), "  " if keys else "", (entry.usage, ACCENT)),
            Content.styled(entry.help, MUTED),
        ]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return lines(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        left = min(HELP_COLUMN, width // 2)
        return columns(self._cells, [left, max(1, width - left - GAP)])


class ModelScreen(ModalScreen[ModelChoice | None]):
    """Models found on this machine, and those that can be downloaded."""

    BINDINGS: ClassVar[list[BindingType]] = _CLOSING

    def __init__(self, source: ModelSource) -> None:
        super().__init__()
        self._source = source
        self._choices: Sequence[ModelChoice] = ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content.styled("Choose a model", f"bold {ACCENT}"), classes="title")
            yield OptionList(markup=False)
            yield Static(Content.styled("looking for models …", MUTED), classes="foot")

    def on_mount(self) -> None:
        self.run_worker(self._list, thread=True)

    def _list(self) -> None:
        """On a worker thread: folders may be slow."""
        try:
            choices = self._source.choices()
        except (ChatError, OSError) as error:
            self.app.call_from_thread(self._fail, str(error))
        else:
            self.app.call_from_thread(self._show, choices)

    def _fail(self, message: str) -> None:
        self.query_one(".foot", Static).update(Content.styled(clean_line(message), "$error"))

    def _show(self, choices: Sequence[ModelChoice]) -> None:
        self._choices = choices
        options = self.query_one(OptionList)
        options.clear_options()
        here = [choice for choice in choices if choice.path is not None]
        if not here:
            options.add_option(Option(Content.styled("none on this machine yet", MUTED), disabled=True))
        names = [Content(clean_line(choice.name)) for choice in choices]
        widest = min(NAME_COLUMN, max((name.cell_length for name in names), default=0))
        for index, (choice, name) in enumerate(zip(choices, names, strict=True)):
            if choice.path is None and index == len(here):
                options.add_option(Option(Content.styled("\nto download", MUTED), disabled=True))
            left = name.truncate(widest, ellipsis=True, pad=True)
            text = Content.assemble(left, " " * GAP, (clean_line(choice.detail), MUTED))
            options.add_option(Option(text, id=str(index)))
        self.query_one(".foot", Static).update(
            Content.styled("Enter opens · Esc closes · tinyllm-chat FILE.gguf opens any file", MUTED)
        )
        options.focus()
        options.action_first()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.dismiss(self._choices[int(event.option_id)])

    def action_dismiss_empty(self) -> None:
        self.dismiss(None)
