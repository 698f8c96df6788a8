"""A list whose rows are laid out for its width."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import OptionList

# Keys of a screen whose field has the focus, for the list below it: the screen's `move` passes them on.
MOVES = (
    Binding("up", "move('cursor_up')", show=False, priority=True),
    Binding("down", "move('cursor_down')", show=False, priority=True),
    Binding("pageup", "move('page_up')", show=False, priority=True),
    Binding("pagedown", "move('page_down')", show=False, priority=True),
)


class FittedList(OptionList, can_focus=False):
    """Says when its width has become another one. It takes no focus: a field above it does, and typing searches."""

    class WidthChanged(Message):
        """The rows have to be laid out again."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._width = 0

    @property
    def row_width(self) -> int:
        """Cells of a row; while the list is hidden, those that it had."""
        return self.scrollable_content_region.width or self._width

    def on_resize(self, event: events.Resize) -> None:
        if self.row_width != self._width:  # 0 at first: rows laid out before are too narrow
            self._width = self.row_width
            self.post_message(self.WidthChanged())
