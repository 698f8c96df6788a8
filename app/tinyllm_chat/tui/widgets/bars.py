"""The lines around the chat: header, rules, the status line of a narrow terminal, and the hints at the foot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from tinyllm_chat.chat.events import CacheState
from tinyllm_chat.chat.sampled import SamplingValue
from tinyllm_chat.tui.text import SHORT_NAMES, clean_line, count, label, rate, sampling_value
from tinyllm_chat.tui.widgets.cache import cache_map
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, FLASH, MUTED, joined, row

WIDE = 110  # columns from which hints stand further apart, where all of them fit so
STATUS_MAP, SMALLEST_MAP = 12, 4  # cells of the cache's picture in the status line
SHORTEST_STATUS = 7  # cells of the status line that still say something
SHORTEST_TITLE = 8  # of a chat; less says nothing


@dataclass(frozen=True, slots=True)
class Titles:
    """What the header says."""

    model: str = ""
    file_type: str = ""
    chat: str = ""
    turns: int = 0
    keeping: str = ""  # saved, read-only, not saved
    pinned: bool = False


class TitleBar(Widget):
    """One line: the model on the left, the chat on the right."""

    def __init__(self) -> None:
        super().__init__()
        self._titles = Titles()

    def show(self, titles: Titles) -> None:
        if titles != self._titles:
            self._titles = titles
            self.refresh()

    def render(self) -> Content:
        titles, width = self._titles, self.content_size.width
        name = clean_line(titles.model) or "tinyllm-chat"
        left = Content.assemble((name, f"bold {ACCENT}"), "  ", (clean_line(titles.file_type), MUTED))
        facts = ["pinned" if titles.pinned else "", count(titles.turns, "turn") if titles.turns else "", titles.keeping]
        right = Content.styled(" · ".join(fact for fact in facts if fact), MUTED)
        room = width - left.cell_length - right.cell_length - 5
        if titles.turns and room >= SHORTEST_TITLE:  # the name of the chat is the first to give way
            title = Content.styled(clean_line(titles.chat), MUTED).truncate(room, ellipsis=True)
            right = joined(Content.styled(" · ", MUTED), [title, right])
        return row(left, right, width)


class Rule(Widget):
    """A thin line across, in which a status may stand at the left and a note at the right."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._joint: int | None = None
        self._status = Content()
        self._note = ""

    def set_joint(self, column: int | None) -> None:
        """The column where another line goes down from this one."""
        if column != self._joint:
            self._joint = column
            self.refresh()

    def show(self, status: Content | None = None, note: str = "") -> None:
        status = status or Content()
        if note != self._note or not status.is_same(self._status):
            self._status, self._note = status, note
            self.refresh()

    @property
    def note(self) -> str:
        return self._note

    @property
    def status(self) -> str:
        return self._status.plain

    def render(self) -> Content:
        width = self.content_size.width
        line = "─" * width
        if self._joint is not None and 0 <= self._joint < width:
            line = line[: self._joint] + "┬" + line[self._joint + 1 :]
        parts: list[Content | str | tuple[str, str | Style]] = []
        used = 0
        note = _framed(self._note, width)
        end = "──" if note else ""
        room = status_room(width, self._note)
        if self._status and room >= SHORTEST_STATUS:
            status = self._status.truncate(room, ellipsis=True)
            parts += [("── ", FAINT), status, " "]
            used = status.cell_length + 4
        parts += [(line[used : width - len(note) - len(end)], FAINT), (note, ACCENT), (end, FAINT)]
        return Content.assemble(*parts)


def status_room(width: int, note: str) -> int:
    """Cells for a status in a rule: what is noted now comes before figures that are always there."""
    return width - 6 - len(_framed(note, width))


def _framed(note: str, width: int) -> str:
    return f" {note} " if note and len(note) + 6 <= width else ""


class VerticalRule(Widget):
    """A thin line down."""

    def render(self) -> Content:
        return Content.styled("\n".join("│" * self.size.height), FAINT)


def status(
    cache: CacheState | None,
    decode: float,
    sampling: Mapping[str, SamplingValue],
    flashing: frozenset[str],
    room: int,
) -> Content:
    """The panels on one line of `room` cells. The cache's picture gives way to the figures."""
    separator = Content.styled(" · ", FAINT)
    parts = [Content.assemble(f"{rate(decode):>4}", (" tok/s", MUTED))]
    names = ["temperature", "top_p", *sorted(flashing - {"temperature", "top_p"})]
    values = [
        Content.assemble(
            (f"{SHORT_NAMES.get(name, label(name))} ", MUTED),
            (sampling_value(sampling[name].value), FLASH if name in flashing else ""),
        )
        for name in names
        if name in sampling
    ]
    parts.append(joined("  ", values))
    if cache is None or not cache.total:
        return joined(separator, [Content.styled("KV –", MUTED), *parts])
    share = 100 * cache.used / cache.total
    figures = Content.assemble(f"{cache.used}/{cache.total}", (f" {share:.0f}%", MUTED))
    line = joined(separator, [figures, *parts])
    cells = min(STATUS_MAP, room - line.cell_length - len("KV  "))
    (picture,) = cache_map(cache, cells, 1) if cells >= SMALLEST_MAP else (Content(),)
    return Content.assemble(("KV ", MUTED), picture, " " if picture else "", line)


@dataclass(frozen=True, slots=True)
class Hint:
    """A key and what it does, for the foot of the screen. `action` runs on a click."""

    key: str
    label: str
    action: str
    rank: int = 0  # the lowest stay longest


def hint_row(hint: Hint, width: int) -> Content:
    """A hint on a line of its own, its key as wide as the longest."""
    line = Content.assemble((hint.key.ljust(width), "bold"), "  ", (hint.label, MUTED))
    return line.stylize(Style.from_meta({"@click": hint.action}))


class Hints(Widget):
    """As many hints as fit."""

    def __init__(self, hints: Sequence[Hint]) -> None:
        super().__init__()
        self._hints = tuple(hints)

    @property
    def hints(self) -> tuple[Hint, ...]:
        return self._hints

    def show(self, hints: Sequence[Hint]) -> None:
        if tuple(hints) != self._hints:
            self._hints = tuple(hints)
            self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        parts = {hint: self._part(hint) for hint in self._hints}
        needed = sum(part.cell_length for part in parts.values()) + len("  ·  ") * (len(parts) - 1)
        gap = Content.styled("  ·  " if max(needed, WIDE) <= width else " · ", FAINT)
        fitting: list[Hint] = []
        for hint in sorted(self._hints, key=lambda hint: hint.rank):
            width -= parts[hint].cell_length + (gap.cell_length if fitting else 0)
            if width < 0:
                break
            fitting.append(hint)
        return joined(gap, (part for hint, part in parts.items() if hint in fitting))

    @staticmethod
    def _part(hint: Hint) -> Content:
        click = Style.from_meta({"@click": hint.action})
        return Content.assemble((hint.key, "bold"), " ", (hint.label, MUTED)).stylize(click)
