"""What covers the chat for a moment: help."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from tinyllm_chat.tui.registry import GROUPS, Action, key_name
from tinyllm_chat.tui.widgets.rows import ACCENT, GAP, MUTED, columns, lines

HELP_COLUMN = 30  # cells for the keys and the slash command
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
