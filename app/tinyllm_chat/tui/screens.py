"""What covers the chat for a moment: help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from tinyllm_chat.tui.registry import GROUPS, Action, key_name, key_names
from tinyllm_chat.tui.widgets.bars import Hints
from tinyllm_chat.tui.widgets.rows import ACCENT, GAP, MUTED, columns, lines

HELP_COLUMN = 30  # cells for the keys and the slash command
_CLOSING: list[BindingType] = [Binding("escape,ctrl+c", "dismiss_empty", "Close", show=False)]


class HelpScreen(ModalScreen[None]):
    """What the screen below can do, then every action of the chat with its keys and its slash command."""

    BINDINGS: ClassVar[list[BindingType]] = [*_CLOSING, Binding("f1,q,enter", "dismiss_empty", "Close", show=False)]

    def __init__(self, actions: Iterable[Action], here: Sequence[tuple[str, str]] = ()) -> None:
        """`here`: keys of the screen below and what they do there; nothing for the chat itself."""
        super().__init__()
        self._actions = tuple(actions)
        self._here = tuple(here)

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet -high"):
            yield Static(Content.styled("Keys and commands", f"bold {ACCENT}"), classes="title")
            with VerticalScroll():
                if self._here:
                    yield Static(Content.styled("On this screen", "bold"), classes="group")
                    for keys, text in self._here:
                        yield HelpRow(keys, "", text)
                for group in GROUPS:
                    yield Static(Content.styled(group, "bold"), classes="group")
                    for entry in self._actions:
                        if entry.group == group:
                            yield HelpRow("  ".join(key_names(entry)), entry.usage, entry.help)
            yield Static(
                Content.styled("Esc closes · a message that starts with / is written //", MUTED), classes="foot"
            )

    def action_dismiss_empty(self) -> None:
        self.dismiss(None)


def help_of(screen: Screen[Any]) -> list[tuple[str, str]]:
    """What a screen that covers the chat says of its keys: its hints, then its other bindings."""
    rows = [
        (hint.key, f"{hint.label[:1].upper()}{hint.label[1:]}") for bar in screen.query(Hints) for hint in bar.hints
    ]
    known = {key for key, _ in rows}
    ours = [kind for kind in type(screen).__mro__ if kind.__module__.startswith(__package__ or "")]
    for binding in Binding.make_bindings([entry for kind in ours for entry in vars(kind).get("BINDINGS", ())]):
        key = key_name(binding.key)
        if binding.description and key not in known:
            rows.append((key, binding.description))
            known.add(key)
    return rows


class HelpRow(Widget):
    """How to ask for an action, and what it does."""

    def __init__(self, keys: str, usage: str, text: str) -> None:
        super().__init__()
        self._cells = [
            Content.assemble((keys, "bold"), "  " if keys else "", (usage, ACCENT)),
            Content.styled(text, MUTED),
        ]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return lines(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        left = min(HELP_COLUMN, width // 2)
        return columns(self._cells, [left, max(1, width - left - GAP)])
