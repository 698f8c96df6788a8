"""How an answer was made: the model, the seed, the sampling values and where they changed, tokens and speed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from tinyllm_chat.chat.conversation import Message, SamplingSpan
from tinyllm_chat.chat.settings import RARE_SAMPLING
from tinyllm_chat.tui.text import SHORT_NAMES, clean_line, count, duration, label, rate, sampling_value
from tinyllm_chat.tui.tokens import percent
from tinyllm_chat.tui.widgets.bars import Hint, Hints
from tinyllm_chat.tui.widgets.rows import ACCENT, GAP, MUTED, columns, lines

NAME_COLUMN = 14
LOW = 32  # rows below which the facts may need all there is
_OTHER = object()  # equal to no value
_KEYS = (Hint("Esc", "close", "screen.close"),)
ENDS = {
    "eog": "by the model",
    "stop": "by a stop text",
    "length": "at the token limit",
    "context_full": "with the context full",
    "cancelled": "by you",
}


class DetailsScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c,q,enter,alt+d", "close", "Close", show=False)]

    def __init__(self, message: Message) -> None:
        super().__init__()
        self._message = message

    def compose(self) -> ComposeResult:
        low = self.app.size.height < LOW
        with Vertical(classes="sheet -high" if low else "sheet"):
            yield Static(Content.styled("How this answer was made", f"bold {ACCENT}"), classes="title")
            with VerticalScroll(classes="" if low else "-short"):
                yield Facts(self._message)
            yield Hints(_KEYS)

    def action_close(self) -> None:
        self.dismiss(None)


class Facts(Widget):
    """Names and values in two columns."""

    def __init__(self, message: Message) -> None:
        super().__init__()
        self._facts = tuple(facts(message))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return lines(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        rows: list[Content] = []
        for name, value in self._facts:
            cells = [Content.styled(name, MUTED), Content(clean_line(value))]
            rows += columns(cells, [NAME_COLUMN, max(1, width - NAME_COLUMN - GAP)])
        return rows


def facts(message: Message) -> Iterator[tuple[str, str]]:
    """Names and values of everything that is known about an answer."""
    stats = message.stats
    yield "model", message.model or "unknown"
    yield "begun", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(message.created))
    if message.branch is not None:
        yield "branch", f"of another answer, from token {message.branch.token + 1}, which you picked"
    thought = f", {message.thought_tokens} of them thinking" if message.thought_tokens else ""
    yield "tokens", f"{len(message.ids)}{thought}"
    if message.is_seen:
        surprise = -sum(choice.logprob for choice in message.choices.values()) / len(message.choices)
        yield "certainty", f"{percent(-surprise)} a token (geometric mean)"
    if message.reason is not None:
        yield "ended", ENDS.get(message.reason, message.reason)
    if stats is not None:
        yield "prompt", f"{count(stats.prompt_tokens, 'token')}, {stats.reused_tokens} of them reused from the cache"
        yield "reading", f"{rate(stats.prefill_tokens_per_second)} tokens/s in {duration(stats.prefill_seconds)}"
        yield "writing", f"{rate(stats.decode_tokens_per_second)} tokens/s in {duration(stats.decode_seconds)}"
        yield "first token", f"after {duration(stats.first_token_seconds)}"
        yield "seed", str(stats.seed)
    for number, (start, changed) in enumerate(changes(message.sampling_spans)):
        where = "sampling" if number == 0 else f"from token {start + 1}"
        yield where, " · ".join(f"{label(name)} {sampling_value(value)}" for name, value in changed.items())


def changes(spans: Sequence[SamplingSpan]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The token from which values held, and those that differ from the ones before; of the first those in use."""
    known: dict[str, Any] = {}
    for number, span in enumerate(spans):
        changed = {name: value for name, value in span.values.items() if name != "seed" and known.get(name) != value}
        if number == 0:
            changed = {name: value for name, value in changed.items() if RARE_SAMPLING.get(name, _OTHER) != value}
        known.update(span.values)
        if changed:
            yield span.start, changed


def sampling_at(spans: Sequence[SamplingSpan], token: int) -> str:
    """The values that a token was drawn with, the common ones."""
    known: dict[str, Any] = {}
    for span in spans:
        if span.start <= token:
            known.update(span.values)
    names = ("temperature", "top_p", "top_k", "min_p")
    return " · ".join(f"{SHORT_NAMES[name]} {sampling_value(known[name])}" for name in names if name in known)
