"""Lines of text laid out in cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.content import Content

MUTED = "$muted"  # what explains; see themes.py
FAINT = "$faint"  # lines and what is off
ACCENT = "$primary"
FLASH = "reverse bold"

GAP = 3  # cells between two columns


def row(left: Content, right: Content, width: int) -> Content:
    """One line with something at either end. Where they do not both fit, the right end gives way first."""
    left = left.truncate(width, ellipsis=True)
    right = right.truncate(max(0, width - left.cell_length - 2), ellipsis=True)
    gap = " " * (width - left.cell_length - right.cell_length)
    return Content.assemble(left, gap, right)


def joined(separator: Content | str, parts: Iterable[Content]) -> Content:
    """The parts with the separator between them. (`Content.join` counts the separator's cells once too often.)"""
    pieces: list[Content | str] = []
    for part in parts:
        if pieces:
            pieces.append(separator)
        pieces.append(part)
    return Content.assemble(*pieces)


def lines(rows: Iterable[Content]) -> Content:
    return joined("\n", rows)


def columns(cells: Sequence[Content], widths: Sequence[int]) -> list[Content]:
    """Cells side by side, each wrapped to its width."""
    wrapped = [cell.wrap(width) if cell else [cell] for cell, width in zip(cells, widths, strict=False)]
    height = max((len(cell) for cell in wrapped), default=0)
    return [
        joined(
            " " * GAP,
            (
                (cell[line] if line < len(cell) else Content()).truncate(width, pad=True)
                for cell, width in zip(wrapped, widths, strict=False)
            ),
        )
        for line in range(height)
    ]
