"""Cuts: stretches of a chat that stay on screen and on disk, but are no longer shown to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tinyllm_chat.chat.backend import PromptMessage

if TYPE_CHECKING:
    from tinyllm_chat.chat.conversation import Message

BEGINS, ENDS = "from here on not seen by the model", "not seen by the model"
SUMMARY_HEADING = "Summary of the conversation so far:"


@dataclass(frozen=True, slots=True)
class Cut:
    """The model sees a path without the messages from `begin` up to `end`, which is the first it sees again.

    `messages` and `tokens` say how much that is, all cuts before this one included. `summary` stands for them; empty:
    nothing does.
    """

    begin: str
    end: str
    messages: int
    tokens: int
    summary: str = ""

    @property
    def amount(self) -> str:
        """How much the model does not see, in words."""
        return f"{self.messages:,} {'message' if self.messages == 1 else 'messages'}, {self.tokens:,} tokens"

    @property
    def marks(self) -> dict[str, str]:
        """What to say where it begins and ends: above those two messages."""
        return {self.begin: BEGINS, self.end: f"{ENDS}: {self.amount}"}


def seen(path: Sequence[Message], cut: Cut | None) -> list[Message]:
    """The messages of a path that the model is shown."""
    if cut is None:
        return list(path)
    ids = [message.id for message in path]
    return [*path[: ids.index(cut.begin)], *path[ids.index(cut.end) :]]


def for_model(path: Sequence[Message], cut: Cut | None) -> list[PromptMessage]:
    """A path as the model shall see it. A summary joins the system prompt: templates allow no other place for it."""
    messages = [message.for_prompt() for message in seen(path, cut)]
    messages = [message for message in messages if message.role != "system" or message.content.strip()]
    if cut is None or not cut.summary:
        return messages
    summary = f"{SUMMARY_HEADING}\n{cut.summary}"
    if messages and messages[0].role == "system":
        return [replace(messages[0], content=f"{messages[0].content}\n\n{summary}"), *messages[1:]]
    return [PromptMessage(summary_id(cut), "system", summary), *messages]


def longer(path: Sequence[Message], cut: Cut | None, begin: str, end: str, tokens: int) -> Cut:
    """The cut in force, if there is one, with the messages of a path from `begin` up to `end` as well."""
    ids = [message.id for message in path]
    before = Cut(begin, begin, 0, 0) if cut is None else cut
    messages = ids.index(end) - ids.index(before.begin)
    return replace(before, end=end, messages=messages, tokens=before.tokens + tokens)


def summary_id(cut: Cut) -> str:
    """What the summary of a cut goes by where every message has an id."""
    return f"summary-{cut.end}"
