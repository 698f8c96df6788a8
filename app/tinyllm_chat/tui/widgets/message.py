"""One message of the chat: a heading, what was written, and what is to be said about its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.content import Content
from textual.style import Style

from tinyllm_chat.chat import conversation
from tinyllm_chat.chat.conversation import Attachment, MessageState, SamplingSpan
from tinyllm_chat.tui.text import SHORT_NAMES, clean, clean_line, count, label, sampling_value, size
from tinyllm_chat.tui.tokens import TokenText
from tinyllm_chat.tui.widgets.answer import Answer
from tinyllm_chat.tui.widgets.lines import Piece
from tinyllm_chat.tui.widgets.progress import Progress, progress_line
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED, joined, row
from tinyllm_chat.tui.widgets.thought import Thought

SHOWN_LINES = 300  # of a message of the user; a pasted book is named, not scrolled past
SHOWN_CHARACTERS = 30_000
NAME = 8  # cells that are left of a speaker's name where room is needed for what can be done

ENDINGS = {
    "cancelled": "stopped",
    "length": "stopped at the token limit · /continue writes on",
    "edited": "edited",
    "context_full": "stopped: the context is full",
}

# Actions on a selected message, and the words for them.
DOABLE = {
    "system": (("copy", "copy"), ("edit", "edit")),
    "user": (("copy", "copy"), ("quote", "quote"), ("edit", "edit"), ("delete", "delete")),
    "assistant": (
        ("copy", "copy"),
        ("copy_code", "code"),
        ("quote", "quote"),
        ("regenerate", "again"),
        ("edit", "edit"),
        ("delete", "delete"),
    ),
}


class MessageView:
    """A message of the conversation as pieces. Text is fed to it as it grows; `show_state` reads the rest again."""

    def __init__(
        self, message: conversation.Message, *, speaker: str, variant: str = "", unfolded: bool = False
    ) -> None:
        """`unfolded`: what the model thought is shown whole."""
        self.message = message
        self._speaker = clean_line(speaker)
        self._variant = variant  # "2/3": which of several branches this is
        self._selected = False
        self._progress: Progress | None = None
        self._waiting: Piece | None = None
        self._answer: Answer | None = None
        self.thought: Thought | None = None
        self._tokens: TokenText | None = None  # in place of the answer
        # Characters that were taken in.
        self._said_so_far, self._thought_so_far = len(message.content), len(message.reasoning)
        self._said: list[Piece] = []
        if message.role == "assistant":
            self._answer = Answer()
            self.thought = Thought(message, unfolded)
            if message.content:
                self._answer.feed(message.content)
                self._answer.finish()
        elif message.role == "user":
            self._said = [*map(_attached, message.attachments), Piece(Content(_excerpt(message.content)).wrap)]
        self._heading = self._head()
        self._ending = self._end()

    @property
    def pieces(self) -> list[Piece]:
        body = self._answer.pieces if self._answer is not None else self._said
        if self._tokens is not None and self.message.is_seen and self.message.content:
            self._tokens.begin_at(self.message.thought_tokens)
            body = self._tokens.pieces
        thought = self.thought.pieces if self.thought is not None else []
        waiting = [] if self._waiting is None else [self._waiting]
        return [self._heading, *thought, *body, *waiting, *self._ending]

    @property
    def progress(self) -> Progress | None:
        """What the answer waits for."""
        return self._progress

    def show_progress(self, progress: Progress | None) -> None:
        if progress != self._progress:
            self._progress = progress
            self._waiting = None if progress is None else Piece(lambda width: [progress_line(progress, width)])

    def take_text(self) -> None:
        """Takes in what the message says and thinks beyond what was taken; `paint` shows it."""
        assert self._answer is not None
        assert self.thought is not None
        self.show_progress(None)
        said, thought = len(self.message.content), len(self.message.reasoning)
        if said > self._said_so_far:
            self._answer.feed(self.message.content[self._said_so_far :])
        if thought > self._thought_so_far:
            self.thought.feed(self.message.reasoning[self._thought_so_far :])
        self._said_so_far, self._thought_so_far = said, thought

    def paint(self) -> bool:
        """Brings the pieces up to date with the text, at most ten times a second; False if nothing changed."""
        thought = self.thought is not None and self.thought.paint()
        return (self._answer is not None and self._answer.paint()) or thought

    def finish(self) -> None:
        """The answer has ended, well or not."""
        if self._answer is not None:
            self.show_progress(None)
            self._answer.finish()
        if self.thought is not None:
            self.thought.finish()
        self.show_state()

    def show_heat(self, shades: bool | None) -> None:
        """Shows an answer by its tokens, told apart by shades or by marks; None: as it reads."""
        if self.message.role == "assistant":
            self._tokens = None if shades is None else TokenText(self.message, coloured=shades)

    def turn_fold(self) -> None:
        """Unfolds the system prompt or what was thought before an answer, or folds it."""
        if self.thought is not None:
            self.thought.turn()
        elif self.message.role == "system":
            text = Content.styled(_excerpt(self.message.content), MUTED)
            self._said = [] if self._said else [Piece(text.wrap)]
            self._heading = self._head()

    def set_selected(self, selected: bool) -> None:
        """A selected message says what can be done with it."""
        if selected != self._selected:
            self._selected = selected
            self._heading = self._head()

    def set_variant(self, variant: str) -> None:
        if variant != self._variant:
            self._variant = variant
            self.show_state()

    def show_state(self) -> None:
        """The heading and the line below the text, as the message says."""
        self._heading, self._ending = self._head(), self._end()

    def _head(self) -> Piece:
        if self.message.role == "system" and not self._selected:
            return Piece(self._folded_head, gap=1)
        speaker = Content.styled(
            self._speaker, f"bold {ACCENT}" if self.message.role == "assistant" else f"bold {MUTED}"
        )
        right = self._doable() if self._selected else self._sampled()
        if self._variant:
            arrows = [
                Content.styled(arrow, Style.from_meta({"message": self.message.id, "step": step}))
                for arrow, step in ((" ◂", -1), (" ▸", 1))
            ]
            variant = Content.assemble((self._variant, MUTED), *arrows)
            # Where there is little room, the right end gives way: what is asked for must not.
            parts = [variant, right] if self._selected else [right, variant]
            right = joined("   ", (part for part in parts if part))
        if not self._selected:
            return Piece(lambda width: [row(speaker, right, width)], gap=1)

        def layout(width: int) -> list[Content]:
            room = max(NAME, width - right.cell_length - 2)
            return [row(speaker.truncate(room, ellipsis=True), right, width)]

        return Piece(layout, gap=1)

    def _folded_head(self, width: int) -> list[Content]:
        """The system prompt on one line, or the line above it."""
        mark, glimpse = ("▾ ", "") if self._said else ("▸ ", clean_line(self.message.content[: 4 * width]))
        line = Content.assemble((mark, MUTED), (self._speaker, f"bold {MUTED}"), "  ", (glimpse, MUTED))
        return [line.truncate(width, ellipsis=True).stylize(Style.from_meta({"fold": self.message.id}))]

    def _sampled(self) -> Content:
        if self.message.role != "assistant":
            return Content()
        return Content.styled(sampling_text(self.message.sampling_spans), MUTED)

    def _doable(self) -> Content:
        """What can be done with the message, each with the key that does it; a click does it too."""
        return joined(
            Content.styled(" · ", FAINT),
            (
                Content.styled(label, ACCENT).stylize(Style.from_meta({"@click": f"app.act({name!r})"}))
                for name, label in DOABLE[self.message.role]
                if name != "copy_code" or "```" in self.message.content or "~~~" in self.message.content
            ),
        )

    def _end(self) -> list[Piece]:
        message = self.message
        if message.state is MessageState.FAILED:
            error = Content(clean_line(message.error or "the answer failed"))
            return [Piece(lambda width: [Content.assemble(("▌ ", "$error"), line) for line in error.wrap(width - 2)])]
        if message.state is MessageState.INTERRUPTED:
            text = "the program ended here · /continue writes on"
        else:
            text = ENDINGS.get(message.reason or "", "") if message.state is MessageState.COMPLETE else ""
        return [Piece(Content.styled(text, MUTED).wrap, gap=1 if message.content else 0)] if text else []


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
        changed = {name: value for name, value in span.values.items() if name != "seed" and known.get(name) != value}
        known.update(changed)
        if changed:
            values = " ".join(_value(name, value) for name, value in changed.items())
            changes.append(f"{values} from {span.start + 1}")
    if len(changes) > 2:
        changes = [f"{len(changes) - 1} changes", changes[-1]]
    return " → ".join([text, *changes])


def _value(name: str, value: Any) -> str:
    return f"{SHORT_NAMES.get(name, label(name))} {sampling_value(value)}"


def _attached(attachment: Attachment) -> Piece:
    """A file that goes with a message, on one line."""
    detail = f"{size(len(attachment.text.encode('utf-8', 'replace')))}, {count(_lines(attachment.text), 'line')}"
    line = Content.assemble(("+ ", ACCENT), clean_line(attachment.name), "  ", (detail, MUTED))
    return Piece(lambda width: [line.truncate(width, ellipsis=True)])


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _excerpt(text: str) -> str:
    lines = text[:SHOWN_CHARACTERS].split("\n")
    shown = "\n".join(lines[:SHOWN_LINES])
    if len(shown) == len(text):
        return clean(text)
    return f"{clean(shown)}\n… {len(text) - len(shown)} more characters, which the model reads too"
