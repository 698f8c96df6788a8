"""Where the model stops and starts to see the chat."""

from __future__ import annotations

from textual.content import Content

from tinyllm_chat.chat.cuts import Cut
from tinyllm_chat.tui.text import clean
from tinyllm_chat.tui.widgets.lines import Piece
from tinyllm_chat.tui.widgets.rows import FAINT, MUTED


def cut_marks(cut: Cut) -> dict[str, Piece]:
    """A line above the first message that the model does not see, and one above the first that it sees again, with
    what it reads instead.
    """
    marks = cut.marks
    begin, end = _line(marks[cut.begin]), _line(f"{marks[cut.end]} · /undrop")
    if not cut.summary:
        return {cut.begin: begin, cut.end: end}
    title = Content.assemble(("Summary", f"bold {MUTED}"), ("  in its place · /summary edits it", FAINT))
    summary = Content.styled(clean(cut.summary), MUTED)
    whole = Piece(lambda width: [*end.lines(width), Content(), title, *summary.wrap(width)], gap=1)
    return {cut.begin: begin, cut.end: whole}


def _line(text: str) -> Piece:
    def layout(width: int) -> list[Content]:
        label = Content.styled(f" {text} ", MUTED).truncate(max(1, width - 6), ellipsis=True)
        return [Content.assemble(("┄┄", FAINT), label, ("┄" * (width - 2 - label.cell_length), FAINT))]

    return Piece(layout, gap=1)
