"""A conversation: a tree of messages, of which one path from the root to a leaf is the chat that is seen."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.choices import END, TokenChoice, joined, overlap
from tinyllm_chat.chat.cuts import Cut
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


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file that goes with a message, as it was read when the message was sent."""

    name: str  # as the user wrote it
    text: str


@dataclass(frozen=True, slots=True)
class Branch:
    """Where an answer left another one: its tokens up to `token` are that one's, the token there was picked by hand."""

    message_id: str
    token: int


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
    choices: dict[int, TokenChoice] = field(default_factory=dict)  # by index into `ids`, of tokens that were looked at
    branch: Branch | None = None  # of an answer that began as another one
    reason: str | None = None  # why an answer ended: eog, stop, length, context_full, cancelled; edited: by the user
    error: str | None = None  # one line, for a failed answer
    model: str | None = None  # name of the model that wrote an answer
    created: float = field(default_factory=time.time)  # seconds since 1970
    attachments: tuple[Attachment, ...] = ()  # of a user message

    @property
    def whole_text(self) -> str:
        """What the model reads: the attached files, each under its name, then what was written."""
        return with_attachments(self.content, self.attachments)

    def extend(
        self,
        text: str,
        ids: tuple[int, ...] | list[int],
        sampling: dict[str, Any] | None = None,
        *,
        reasoning: bool = False,
        seconds: float = 0.0,
        choices: Sequence[TokenChoice | None] = (),
    ) -> None:
        """Appends a piece of an answer, or of the reasoning before it, which took so long; `sampling` holds from the
        first of `ids` on, `choices` are those of `ids`.
        """
        self.see(len(self.ids), choices)
        if sampling is not None:
            self.sampling_spans.append(SamplingSpan(len(self.ids), sampling))
        self.ids.extend(ids)
        if reasoning:
            self.reasoning += text
            self.thought_tokens += len(ids)
            self.thought_seconds += seconds
        else:
            self.content += text

    def see(self, start: int, choices: Sequence[TokenChoice | None]) -> None:
        """Takes in what the tokens from number `start` on were chosen from."""
        self.choices.update((at, choice) for at, choice in enumerate(choices, start) if choice is not None)

    @property
    def is_seen(self) -> bool:
        """Whether all its tokens were looked at."""
        return 0 < len(self.ids) == len(self.choices)

    def has_seen(self, token: int) -> bool:
        """Whether all its tokens up to number `token` were looked at."""
        return all(at in self.choices for at in range(token + 1))

    def begin_as(self, other: Message, token: int, place: int) -> None:
        """Makes this, an empty answer, begin as `other` does, up to `token`, of whose alternatives it has the one
        number `place`. They must have been looked at.
        """
        choices = [other.choices[at] for at in range(token)]
        picked = other.choices[token].instead(place)
        end = min(token, other.thought_tokens)
        thinking = token < other.thought_tokens
        self.branch = Branch(other.id, token)
        for part, said, reasoning in (
            (slice(0, end), other.reasoning, True),
            (slice(end, token), other.content, False),
        ):
            text = said if reasoning and not thinking else overlap(joined(choices[part]), said)
            seconds = other.thought_seconds if reasoning and not thinking else 0.0
            self.extend(text, other.ids[part], reasoning=reasoning, seconds=seconds, choices=choices[part])
        alternative = other.choices[token].alternatives[place]
        if alternative.kind != END:
            before = choices[0 if thinking else end :]
            text = joined([*before, picked])[len(joined(before)) :] if not alternative.kind else ""
            self.extend(text, [alternative.id], reasoning=thinking, choices=[picked])
        self.sampling_spans = [span for span in other.sampling_spans if span.start <= token]

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
            self.whole_text,
            ids=tuple(self.ids) if reusable else None,
            fingerprint=self.fingerprint if reusable else None,
            reasoning=self.reasoning,
        )


@dataclass(frozen=True, slots=True)
class Removed:
    """A message that was taken out of the tree, with everything below it, and where it stood."""

    messages: tuple[Message, ...]  # the message itself first
    index: int  # among its siblings


