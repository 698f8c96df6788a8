"""A table as text in columns."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from tinyllm_chat.tui.widgets.rows import FAINT, GAP, MUTED, columns

NARROWEST = 4  # cells below which no column is squeezed


def layout(headers: Sequence[Content], rows: Sequence[Sequence[Content]], width: int) -> list[Content]:
    """The lines of a table. Columns are as wide as their content; where `width` has no room for that, the widest give
    way and wrap. Wider than `width` only where even narrow columns do not fit."""
    if not headers or width <= 0:
        return []
    table = [[header.stylize(MUTED) for header in headers], *rows]
    widths = column_widths([[cell.cell_length for cell in row] for row in table], width - GAP * (len(headers) - 1))
    shown = [line for row in table[:1] for line in columns(row, widths)]
    shown.append(Content.styled((" " * GAP).join("─" * column for column in widths), FAINT))
    shown.extend(line for row in table[1:] for line in columns(row, widths))
    return shown


def column_widths(cells: Sequence[Sequence[int]], room: int) -> list[int]:
    """How wide each column may be when together they have `room`."""
    columns = max(len(row) for row in cells)
    widths = [max((row[column] for row in cells if column < len(row)), default=0) for column in range(columns)]
    widths = [max(1, width) for width in widths]
    while (excess := sum(widths) - room) > 0:
        widest = max(widths)
        if widest <= NARROWEST:
            break
        second = max((width for width in widths if width < widest), default=NARROWEST)
        sharing = [column for column, width in enumerate(widths) if width == widest]
        down = max(1, min(widest - max(second, NARROWEST), -(-excess // len(sharing))))
        for column in sharing:
            widths[column] = widest - down
    return widths
