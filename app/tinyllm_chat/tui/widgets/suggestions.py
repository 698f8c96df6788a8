"""The slash commands that begin as the draft does."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from tinyllm_chat.tui.registry import Action
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED, lines

SHOWN = 6
_COLUMN = 22


class Suggestions(Widget):
    """Hidden while there is nothing to suggest."""

    def __init__(self) -> None:
        super().__init__()
        self._actions: tuple[Action, ...] = ()
        self.display = False

    @property
    def actions(self) -> tuple[Action, ...]:
        return self._actions

    def show(self, actions: Sequence[Action]) -> None:
        if tuple(actions) != self._actions:
            self._actions = tuple(actions)
            self.display = bool(actions)
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(SHOWN, len(self._actions)) + (len(self._actions) > SHOWN)

    def render(self) -> Content:
        rows = [
            Content.assemble(
                Content.styled(entry.usage, ACCENT).truncate(_COLUMN, pad=True), "  ", (entry.help, MUTED)
            ).truncate(self.content_size.width, ellipsis=True)
            for entry in self._actions[:SHOWN]
        ]
        if len(self._actions) > SHOWN:
            rows.append(Content.styled(f"{len(self._actions) - SHOWN} more", MUTED))
        return lines(rows)
