"""What the machine does, beside the chat: the KV cache, the speed, and the sampling values with their origins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from textual import events
from textual.app import ComposeResult
from textual.content import Content

from tinyllm_chat.tui.text import duration, rate
from tinyllm_chat.tui.widgets.cache import MAP_ROWS, SEGMENT_ROWS, CachePanel
from tinyllm_chat.tui.widgets.ground import Column
from tinyllm_chat.tui.widgets.panel import NUMBER_COLUMN, Panel, labelled
from tinyllm_chat.tui.widgets.profile import ROWS as PROFILE_ROWS
from tinyllm_chat.tui.widgets.profile import ProfilePanel
from tinyllm_chat.tui.widgets.sampling import SamplingPanel

SPEED_SAMPLES = 7200  # points of one answer's curve: an hour of them
_SPARKS = "▁▂▃▄▅▆▇█"


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

    def begin(self) -> None:
        """Another answer begins, and so does the curve."""
        self._samples.clear()
        self.renew()

    def show(self, speed: Speed, sample: float | None = None) -> None:
        """`sample`: one more point of the curve."""
        if sample is not None:
            self._samples.append(sample)
        elif speed == self._speed:
            return
        self._speed = speed
        self.renew()

    def rows(self, width: int) -> list[Content]:
        speed = self._speed
        curve = sparkline(self._samples, width - NUMBER_COLUMN - 2)
        return [
            Content.assemble(labelled("decode", rate(speed.decode)), "  ", (curve, "$primary 70%")),
            labelled("prefill", rate(speed.prefill)),
            labelled("first token", duration(speed.first_token) if speed.first_token else "–"),
        ]


def sparkline(samples: Sequence[float], width: int) -> str:
    """All samples as a curve from zero, with some air above the highest; many are averaged."""
    shown = list(samples)
    if width <= 0:
        return ""
    if len(shown) > width:
        ends = [place * len(shown) // width for place in range(width + 1)]
        shown = [sum(shown[a:b]) / (b - a) for a, b in pairwise(ends)]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    return "".join(_SPARKS[min(7, int(6 * value / top))] for value in shown)


class Panels(Column):
    """The column of all. Where it is low, the cache shows fewer messages and sampling only what is in use."""

    def __init__(self, text_of: Callable[[str], str]) -> None:
        """`text_of` gives the text of a message."""
        super().__init__()
        self.cache = CachePanel(text_of)
        self.speed = SpeedPanel()
        self.sampling = SamplingPanel()
        self.profile = ProfilePanel()

    def compose(self) -> ComposeResult:
        yield self.cache
        yield self.speed
        yield self.sampling
        yield self.profile

    def on_resize(self, event: events.Resize) -> None:
        self._share_rows(event.size.height)

    def show_profile(self, on: bool) -> None:
        self.profile.display = on
        self._share_rows(self.size.height)

    def _share_rows(self, height: int) -> None:
        # Titles, gaps and the lines that are always there: 5 + 1 + 4 + 1 + 1.
        free = height - 12 - (PROFILE_ROWS + 2 if self.profile.display else 0)
        sampling = 10 if free >= 10 else free
        self.sampling.limit_rows(sampling)
        self.cache.limit_rows(max(0, min(SEGMENT_ROWS + MAP_ROWS, free - max(sampling, 6))))