class Conversation:
    """A tree of messages and its visible leaf. The system prompt stands before the tree and holds for every path."""

    def __init__(self) -> None:
        self.system: Message | None = None
        self.head: str | None = None  # id of the visible leaf
        self.name: str | None = None  # the title that the user gave
        self.pinned = False
        self.cuts: dict[str, Cut] = {}  # by the message that each ends at
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
        return self.path_to(self.head)

    def path_to(self, message_id: str | None) -> list[Message]:
        """The same down to any message; None: the system prompt alone."""
        messages = []
        current = message_id
        while current is not None:
            message = self._messages[current]
            messages.append(message)
            current = message.parent
        if self.system is not None:
            messages.append(self.system)
        return messages[::-1]

    def cut_of(self, path: Sequence[Message]) -> Cut | None:
        """What the model is not shown of a path: the last of its cuts is in force."""
        ids = {message.id for message in path}
        cuts = (self.cuts.get(message.id) for message in reversed(path))
        return next((cut for cut in cuts if cut is not None and cut.begin in ids), None)

    @property
    def cut(self) -> Cut | None:
        """What the model is not shown of the visible messages."""
        return self.cut_of(self.path()) if self.cuts else None

    @property
    def leaf(self) -> Message | None:
        """The last visible message."""
        return self._messages[self.head] if self.head is not None else None

    @property
    def title(self) -> str:
        """One line: the name that was given, else from the first user message."""
        if self.name is not None:
            return self.name
        roots = (self._messages[message_id] for message_id in self._children[None])
        first = next((message for message in roots if message.role == "user"), None)
        return title_of(first.content) if first is not None else UNTITLED

    def new_message(
        self, role: str, content: str, parent: str | None, attachments: Sequence[Attachment] = ()
    ) -> Message:
        """Makes a message, adds it below `parent` and makes it the visible leaf."""
        message = self.draft(role, content, parent, attachments)
        self.append(message)
        return message

    def draft(self, role: str, content: str, parent: str | None, attachments: Sequence[Attachment] = ()) -> Message:
        """A message that may become part of the conversation."""
        return Message(secrets.token_hex(6), parent, role, content, attachments=tuple(attachments))

    def append(self, message: Message) -> None:
        """Adds a message below its parent and makes it the visible leaf."""
        self.add(message)
        self.head = message.id

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

    def children(self, message_id: str | None) -> list[str]:
        """Ids of what follows `message_id` in any branch, oldest first; None: what a chat begins with."""
        return list(self._children.get(message_id, ()))

    def remove(self, message_id: str) -> Removed:
        """Takes a message and all below it out of the tree. If it was visible, what stands beside or above is."""
        message = self._messages[message_id]
        visible = self.head is not None and message_id in self._ancestors(self.head)
        beside = self._children[message.parent]
        index = beside.index(message_id)
        below = [message]
        for member in below:  # which grows
            below += [self._messages[child] for child in self._children.pop(member.id, ())]
        for member in below:
            del self._messages[member.id]
        del beside[index]
        if visible:
            self.head = message.parent
            if beside:
                self.select(beside[max(0, index - 1)])
        return Removed(tuple(below), index)

    def restore(self, removed: Removed) -> None:
        """Puts back what `remove` took, where it stood. What is visible stays."""
        root = removed.messages[0]
        for message in removed.messages:
            self.add(message)
        beside = self._children[root.parent]
        beside.remove(root.id)
        beside.insert(removed.index, root.id)

    def _ancestors(self, message_id: str) -> Iterator[str]:
        """The message itself and all above it."""
        current: str | None = message_id
        while current is not None:
            yield current
            current = self._messages[current].parent

    def select(self, message_id: str) -> None:
        """Makes `message_id` visible, and below it the newest messages down to a leaf."""
        if message_id not in self._messages:
            raise KeyError(message_id)
        while children := self._children.get(message_id):
            message_id = children[-1]
        self.head = message_id


def with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    """Files before the text, each fenced by more backquotes than it holds anywhere."""
    parts = []
    for attachment in attachments:
        longest = max(map(len, re.findall("`+", attachment.text)), default=0)
        fence = "`" * max(3, longest + 1)
        end = "" if attachment.text.endswith("\n") else "\n"
        parts.append(f"{attachment.name}:\n{fence}\n{attachment.text}{end}{fence}")
    return "\n\n".join([*parts, text])


def title_of(text: str) -> str:
    """One line of printable text that names a chat."""
    # Long pastes are common first messages: look at no more than can matter.
    words = "".join(character if character.isprintable() else " " for character in text[: TITLE_LENGTH * 8]).split()
    line = " ".join(words)
    if len(line) > TITLE_LENGTH:
        line = line[: TITLE_LENGTH - 1].rstrip() + "…"
    return line or UNTITLED
