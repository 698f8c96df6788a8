"""A conversation: a tree of messages, of which one path from the root to a leaf is the chat that is seen."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.events import AnswerStats

TITLE_LENGTH = 60
UNTITLED = "New chat"


class MessageState(StrEnum):
    """What can still happen to a message."""

    COMPLETE = "complete"  # nothing more will come (see `Message.reason` for why an answer ended)
    WRITING = "writing"  # an answer whose end has not been reported
    FAILED = "failed"  # an answer that ended in an error; what was written before it stays
    INTERRUPTED = "interrupted"  # read from a transcript that ends in the middle of this answer


@dataclass(frozen=True, slots=True)
class SamplingSpan:
    """Sampling values that hold from one token of an answer on."""

    start: int  # index into the answer's token ids
    values: dict[str, Any]


@dataclass(slots=True)
class Message:
    """One message. Answers grow while they are written; everything else stays as it was made."""

    id: str
    parent: str | None
    role: str  # system, user, assistant
    content: str
    reasoning: str = ""  # what the model thought before its answer
    thought_tokens: int = 0  # how many of `ids` that took
    thought_seconds: float = 0.0
    ids: list[int] = field(default_factory=list)  # the tokens an answer was generated with, reasoning included
    fingerprint: str | None = None  # the model that `ids` belong to; None: they cannot be reused
    state: MessageState = MessageState.COMPLETE
    stats: AnswerStats | None = None
    sampling_spans: list[SamplingSpan] = field(default_factory=list)
    reason: str | None = None  # why an answer ended: eog, stop, length, context_full, cancelled
    error: str | None = None  # one line, for a failed answer
    model: str | None = None  # name of the model that wrote an answer
    created: float = field(default_factory=time.time)  # seconds since 1970

    def extend(
        self,
        text: str,
        ids: tuple[int, ...] | list[int],
        sampling: dict[str, Any] | None = None,
        *,
        reasoning: bool = False,
        seconds: float = 0.0,
    ) -> None:
        """Appends a piece of an answer, or of the reasoning before it, which took so long; `sampling` holds from the
        first of `ids` on.
        """
        if sampling is not None:
            self.sampling_spans.append(SamplingSpan(len(self.ids), sampling))
        self.ids.extend(ids)
        if reasoning:
            self.reasoning += text
            self.thought_tokens += len(ids)
            self.thought_seconds += seconds
        else:
            self.content += text

    def resume(self, fingerprint: str | None) -> None:
        """Marks an answer as being written on. Ids of two models do not mix: under another one they are void."""
        if fingerprint != self.fingerprint:
            self.fingerprint = None
        self.state, self.reason, self.error = MessageState.WRITING, None, None

    def finish(self, reason: str, stats: AnswerStats | None) -> None:
        self.state, self.reason, self.stats = MessageState.COMPLETE, reason, stats

    def fail(self, error: str) -> None:
        self.state, self.error = MessageState.FAILED, error

    def for_prompt(self) -> PromptMessage:
        reusable = self.fingerprint is not None and bool(self.ids)
        return PromptMessage(
            self.id,
            self.role,
            self.content,
            ids=tuple(self.ids) if reusable else None,
            fingerprint=self.fingerprint if reusable else None,
            reasoning=self.reasoning,
        )


class Conversation:
    """A tree of messages and its visible leaf. The system prompt stands before the tree and holds for every path."""

    def __init__(self) -> None:
        self.system: Message | None = None
        self.head: str | None = None  # id of the visible leaf
        self._messages: dict[str, Message] = {}
        self._children: dict[str | None, list[str]] = {None: []}

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._messages

    def __getitem__(self, message_id: str) -> Message:
        return self._messages[message_id]

    def __iter__(self) -> Iterator[Message]:
        """All messages of the tree in the order they were made; the system prompt is not among them."""
        return iter(self._messages.values())

    def path(self) -> list[Message]:
        """The visible messages, first to last; the system prompt, if there is one, comes first."""
        messages = []
        current = self.head
        while current is not None:
            message = self._messages[current]
            messages.append(message)
            current = message.parent
        if self.system is not None:
            messages.append(self.system)
        return messages[::-1]

    @property
    def leaf(self) -> Message | None:
        """The last visible message."""
        return self._messages[self.head] if self.head is not None else None

    @property
    def title(self) -> str:
        """One line, from the first user message."""
        first = next((message for message in self if message.role == "user"), None)
        return title_of(first.content) if first is not None else UNTITLED

    def new_message(self, role: str, content: str, parent: str | None) -> Message:
        """Makes a message, adds it below `parent` and makes it the visible leaf."""
        message = Message(secrets.token_hex(6), parent, role, content)
        self.add(message)
        self.head = message.id
        return message

    def add(self, message: Message) -> None:
        """Adds a message below its parent, which must be there already. Raises ValueError for a broken tree."""
        if message.id in self._messages:
            raise ValueError(f"message {message.id!r} is there already")
        if message.parent is not None and message.parent not in self._messages:
            raise ValueError(f"message {message.id!r} answers {message.parent!r}, which is not there")
        self._messages[message.id] = message
        self._children.setdefault(message.parent, []).append(message.id)

    def set_system(self, content: str) -> Message:
        """Sets the system prompt. The message is a new one, so that what was said under the old one stays recorded."""
        self.system = Message(secrets.token_hex(6), None, "system", content)
        return self.system

    def siblings(self, message_id: str) -> list[str]:
        """Ids of the alternatives at this place, oldest first, `message_id` itself among them."""
        return list(self._children[self._messages[message_id].parent])

    def select(self, message_id: str) -> None:
        """Makes `message_id` visible, and below it the newest messages down to a leaf."""
        if message_id not in self._messages:
            raise KeyError(message_id)
        while children := self._children.get(message_id):
            message_id = children[-1]
        self.head = message_id


def title_of(text: str) -> str:
    """One line of printable text that names a chat."""
    # Long pastes are common first messages: look at no more than can matter.
    words = "".join(character if character.isprintable() else " " for character in text[: TITLE_LENGTH * 8]).split()
    line = " ".join(words)
    if len(line) > TITLE_LENGTH:
        line = line[: TITLE_LENGTH - 1].rstrip() + "…"
    return line or UNTITLED
