"""What the panels beside the chat have in common."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Region, Size
from textual.selection import Selection

from tinyllm_chat.tui.widgets.drawn import DrawnLines
from tinyllm_chat.tui.widgets.rows import MUTED

NUMBER_COLUMN = 20  # where the numbers of all panels end


class Panel(DrawnLines):
    """A title and lines below it, as wide as there is room. The number of lines decides the height."""

    TITLE = ""
    UNIT = ""  # of the numbers below

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Content] = []
        self._lines_width = 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width != self._lines_width:
            self._lines_width, self._lines = width, self._written(width)
        return len(self._lines)

    def renew(self) -> None:
        """Shows what there is to say now. Only lines that say something else than before are drawn."""
        before, self._lines = self._lines, self._written(self._lines_width)
        if len(self._lines) != len(before):
            self.refresh(layout=True)
            return
        changed = [y for y, (old, new) in enumerate(zip(before, self._lines, strict=True)) if not new.is_same(old)]
        if changed:
            self.refresh(*(Region(0, y, self._lines_width, 1) for y in changed))

    @property
    def drawn_width(self) -> int:
        return self._lines_width

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(line.plain for line in self._lines)), "\n"

    def line(self, y: int) -> Content:
        return self._lines[y] if y < len(self._lines) else Content()

    def _written(self, width: int) -> list[Content]:
        return [self.heading(), *self.rows(width)] if width else []

    def heading(self) -> Content:
        title = Content.styled(self.TITLE, "bold")
        if self.UNIT:
            title = Content.assemble(title, (f"{self.UNIT:>{NUMBER_COLUMN - len(self.TITLE)}}", MUTED))
        return title

    def rows(self, width: int) -> list[Content]:
        raise NotImplementedError


def labelled(name: str, number: str, style: str = "", name_style: str = MUTED) -> Content:
    """A label and its number, which ends in the same column everywhere."""
    gap = " " * max(1, NUMBER_COLUMN - len(name) - len(number))
    return Content.assemble((name + gap, name_style), (number, style))
