"""A small editor for the system prompt."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from tinyllm_chat.tui.widgets.bars import Hint, Hints
from tinyllm_chat.tui.widgets.fields import Area
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED

_KEYS = (Hint("Ctrl+S", "keep", "screen.keep"), Hint("Esc", "leave as it was", "screen.close", 1))


class SystemPromptScreen(ModalScreen[str | None]):
    """Dismissed with the text; None: it stays what it was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "close", "Leave it as it was", show=False, priority=True),
        Binding("ctrl+s,f4,ctrl+enter", "keep", "Keep it for what follows", show=False, priority=True),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(
                Content.assemble(
                    ("System prompt", f"bold {ACCENT}"), ("  what the model is told first; empty: nothing", MUTED)
                )
            )
            yield Area(self._text, soft_wrap=True, compact=True, highlight_cursor_line=False)
            yield Hints(_KEYS)

    def on_mount(self) -> None:
        area = self.query_one(Area)
        area.cursor_blink = False
        area.move_cursor(area.document.end)
        area.focus()

    def action_keep(self) -> None:
        self.dismiss(self.query_one(Area).text)

    def action_close(self) -> None:
        self.dismiss(None)
