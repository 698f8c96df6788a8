"""What the panels beside the chat have in common."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from tinyllm_chat.tui.widgets.rows import MUTED, lines

NUMBER_COLUMN = 20  # where the numbers of all panels end


class Panel(Widget):
    """A title and lines below it, as wide as there is room. The number of lines decides the height."""

    TITLE = ""
    UNIT = ""  # of the numbers below

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.rows(width)) + 1

    def render(self) -> Content:
        return lines([self.heading(), *self.rows(self.content_size.width)])

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
