"""What the machine does, beside the chat: the KV cache, the speed, and the sampling values with their origins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.content import Content

from tinyllm_chat.chat.session import SamplingValue
from tinyllm_chat.chat.settings import RARE_SAMPLING
from tinyllm_chat.tui.text import duration, label, rate, sampling_value
from tinyllm_chat.tui.widgets.cache import MAP_ROWS, SEGMENT_ROWS, CachePanel
from tinyllm_chat.tui.widgets.ground import Column
from tinyllm_chat.tui.widgets.panel import NUMBER_COLUMN, Panel, labelled
from tinyllm_chat.tui.widgets.rows import FAINT, FLASH, MUTED

SPEED_SAMPLES = 32
_SPARKS = "▁▂▃▄▅▆▇█"
_LABELS = {
    "repeat_penalty": "repeat",
    "repeat_last_n": "repeat window",
    "presence_penalty": "presence",
    "frequency_penalty": "frequency",
}
_ORIGINS = {"command line": "command", "environment": "environ."}
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
            Content.assemble(labelled("decode", rate(speed.decode)), "  ", (curve, "$primary 70%")),
            labelled("prefill", rate(speed.prefill)),
            labelled("first token", duration(speed.first_token) if speed.first_token else "–"),
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
        left = labelled(_LABELS.get(name, label(name)), number, style, faint)
        return Content.assemble(left, "  ", (origin, faint)).truncate(width, ellipsis=True)


class Panels(Column):
    """The column of all three. Where it is low, the cache shows fewer messages and sampling only what is in use."""

    def __init__(self, text_of: Callable[[str], str]) -> None:
        """`text_of` gives the text of a message."""
        super().__init__()
        self.cache = CachePanel(text_of)
        self.speed = SpeedPanel()
        self.sampling = SamplingPanel()

    def compose(self) -> ComposeResult:
        yield self.cache
        yield self.speed
        yield self.sampling

    def on_resize(self, event: events.Resize) -> None:
        # Titles, gaps and the lines that are always there: 5 + 1 + 4 + 1 + 1.
        free = event.size.height - 12
        sampling = 10 if free >= 10 else free
        self.sampling.limit_rows(sampling)
        self.cache.limit_rows(max(0, min(SEGMENT_ROWS + MAP_ROWS, free - max(sampling, 6))))
