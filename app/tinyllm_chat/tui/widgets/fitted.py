"""A list whose rows are laid out for its width."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import OptionList


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
