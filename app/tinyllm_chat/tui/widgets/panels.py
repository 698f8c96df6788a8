"""What the machine does, beside the chat: the KV cache, the speed, and the sampling values with their origins."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from tinyllm_chat.chat.events import CacheSegment, CacheState
from tinyllm_chat.chat.session import SamplingValue
from tinyllm_chat.chat.settings import RARE_SAMPLING
from tinyllm_chat.tui.text import duration, label, rate, sampling_value, size
from tinyllm_chat.tui.widgets.ground import Column
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, FLASH, MUTED, lines, row

SPEED_SAMPLES = 32
SEGMENT_ROWS = 5
NUMBER_COLUMN = 20  # where the numbers of all panels end
_SPARKS = "▁▂▃▄▅▆▇█"
# Neighbouring messages differ in shade; what was reused from an earlier turn is dashed.
_SHADES = (ACCENT, "$primary 60%")
_FRESH, _REUSED = "━", "┅"
_LABELS = {
    "repeat_penalty": "repeat",
    "repeat_last_n": "repeat window",
    "presence_penalty": "presence",
    "frequency_penalty": "frequency",
}
_ORIGINS = {"command line": "command", "environment": "environ."}
_ROLES = {"system": "system", "user": "you", "assistant": "answer"}
# Values at which a setting does nothing: shown, but faint.
_OFF = {
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second, and seconds to the first token; 0 where nothing was measured yet."""

    decode: float = 0.0
    prefill: float = 0.0
    first_token: float = 0.0


class Panel(Widget):
    """A title and lines below it, as wide as there is room. The number of lines decides the height."""

    TITLE = ""
    UNIT = ""  # of the numbers below

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.rows(width)) + 1

    def render(self) -> Content:
        width = self.content_size.width
        title = Content.styled(self.TITLE, "bold")
        if self.UNIT:
            title = Content.assemble(title, (f"{self.UNIT:>{NUMBER_COLUMN - len(self.TITLE)}}", MUTED))
        return lines([title, *self.rows(width)])

    def rows(self, width: int) -> list[Content]:
        raise NotImplementedError


class CachePanel(Panel):
    TITLE = "KV cache"

    def __init__(self) -> None:
        super().__init__()
        self._state: CacheState | None = None
        self._type = ""
        self._segment_rows = SEGMENT_ROWS

    def show(self, state: CacheState | None, cache_type: str) -> None:
        if (state, cache_type) == (self._state, self._type):
            return
        before = self._height
        self._state, self._type = state, cache_type
        self.refresh(layout=self._height != before)

    def limit_rows(self, count: int) -> None:
        """How many lines the messages may take one by one."""
        if count != self._segment_rows:
            self._segment_rows = count
            self.refresh(layout=True)

    @property
    def _height(self) -> int:
        return 0 if self._state is None else len(self._segments())

    def rows(self, width: int) -> list[Content]:
        state = self._state
        if state is None:
            return [
                row(Content.styled("no model", MUTED), Content(), width),
                Content.styled("·" * width, FAINT),
                Content(),
            ]
        share = f"{100 * state.used / state.total:.0f} %" if state.total else ""
        used = Content.assemble((f"{state.used}", "bold"), (f" of {state.total} tokens", MUTED))
        sizes = f"{size(state.bytes_now)} now · {size(state.bytes_full)} full · {self._type}"
        return [
            row(used, Content(share), width),
            cache_bar(state, width),
            Content.styled(sizes, MUTED).truncate(width, ellipsis=True),
            *(self._segment_row(segment, width) for segment in self._segments()),
        ]

    def _segments(self) -> list[CacheSegment]:
        """The messages that get a line: the last ones, those before them summed up."""
        assert self._state is not None
        segments, limit = list(self._state.segments), self._segment_rows
        if len(segments) <= limit:
            return segments
        if limit < 2:
            return []
        earlier = segments[: len(segments) - limit + 1]
        total = sum(segment.tokens for segment in earlier)
        reused = all(segment.reused for segment in earlier)
        return [CacheSegment(None, f"{len(earlier)} earlier", total, reused), *segments[len(earlier) :]]

    def _segment_row(self, segment: CacheSegment, width: int) -> Content:
        assert self._state is not None
        name = _ROLES.get(segment.role, segment.role)
        left = _number(name, str(segment.tokens))
        room = width - left.cell_length - 2
        most = max(1, *(other.tokens for other in self._segments()))
        mark = _REUSED if segment.reused else _FRESH
        strip = mark * max(1, round(room * segment.tokens / most))
        return Content.assemble(left, "  ", (strip, "$primary 60%"))


