"""One line that says what is being waited for, with a bar where the amount of work is known."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from tinyllm_chat.chat.events import Condensing
from tinyllm_chat.tui.text import clean_line, count, duration, rate
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED

_ONCE = {"compiling kernels": " · only the first time"}  # what takes long enough to make one wonder
WIDE, BAR, SHORT_BAR = 80, 24, 6  # columns from which a bar has its full length; the length there and below


@dataclass(frozen=True, slots=True)
class Progress:
    """`total` 0: how much there is to do is not known, and there is no bar."""

    text: str
    done: int = 0
    total: int = 0

    @classmethod
    def of_stage(cls, stage: str, done: int, total: int) -> Progress:
        share = f" {100 * done // total} %" if total > 0 else ""
        return cls(f"{stage}{share}{_ONCE.get(stage, '')}", done, total)

    @classmethod
    def of_prompt(cls, done: int, total: int, tokens_per_second: float, doing: str = "reading") -> Progress:
        text = f"{doing} {done} of {total} tokens"
        if tokens_per_second > 0:
            text += f" · {rate(tokens_per_second)}/s · {duration((total - done) / tokens_per_second)} left"
        return cls(text, done, total)

    @classmethod
    def of_summary(cls, state: Condensing) -> Progress:
        text = f"summarizing {count(state.messages, 'message')}"
        if state.written:
            return cls(f"{text} · {count(state.written, 'token')}")
        if state.total:
            return cls.of_prompt(state.done, state.total, state.tokens_per_second, "summarizing")
        return cls(text)


def progress_line(progress: Progress, width: int) -> Content:
    line = Content.styled(clean_line(progress.text), MUTED)
    if progress.total > 0:
        room = BAR if width >= WIDE else SHORT_BAR
        done = round(room * max(0.0, min(1.0, progress.done / progress.total)))
        line = Content.assemble(("━" * done, ACCENT), ("·" * (room - done), FAINT), "  ", line)
    return line.truncate(width, ellipsis=True)
