"""A summary that the model is writing, of turns that it will then not see any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinyllm_chat.chat.cuts import Cut, summary_id
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.events import AnswerFailed, AnswerFinished, Condensing, Event, ReadingPrompt, TextDelta

LONGEST = 20_000  # characters that are kept


class Summary:
    """Takes in what the backend reports. `again` is what had to wait for it; `draft` is what this sends."""

    def __init__(self, cut: Cut, again: Callable[[], None] | None, draft: Draft) -> None:
        """`cut`: what the summary will stand for."""
        self.id = summary_id(cut)
        self.again = again
        self.draft = draft
        self.failure = ""  # why there is none, in one line
        self.progress = Condensing(cut.messages, 0, 0, 0.0, 0)
        self._cut = cut
        self._text = ""

    @property
    def cut(self) -> Cut:
        """The cut with the summary."""
        return replace(self._cut, summary=self._text.strip()[:LONGEST])

    def take(self, event: Event) -> bool:
        """True if this is its end."""
        match event:
            case ReadingPrompt(done=done, total=total, tokens_per_second=speed):
                self.progress = replace(self.progress, done=done, total=total, tokens_per_second=speed)
            case TextDelta(text=text, ids=ids, reasoning=reasoning):
                self._text += "" if reasoning else text
                self.progress = replace(self.progress, written=self.progress.written + len(ids))
            case AnswerFinished(reason=reason):
                if reason == "cancelled":
                    self.failure = "the summary was stopped: nothing has changed"
                elif reason == "context_full" or not self._text.strip():
                    self.failure = "the model wrote no summary: nothing has changed"
                return True
            case AnswerFailed(message=message):
                self.failure = f"there is no summary, and nothing has changed: {message}"
                return True
        return False
