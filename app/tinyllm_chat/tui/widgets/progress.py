"""One line that says what is being waited for, with a bar where the amount of work is known."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from tinyllm_chat.tui.text import clean_line, duration, rate
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED

BAR_WIDTH = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Progress:
    """`total` 0: how much there is to do is not known, and there is no bar."""

    text: str
    done: int = 0
    total: int = 0

    @classmethod
    def of_stage(cls, stage: str, done: int, total: int) -> Progress:
        share = f" {100 * done // total} %" if total > 0 else ""
        return cls(f"{stage}{share}", done, total)

    @classmethod
    def of_prompt(cls, done: int, total: int, tokens_per_second: float) -> Progress:
        text = f"reading {done} of {total} tokens"
        if tokens_per_second > 0:
            text += f" · {rate(tokens_per_second)}/s · {duration((total - done) / tokens_per_second)} left"
        return cls(text, done, total)


def bar(done: float, total: float, width: int) -> tuple[str, str]:
    """A bar of eighths: what is done, and the rest as dots. Together `width` characters."""
    filled = max(0.0, min(1.0, done / total)) * width if total > 0 else 0.0
    eighths = round(filled * 8)
    full, part = divmod(eighths, 8)
    head = "█" * full + (_EIGHTHS[part] if part else "")
    return head, "·" * (width - len(head))


def progress_line(progress: Progress, width: int) -> Content:
    text = Content.styled(clean_line(progress.text), MUTED)
    if progress.total <= 0 or width < BAR_WIDTH + 20:
        return text.truncate(width, ellipsis=True)
    done, rest = bar(progress.done, progress.total, BAR_WIDTH)
    return Content.assemble((done, ACCENT), (rest, FAINT), "  ", text).truncate(width, ellipsis=True)
