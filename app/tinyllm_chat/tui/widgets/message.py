"""One message of the chat: a heading, what was written, and what is to be said about its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Static

from tinyllm_chat.chat import conversation
from tinyllm_chat.chat.conversation import MessageState, SamplingSpan
from tinyllm_chat.tui.text import SHORT_NAMES, clean, clean_line, label, sampling_value
from tinyllm_chat.tui.widgets.answer import AnswerBody
from tinyllm_chat.tui.widgets.progress import Progress, ProgressLine
from tinyllm_chat.tui.widgets.rows import MUTED, row

SHOWN_LINES = 300  # of a message of the user; a pasted book is named, not scrolled past
SHOWN_CHARACTERS = 30_000

ENDINGS = {
    "cancelled": "stopped",
    "length": "stopped at the token limit · Ctrl+T or /continue writes on",
    "context_full": "the context is full · /new starts an empty chat, -c N opens the model with more context",
}


class Heading(Widget):
    """Who speaks; to the right, in fine print, how an answer was sampled and which of several it is."""

    class VariantAsked(Message):
        """One of the arrows beside the number was clicked."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, speaker: str) -> None:
        super().__init__()
        self._speaker = clean_line(speaker)
        self._detail = ""
        self._variant = ""

    def show(self, detail: str, variant: str) -> None:
        if (detail, variant) != (self._detail, self._variant):
            self._detail, self._variant = detail, variant
            self.refresh()

    @property
    def detail(self) -> str:
        return self._detail

    def render(self) -> Content:
        right = Content.styled(self._detail, MUTED)
        if self._variant:
            arrows = [Content.styled(arrow, Style.from_meta({"step": step})) for arrow, step in ((" ◂", -1), (" ▸", 1))]
            right = Content.assemble(right, "   ", (self._variant, MUTED), *arrows)
        return row(Content.styled(self._speaker, "bold"), right, self.content_size.width)

    def on_click(self, event: events.Click) -> None:
        step = event.style.meta.get("step")
        if isinstance(step, int):
            self.post_message(self.VariantAsked(step))


class MessageView(Vertical):
    """A message of the conversation. Its text is fed to it as it grows; `show_state` reads the rest again."""

    class VariantAsked(Message):
        """Another of several answers is wanted."""

        def __init__(self, message_id: str, step: int) -> None:
            super().__init__()
            self.message_id = message_id
            self.step = step

    def __init__(self, message: conversation.Message, *, speaker: str, variant: str = "") -> None:
        super().__init__(classes=f"-{message.role}")
        self.message = message
        self._variant = variant  # "2/3": which of several answers this is
        self._heading = Heading(speaker)
        self._progress = ProgressLine()
        self._ending = Static(classes="ending")
        self.body = AnswerBody(message.content) if message.role == "assistant" else None

    def compose(self) -> ComposeResult:
        yield self._heading
        if self.body is None:
            yield Static(Content(_excerpt(clean(self.message.content))), classes="said")
        else:
            yield self.body
            yield self._progress
        yield self._ending

    def on_mount(self) -> None:
        self.show_state()

    def on_heading_variant_asked(self, event: Heading.VariantAsked) -> None:
        event.stop()
        self.post_message(self.VariantAsked(self.message.id, event.step))

    def show_progress(self, progress: Progress | None) -> None:
        self._progress.show(progress)

    @property
    def progress(self) -> Progress | None:
        return self._progress.progress

    def add_text(self, text: str) -> None:
        assert self.body is not None
        self._progress.show(None)
        self.body.feed(text)
        self.body.paint()

    async def finish(self) -> None:
        """The answer has ended, well or not."""
        if self.body is not None:
            self._progress.show(None)
            await self.body.finish()
        self.show_state()

    def set_variant(self, variant: str) -> None:
        if variant != self._variant:
            self._variant = variant
            self.show_state()

    def show_state(self) -> None:
        """The heading and the line below the text, as the message says."""
        message = self.message
        detail = sampling_text(message.sampling_spans) if message.role == "assistant" else ""
        self._heading.show(detail, self._variant)
        failed = message.state is MessageState.FAILED
        if failed:
            ending = clean_line(message.error or "the answer failed")
        elif message.state is MessageState.INTERRUPTED:
            ending = "the program ended here"
        else:
            ending = ENDINGS.get(message.reason or "", "") if message.state is MessageState.COMPLETE else ""
        self._ending.set_class(failed, "-error")
        self._ending.display = bool(ending)
        self._ending.update(Content(ending))

    @property
    def detail(self) -> str:
        """The heading's fine print."""
        return self._heading.detail


def sampling_text(spans: Sequence[SamplingSpan]) -> str:
    """How an answer was sampled: temperature and top-p at its start, then every change with its token.

    `t 0.80 · p 0.95`, and after a change at the 43rd token `t 0.80 · p 0.95 → t 0.85 from 43`.
    """
    if not spans:
        return ""
    first = spans[0].values
    text = " · ".join(_value(name, first[name]) for name in ("temperature", "top_p") if name in first)
    known: dict[str, Any] = dict(first)
    changes: list[str] = []
    for span in spans[1:]:
        changed = {name: value for name, value in span.values.items() if known.get(name) != value}
        known.update(changed)
        if changed:
            values = " ".join(_value(name, value) for name, value in changed.items())
            changes.append(f"{values} from {span.start + 1}")
    if len(changes) > 2:
        changes = [f"{len(changes) - 1} changes", changes[-1]]
    return " → ".join([text, *changes])


def _value(name: str, value: Any) -> str:
    return f"{SHORT_NAMES.get(name, label(name))} {sampling_value(value)}"


def _excerpt(text: str) -> str:
    lines = text[:SHOWN_CHARACTERS].split("\n")
    shown = "\n".join(lines[:SHOWN_LINES])
    if len(shown) == len(text):
        return text
    return f"{shown}\n… {len(text) - len(shown)} more characters, which the model reads too"
