"""Lines of text laid out in cells."""

from __future__ import annotations

from textual.content import Content

MUTED = "$foreground 60%"
FAINT = "$foreground 30%"
ACCENT = "$primary"
FLASH = "reverse bold"


def row(left: Content, right: Content, width: int) -> Content:
    """One line with something at either end. Where they do not both fit, the right end gives way first."""
    left = left.truncate(width, ellipsis=True)
    right = right.truncate(max(0, width - left.cell_length - 2), ellipsis=True)
    gap = " " * (width - left.cell_length - right.cell_length)
    return Content.assemble(left, gap, right)


def lines(rows: list[Content]) -> Content:
    return Content("\n").join(rows)
