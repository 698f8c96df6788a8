"""What the draft may become: commands, the values they take, file names; and the files that go with it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from tinyllm_chat.tui.registry import Suggestion
from tinyllm_chat.tui.text import clean_line
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED, lines

SHOWN = 6
_COLUMN = 22


class Suggestions(Widget):
    """Hidden while there is nothing to suggest."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[Suggestion, ...] = ()
        self._round: tuple[Suggestion, ...] = ()  # that completing goes through
        self.display = False

    @property
    def tabbed(self) -> bool:
        """Tab takes one of them."""
        return any(suggestion.text for suggestion in self._shown)

    @property
    def shown(self) -> tuple[Suggestion, ...]:
        return self._shown

    def show(self, suggestions: Sequence[Suggestion]) -> None:
        if tuple(suggestions) != self._shown:
            self._shown = tuple(suggestions)
            self.display = bool(suggestions)
            self.refresh(layout=True)

    def completed(self, draft: str) -> str | None:
        """The draft completed to the first suggestion, and one that was completed so before to the next."""
        texts = [suggestion.text for suggestion in self._round]
        if len(texts) > 1 and draft in texts:
            return texts[(texts.index(draft) + 1) % len(texts)]
        self._round = tuple(suggestion for suggestion in self._shown if suggestion.text)  # others only tell
        return self._round[0].text if self._round else None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(SHOWN, len(self._shown)) + (len(self._shown) > SHOWN)

    def render(self) -> Content:
        width = self.content_size.width
        rows = [_row(suggestion, width) for suggestion in self._shown[:SHOWN]]
        if len(self._shown) > SHOWN:
            rows.append(Content.styled(f"{len(self._shown) - SHOWN} more", MUTED))
        return lines(rows)


def _row(suggestion: Suggestion, width: int) -> Content:
    name = Content.styled(clean_line(suggestion.shown), ACCENT)
    if suggestion.help:
        name = Content.assemble(name.truncate(_COLUMN, pad=True), "  ", (clean_line(suggestion.help), MUTED))
    return name.truncate(width, ellipsis=True)
