"""A scrolling widget made of lines: it lays out pieces of text, keeps what is laid out, and draws what is in view.

A chat is mostly text that stays as it is. Drawn line by line from one widget, a frame costs a small part of what a tree
of widgets for every paragraph and list item costs in layout and style, and the processor belongs to the model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from tinyllm_chat.tui.widgets.drawn import DrawnLines
from tinyllm_chat.tui.widgets.rows import ACCENT

MARGIN = 2  # empty columns on either side of the text
MEASURE = 104  # the longest line, in cells: longer ones are hard to read
CENTERED_FROM = 150  # columns from which the text keeps to the middle


class Piece:
    """A block of text. `layout(width)` gives its lines; `gap` is the number of empty lines before it."""

    __slots__ = ("_layout", "_lines", "_width", "gap")

    def __init__(self, layout: Callable[[int], list[Content]], gap: int = 0) -> None:
        self.gap = gap
        self._layout = layout
        self._width = -1
        self._lines: list[Content] = []

    def lines(self, width: int) -> list[Content]:
        if width != self._width:
            self._width, self._lines = width, self._layout(width)
        return self._lines


class Lines(DrawnLines, ScrollView, can_focus=False):
    """Shows pieces one below the other. Follows the end until the user scrolls up."""

    virtual_size = Reactive(Size(0, 0))  # without a layout: this widget's own size does not depend on its text

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pieces: list[Piece] = []
        self._ends: list[int] = [0]  # the line after each piece, with a zero before the first
        self._area = Size(0, 0)  # as of the last resize; to ask Textual costs an arrangement of the screen
        self._text_width = 0
        self._text_left = 0
        self._marked: tuple[Piece, Piece] | None = None
        self._marked_lines = range(0)

    def on_mount(self) -> None:
        super().on_mount()
        self.anchor()

    def show(self, pieces: Sequence[Piece], marked: tuple[Piece, Piece] | None = None) -> None:
        """Replaces the pieces. Those that stand where they stood are neither laid out nor drawn again. Beside those
        from `marked[0]` to `marked[1]` stands a bar in the margin.
        """
        before, self._pieces, self._marked = self._pieces, list(pieces), marked
        same = 0
        for old, new in zip_longest(before, self._pieces):
            if old is not new:
                break
            same += 1
        if self._text_width and same < max(len(before), len(self._pieces)):
            self._lay_out(same)
        else:
            self._find_marked()

    @property
    def following(self) -> bool:
        """The end is in view, or as good as."""
        return self.scroll_y >= self.max_scroll_y - 1

    def follow(self) -> None:
        self.anchor()

    @property
    def text(self) -> str:
        """Everything that is shown, as laid out."""
        return "\n".join(line.plain.rstrip() for line in self._all_lines())

    def reveal(self, lines: range) -> None:
        """Scrolls as little as possible until these lines are in view, or the first of them where all are too many."""
        height = self._area.height
        top, bottom = lines.start - 1, lines.stop + 1
        y = self.scroll_offset.y
        if top < y or bottom - top > height:
            y = top
        elif bottom > y + height:
            y = bottom - height
        if y != self.scroll_offset.y:
            self.scroll_to(y=max(0, y), animate=False, immediate=True)

    @property
    def marked_lines(self) -> range:
        return self._marked_lines

    def line_of(self, piece: Piece) -> int:
        """The number of the first line of a piece, which must be one of those shown."""
        index = self._pieces.index(piece)
        return self._ends[index] + piece.gap

    def end_of(self, piece: Piece) -> int:
        """The number of the line after a piece."""
        return self._ends[self._pieces.index(piece) + 1]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        # The scrollbar is for finding one's way; at the end it would only move, and cost a layout for every line.
        away = not self.following
        if away and not self.has_class("-away"):
            self._scroll_update(self.virtual_size)
        self.set_class(away, "-away")
        if away:
            super().watch_scroll_y(old_value, new_value)
        elif round(old_value) != round(new_value):
            self.refresh(self._area.region)

    # Layout

    def on_resize(self, event: events.Resize) -> None:
        self._area = event.size
        available = event.size.width
        width = max(1, min(MEASURE, available - 2 * MARGIN))
        left = (available - width) // 2 if available >= CENTERED_FROM else MARGIN
        if (width, left) != (self._text_width, self._text_left):
            self._text_width, self._text_left = width, left
            self._lay_out(0)

    def _lay_out(self, first: int) -> None:
        """Lays out the pieces from number `first` on."""
        width = self._text_width
        del self._ends[first + 1 :]
        end = top = self._ends[first]
        for piece in self._pieces[first:]:
            end += piece.gap + len(piece.lines(width))
            self._ends.append(end)
        self._find_marked()
        following = self.following
        if self.virtual_size.height != end:
            self.virtual_size = Size(0, end)
            if not following or self.show_vertical_scrollbar != (end > self.container_size.height):
                self._scroll_update(self.virtual_size)
        if following:
            # At once and not after the layout, which would take a second frame.
            self.scroll_y = self.max_scroll_y
        row = max(0, top - self.scroll_offset.y)
        self.refresh(Region(0, row, self._area.width, max(0, self._area.height - row)))

    def _find_marked(self) -> None:
        """Which lines the marked pieces are now."""
        lines = range(0)
        if self._marked is not None and self._text_width:
            first, last = self._marked
            lines = range(self.line_of(first), self.end_of(last))
        if lines != self._marked_lines:
            for line in {*lines} ^ {*self._marked_lines}:
                self.forget(line)
            self._marked_lines = lines
            self.refresh()

    # Drawing

    @property
    def first(self) -> int:
        return self.scroll_offset.y

    @property
    def drawn_width(self) -> int:
        return self._area.width

    def margin(self, y: int) -> Strip:
        base = self.visual_style
        if y not in self._marked_lines:
            return Strip.blank(self._text_left, base.rich_style)
        bar = Content.assemble(" " * (self._text_left - MARGIN), ("▎ ", ACCENT))
        return Strip(bar.render_segments(base), bar.cell_length)

    def line(self, y: int) -> Content:
        index = bisect_right(self._ends, y) - 1
        if index >= len(self._ends) - 1:
            return Content()  # below the text, or before the first layout
        piece = self._pieces[index]
        number = y - self._ends[index] - piece.gap
        return piece.lines(self._text_width)[number] if number >= 0 else Content()

    # Selection

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.text), "\n"

    def _all_lines(self) -> Iterator[Content]:
        for piece in self._pieces:
            yield from [Content()] * piece.gap
            yield from piece.lines(max(1, self._text_width))
