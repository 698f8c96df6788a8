"""The choice of colours: the whole screen shows a theme while it is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.theme import Theme
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from tinyllm_chat.tui.text import clean_line
from tinyllm_chat.tui.widgets.bars import Hint, Hints
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED

if TYPE_CHECKING:
    from tinyllm_chat.tui.app import TinyLLMChatApp

_HINTS = (
    Hint("Enter", "take and save", "screen.take", 0),
    Hint("Ctrl+T", "take for this session", "screen.try", 2),
    Hint("Esc", "leave as it was", "screen.close", 1),
)
_NAME_COLUMN = 24


class ThemeScreen(ModalScreen[None]):
    """Enter takes the theme and saves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "close", "Keep the theme there was", show=False),
        Binding("ctrl+t", "try", "Take the theme for this session", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet -high -narrow"):
            yield Static(Content.styled("Colours", f"bold {ACCENT}"), classes="title")
            yield OptionList(markup=False)
            yield Hints(_HINTS)

    def on_mount(self) -> None:
        self._before = self.app.theme
        themes = sorted(self.app.available_themes.values(), key=_order)
        options = self.query_one(OptionList)
        options.add_options(Option(_line(theme), id=theme.name) for theme in themes)
        options.highlighted = options.get_option_index(self._before)
        options.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if event.option_id is not None:
            self.app.theme = event.option_id

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_take()

    def action_take(self) -> None:
        name = self.app.theme
        self.dismiss(None)
        cast("TinyLLMChatApp", self.app).choose_theme(name)

    def action_try(self) -> None:
        name = self.app.theme
        self.dismiss(None)
        cast("TinyLLMChatApp", self.app).choose_theme(name, save=False)

    def action_close(self) -> None:
        self.app.theme = self._before
        self.dismiss(None)


def _order(theme: Theme) -> tuple[bool, bool, bool, str]:
    """Our own first, then the dark ones."""
    ours = theme.name.startswith(("tinyllm-", "high-contrast-"))
    return not ours, theme.ansi, not theme.dark, theme.name


def _line(theme: Theme) -> Content:
    kind = "the terminal's own colours" if theme.ansi else "dark" if theme.dark else "light"
    return Content.assemble(f"{clean_line(theme.name):<{_NAME_COLUMN}}  ", (kind, MUTED))