def cache_bar(state: CacheState, width: int) -> Content:
    """The whole context as one line: a stretch for each message, dots for what is free."""
    parts: list[tuple[str, str]] = []
    drawn, tokens = 0, 0
    for number, segment in enumerate(state.segments):
        tokens += segment.tokens
        end = round(width * min(1.0, tokens / state.total)) if state.total else 0
        if end > drawn:
            mark = _REUSED if segment.reused else _FRESH
            parts.append((mark * (end - drawn), _SHADES[number % 2]))
            drawn = end
    if not drawn and state.used:
        parts.append((_FRESH, ACCENT))
        drawn = 1
    return Content.assemble(*parts, ("·" * (width - drawn), FAINT))


class SpeedPanel(Panel):
    TITLE = "Speed"
    UNIT = "tokens/s"

    def __init__(self) -> None:
        super().__init__()
        self._speed = Speed()
        self._samples: deque[float] = deque(maxlen=SPEED_SAMPLES)

    def show(self, speed: Speed, sample: float | None = None) -> None:
        """`sample`: one more point of the curve."""
        if sample is not None:
            self._samples.append(sample)
        elif speed == self._speed:
            return
        self._speed = speed
        self.refresh()

    def rows(self, width: int) -> list[Content]:
        speed = self._speed
        curve = sparkline(self._samples, width - NUMBER_COLUMN - 2)
        return [
            Content.assemble(_number("decode", rate(speed.decode)), "  ", (curve, "$primary 70%")),
            _number("prefill", rate(speed.prefill)),
            _number("first token", duration(speed.first_token) if speed.first_token else "–"),
        ]


def sparkline(samples: Sequence[float], width: int) -> str:
    """The last samples as a curve from zero, with some air above the highest."""
    shown = list(samples)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    return "".join(_SPARKS[min(7, int(6 * value / top))] for value in shown)


class SamplingPanel(Panel):
    TITLE = "Sampling"

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, SamplingValue] = {}
        self._flashing: frozenset[str] = frozenset()
        self._short = False

    def show(self, values: Mapping[str, SamplingValue], flashing: frozenset[str] = frozenset()) -> None:
        """`flashing`: names of values that changed a moment ago."""
        if (values, flashing) == (self._values, self._flashing):
            return
        before = len(self._names())
        self._values, self._flashing = dict(values), flashing
        self.refresh(layout=len(self._names()) != before)

    def limit_rows(self, count: int) -> None:
        short = count < len(self._values) - len(RARE_SAMPLING)
        if short != self._short:
            self._short = short
            self.refresh(layout=True)

    def rows(self, width: int) -> list[Content]:
        return [self._row(name, width) for name in self._names()]

    def _names(self) -> list[str]:
        return [name for name in self._values if not self._is_hidden(name)]

    def _is_hidden(self, name: str) -> bool:
        rare = name in RARE_SAMPLING and name not in self._flashing
        return (rare and self._values[name].value == RARE_SAMPLING[name]) or (self._short and self._is_off(name))

    def _is_off(self, name: str) -> bool:
        return name in _OFF and self._values[name].value == _OFF[name] and name not in self._flashing

    def _row(self, name: str, width: int) -> Content:
        value = self._values[name]
        style = FLASH if name in self._flashing else FAINT if self._is_off(name) else ""
        number = sampling_value(value.value)
        if name == "seed" and value.value == -1:
            number = "–"
        origin = _ORIGINS.get(value.origin, value.origin)
        faint = FAINT if self._is_off(name) else MUTED
        left = _number(_LABELS.get(name, label(name)), number, style, faint)
        return Content.assemble(left, "  ", (origin, faint)).truncate(width, ellipsis=True)


def _number(name: str, number: str, style: str = "", name_style: str = MUTED) -> Content:
    """A label and its number, which ends in the same column everywhere."""
    gap = " " * max(1, NUMBER_COLUMN - len(name) - len(number))
    return Content.assemble((name + gap, name_style), (number, style))


class Panels(Column):
    """The column of all three. Where it is low, the cache shows fewer messages and sampling only what is in use."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = CachePanel()
        self.speed = SpeedPanel()
        self.sampling = SamplingPanel()

    def compose(self) -> ComposeResult:
        yield self.cache
        yield self.speed
        yield self.sampling

    def on_resize(self, event: events.Resize) -> None:
        # Titles, gaps and the lines that are always there: 4 + 1 + 4 + 1 + 1.
        free = event.size.height - 11
        sampling = 10 if free >= 10 else free
        self.sampling.limit_rows(sampling)
        self.cache.limit_rows(max(0, min(SEGMENT_ROWS, free - max(sampling, 6))))
