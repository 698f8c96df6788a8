"""A table whose rows pass or do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """fault: what is wrong, in a few words; "" for a row that passes"""

    name: str
    cells: tuple[str, ...]
    fault: str = ""


@dataclass
class Table:
    """Rows are printed as they are found: some take seconds."""

    title: str
    columns: tuple[str, ...]
    found: Iterable[Row]
    note: str = ""
    rows: list[Row] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(bool(row.fault) for row in self.rows)

    def print(self) -> None:
        print(self.title + (f" ({self.note})" if self.note else ""))
        print(_line("", self.columns, ""))
        for row in self.found:
            self.rows.append(row)
            print(_line(row.name, row.cells, row.fault or "pass"), flush=True)
        print()


def checked(name: str, columns: int, measure: Callable[[], Row]) -> Row:
    """A row that fails where it cannot be had at all."""
    try:
        return measure()
    except Exception as error:  # one row must not end the table
        return Row(name, ("",) * columns, " ".join(f"{type(error).__name__}: {error}".split())[:160])


def figure(value: float) -> str:
    return f"{value:.1e}"


def _line(name: str, cells: tuple[str, ...], end: str) -> str:
    return f"  {name:46}" + "".join(f"{cell:>12}" for cell in cells) + f"  {end}"
