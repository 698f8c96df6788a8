"""What covers the chat for a moment: help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from tinyllm_chat.tui.registry import GROUPS, Action, key_name, key_names
from tinyllm_chat.tui.widgets.bars import Hint, Hints
from tinyllm_chat.tui.widgets.rows import ACCENT, GAP, MUTED, columns, lines

HELP_COLUMN = 30  # cells for the keys and the slash command


class HelpScreen(ModalScreen[bool]):
    """What the screen below can do, then every action of the chat with its keys and its slash command.

    Its result is whether the user would rather search.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c,f1,q,enter", "close", "Close", show=False)]

    def __init__(self, actions: Iterable[Action], here: Sequence[tuple[str, str]] = ()) -> None:
        """`here`: keys of the screen below and what they do there; nothing for the chat itself."""
        super().__init__()
        self._actions = tuple(actions)
        self._here = tuple(here)
        # What is found acts on the chat, not on what covers it.
        self._search = next((entry for entry in self._actions if entry.name == "palette" and not here), None)

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
            yield Hints(self._hints())

    def _hints(self) -> list[Hint]:
        search = [] if self._search is None else key_names(self._search)[:1]
        return [
            Hint("Esc", "close", "screen.close"),
            Hint("↑↓", "scroll", "screen.scroll", 2),
            *(Hint(key, "search", "screen.search", 1) for key in search),
            Hint("//", "begins a message with /", "screen.close", 3),
        ]

    def on_key(self, event: events.Key) -> None:
        if self._search is not None and event.key in self._search.keys:
            event.stop()
            self.action_search()

    def action_search(self) -> None:
        self.dismiss(True)

    def action_scroll(self) -> None:
        self.query_one(VerticalScroll).scroll_page_down(animate=False)

    def action_close(self) -> None:
        self.dismiss(False)


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
