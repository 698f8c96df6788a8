"""What widgets made of lines have in common: each line is drawn once and kept as long as it says the same."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.geometry import Region
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

KEPT = 2000  # drawn lines to keep


class DrawnLines(Widget):
    """Draws `line(y)` from line `first` on, without padding and border."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        # By line number, across scrolling: Textual's own cache is by row of the widget.
        self._drawn: dict[int, tuple[Content, Strip]] = {}
        self._drawn_width = 0  # for which they were drawn

    @property
    def first(self) -> int:
        """The number of the line in the first row."""
        return 0

    def line(self, y: int) -> Content:
        """Line number `y`, empty below the text."""
        raise NotImplementedError

    def margin(self, y: int) -> Strip | None:
        """What stands to the left of a line."""
        return None

    def render_lines(self, crop: Region) -> list[Strip]:
        first, selection = self.first, self.text_selection
        draw: Callable[[int, Content], Strip] | None = None
        if self.drawn_width != self._drawn_width:
            self._drawn_width = self.drawn_width
            self._drawn.clear()
        strips = []
        for y in range(first + crop.y, first + crop.bottom):
            line, span = self.line(y), selection.get_span(y) if selection is not None else None
            if span is None and (kept := self._drawn.get(y)) is not None and kept[0].is_same(line):
                strips.append(kept[1])
                continue
            draw = draw or self._pen()
            strips.append(draw(y, line if span is None else self._with_selection(line, span)))
            if span is None:
                if len(self._drawn) >= KEPT:
                    self._drawn.clear()
                self._drawn[y] = line, strips[-1]
        if crop.column_span != (0, self.drawn_width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """One row with the place of each of its characters in the text, which is asked for when text is selected."""
        y += self.first
        line = self.line(y)
        text = Strip(line.render_segments(self.visual_style), line.cell_length).apply_offsets(0, y)
        margin = self.margin(y)
        strip = text if margin is None else Strip.join([Strip.blank(margin.cell_length), text])
        return strip.adjust_cell_length(self.drawn_width)

    @property
    def drawn_width(self) -> int:
        """Cells of a row."""
        return self.size.width

    def forget(self, y: int) -> None:
        """Draws a line again although it says the same."""
        self._drawn.pop(y, None)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._drawn.clear()

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def _pen(self) -> Callable[[int, Content], Strip]:
        """Draws lines in the colours of now."""
        base, width = self.visual_style, self.drawn_width
        filters = self.get_line_filters()
        background = self.background_colors[1] if filters else None

        def draw(y: int, line: Content) -> Strip:
            strip = Strip(line.render_segments(base), line.cell_length)
            if (margin := self.margin(y)) is not None:
                strip = Strip.join([margin, strip])
            strip = strip.adjust_cell_length(width, base.rich_style)
            for line_filter in filters:
                assert background is not None
                strip = strip.apply_filter(line_filter, background)
            return strip

        return draw

    def _with_selection(self, line: Content, span: tuple[int, int]) -> Content:
        """The line with what is selected of it."""
        start, end = span
        style = self.screen.get_visual_style("screen--selection")
        return line.stylize(style, start, len(line) if end < 0 else end)
