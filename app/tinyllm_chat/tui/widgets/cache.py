"""The KV cache as a picture: which message takes how much of the context, and what of that was there already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from textual import events
from textual.content import Content
from textual.message import Message
from textual.style import Style

from tinyllm_chat.chat.cuts import Cut
from tinyllm_chat.chat.events import CacheSegment, CacheState, ModelInfo, ReadingPrompt
from tinyllm_chat.tui.text import clean_line, count, duration, size
from tinyllm_chat.tui.widgets.panel import Panel, labelled
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED, row

SEGMENT_ROWS = 5  # messages that get a line of their own
MAP_ROWS = 3
NEARLY_FULL = 0.9  # share of the context from which its figure stands out
EXCERPT = 80  # characters of a message that is pointed at
# Whose message it is shows in the colour, neighbours differ in shade; what was found in the cache is dashed. The line
# is thin where layers with a window have given their part back.
_COLOURS = {
    "system": ("$secondary", "$secondary 60%"),
    "user": ("$foreground 80%", "$foreground 50%"),
    "assistant": (ACCENT, "$primary 60%"),
}
_FRESH, _REUSED, _FREE = "━", "┅", "·"
_THIN = {_FRESH: "─", _REUSED: "┄"}
_ROLES = {"system": "system", "user": "you", "assistant": "answer"}


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """What the panel shows. `state` None: no model."""

    state: CacheState | None = None
    cache_type: str = ""
    token: str = ""  # what one takes
    cut: Cut | None = None  # what the model does not see
    reading: ReadingPrompt | None = None  # while a prompt is read


def token_cost(model: ModelInfo) -> str:
    """What a token takes in the cache, and how much of that stays behind the windows of layers that have some."""
    lasting = model.lasting_bytes_per_token
    stays = f", {size(lasting)} stay" if lasting < model.cache_bytes_per_token else ""
    return f"{size(model.cache_bytes_per_token)} a token{stays}"


class CachePanel(Panel):
    """A map of the context, a line about what happens or is pointed at, what it costs, and the latest messages."""

    TITLE = "KV cache"

    class MessageChosen(Message):
        """A message was clicked in the map."""

        def __init__(self, message_id: str) -> None:
            super().__init__()
            self.message_id = message_id

    def __init__(self, text_of: Callable[[str], str]) -> None:
        """`text_of` gives the text of a message."""
        super().__init__()
        self._text_of = text_of
        self._figures = CacheFigures()
        self._rows_to_fill = SEGMENT_ROWS + MAP_ROWS
        self._pointed: str | None = None

    def show(self, figures: CacheFigures) -> None:
        if figures != self._figures:
            self._figures = figures
            self.renew()

    def follow(self, figures: CacheFigures) -> None:
        """Shows them if the picture is another one. Numbers wait for `show`: so fast they cannot be read."""
        if self._filled(figures) != self._filled(self._figures):
            self.show(figures)

    def _filled(self, figures: CacheFigures) -> tuple[int, int]:
        """(messages, cells of the map that are full): while both stay, so does the picture."""
        state = figures.state
        if state is None or not state.total:
            return 0, 0
        return len(state.segments), round(self._lines_width * self._map_rows * min(1.0, state.used / state.total))

    def limit_rows(self, count: int) -> None:
        """How many lines there are beyond those that always are."""
        if count != self._rows_to_fill:
            self._rows_to_fill = count
            self.renew()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point_at(event.style.meta.get("message"))

    def on_leave(self) -> None:
        self._point_at(None)

    def on_click(self, event: events.Click) -> None:
        if isinstance(message_id := event.style.meta.get("message"), str):
            self.post_message(self.MessageChosen(message_id))

    def _point_at(self, message_id: object) -> None:
        pointed = message_id if isinstance(message_id, str) else None
        if pointed != self._pointed:
            self._pointed = pointed
            self.renew()

    # Lines

    @property
    def _map_rows(self) -> int:
        return 1 if self._rows_to_fill < 3 else 2 if self._rows_to_fill < 7 else MAP_ROWS

    def rows(self, width: int) -> list[Content]:
        state = self._figures.state
        if state is None:
            nothing = row(Content.styled("no model", MUTED), Content(), width)
            return [nothing, Content.styled(_FREE * width, FAINT), Content()]
        share = f"{100 * state.used / state.total:.0f} %" if state.total else ""
        used = Content.assemble((f"{state.used}", "bold"), (f" of {state.total} tokens", MUTED))
        facts = [
            *cache_map(state, width, self._map_rows, self._pointed),
            self._happening(state),
            *self._costs(state),
        ]
        return [
            row(used, Content.styled(share, "$warning" if state.used >= NEARLY_FULL * state.total else ""), width),
            *(line.truncate(width, ellipsis=True) for line in facts),
            *self._segment_rows(width),
            *self._unseen(width),
        ]

    def _happening(self, state: CacheState) -> Content:
        """What is pointed at, else what is being read, else what the last prompt took."""
        segments = [segment for segment in state.segments if segment.message_id == self._pointed]
        if self._pointed is not None and segments:
            reused = sum(segment.tokens for segment in segments if segment.reused)
            total = sum(segment.tokens for segment in segments)
            detail = f" · {reused} reused" if reused else ""
            name = _ROLES.get(segments[0].role, segments[0].role)
            text = clean_line(self._text_of(self._pointed)[:EXCERPT])
            return Content.assemble((name, "bold"), (f" {count(total, 'token')}{detail} · {text}", MUTED))
        if (reading := self._figures.reading) is not None:
            left = ""
            if reading.tokens_per_second > 0:
                left = f" · {duration((reading.total - reading.done) / reading.tokens_per_second)} left"
            return Content.assemble(("reading ", MUTED), f"{reading.done}", (f" of {reading.total}{left}", MUTED))
        if not state.reused and not state.evaluated:
            return Content.styled("nothing read yet", MUTED)
        return Content.styled(f"last prompt: {state.reused} reused, {state.evaluated} read", MUTED)

    def _costs(self, state: CacheState) -> list[Content]:
        sizes = f"{size(state.bytes_now)} now · {size(state.bytes_full)} full"
        if self._rows_to_fill < 2:
            return [Content.styled(f"{sizes} · {self._figures.cache_type}", MUTED)]
        each = f"{self._figures.token} · {self._figures.cache_type}"
        return [Content.styled(sizes, MUTED), Content.styled(each, MUTED)]

    def _segments(self) -> list[CacheSegment]:
        """The messages that get a line: the last ones, those before them summed up."""
        assert self._figures.state is not None
        taken = self._map_rows - 1 + (self._rows_to_fill >= 2) + bool(self._figures.cut)
        segments, limit = list(self._figures.state.segments), min(SEGMENT_ROWS, self._rows_to_fill - taken)
        if len(segments) <= limit:
            return segments
        if limit < 2:
            return []
        earlier = segments[: len(segments) - limit + 1]
        total = sum(segment.tokens for segment in earlier)
        reused = all(segment.reused for segment in earlier)
        return [CacheSegment(None, f"{len(earlier)} earlier", total, reused), *segments[len(earlier) :]]

    def _segment_rows(self, width: int) -> list[Content]:
        segments = self._segments()
        most = max((segment.tokens for segment in segments), default=0)
        return [_segment_row(segment, most, width) for segment in segments]

    def _unseen(self, width: int) -> list[Content]:
        cut = self._figures.cut
        if cut is None:
            return []
        what = "summarized" if cut.summary else "not seen"
        line = Content.assemble(labelled(what, str(cut.tokens)), "  ", (count(cut.messages, "message"), MUTED))
        return [line.truncate(width, ellipsis=True)]


@lru_cache(maxsize=2 * (SEGMENT_ROWS + MAP_ROWS))  # of those that have a line the last one grows
def _segment_row(segment: CacheSegment, most: int, width: int) -> Content:
    """Its tokens as a number and as a strip, which is as long as there is room where they are the most."""
    left = labelled(_ROLES.get(segment.role, segment.role), str(segment.tokens))
    room = width - left.cell_length - 2
    mark = _REUSED if segment.reused else _FRESH
    strip = mark * max(1, round(room * segment.tokens / max(1, most)))
    line = Content.assemble(left, "  ", (strip, _COLOURS.get(segment.role, (FAINT,))[-1]))
    return line if segment.message_id is None else line.stylize(Style.from_meta({"message": segment.message_id}))


_Stretch = tuple[int, str, str, str | None]  # cells, the mark in them, its style, and whose they are


def cache_map(state: CacheState, width: int, rows: int, pointed: str | None = None) -> list[Content]:
    """The whole context on so many lines: a stretch for each message, dots for what is free."""
    return list(_drawn_map(tuple(_stretches(state, width * rows, pointed)), width, rows))


@lru_cache(maxsize=4)  # most tokens are too few to change the picture
def _drawn_map(stretches: tuple[_Stretch, ...], width: int, rows: int) -> tuple[Content, ...]:
    parts: list[list[Content]] = [[] for _ in range(rows)]
    place = 0
    for length, mark, style, message_id in stretches:
        end = place + length
        while place < end:
            line, column = divmod(place, width)
            run = min(end - place, width - column)
            piece = Content.styled(mark * run, style)
            if message_id is not None:
                piece = piece.stylize(Style.from_meta({"message": message_id}))
            parts[line].append(piece)
            place += run
    return tuple(Content.assemble(*line) for line in parts)


def _stretches(state: CacheState, cells: int, pointed: str | None) -> Iterator[_Stretch]:
    """What stands in so many cells. A message that is smaller than a cell may have none."""
    drawn, tokens, messages = 0, 0, 0
    before: str | None = None
    for segment in state.segments:
        messages += segment.message_id != before
        before = segment.message_id
        mark = _REUSED if segment.reused else _FRESH
        for count_of, held in _held_parts(tokens, tokens + segment.tokens, state.held):
            tokens += count_of
            end = round(cells * min(1.0, tokens / state.total)) if state.total else 0
            if end > drawn:
                style = _COLOURS.get(segment.role, (FAINT, FAINT))[messages % 2]
                if pointed is not None and segment.message_id == pointed:
                    style = f"{_COLOURS.get(segment.role, (FAINT,))[0]} bold reverse"
                yield end - drawn, mark if held else _THIN[mark], style, segment.message_id
                drawn = end
    if not drawn and state.used and cells:
        yield 1, _FRESH, ACCENT, None
        drawn = 1
    if cells > drawn:
        yield cells - drawn, _FREE, FAINT, None


def _held_parts(begin: int, end: int, held: Sequence[tuple[int, int]] | None) -> Iterator[tuple[int, bool]]:
    """The tokens from `begin` to before `end` in runs: how many, and whether every layer has them."""
    if held is None:
        yield end - begin, True
        return
    for first, last in held:
        first, last = max(begin, first), min(end, last)
        if first < last:
            if begin < first:
                yield first - begin, False
            yield last - first, True
            begin = last
    if begin < end:
        yield end - begin, False
