"""A chat as a Markdown document."""

from __future__ import annotations

import re
import time

from tinyllm_chat.chat.conversation import Conversation, Message, MessageState

# Everything that steers a terminal when the file is shown with `cat`, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_ENDINGS = {
    "length": "stopped at the token limit",
    "context_full": "stopped: the context is full",
    "cancelled": "stopped",
    "edited": "edited",
}


def to_markdown(conversation: Conversation) -> str:
    """The visible path, one heading for each message."""
    path = conversation.path()
    parts = [f"# {_clean(conversation.title)}"]
    for message in path:
        parts.append(f"## {_speaker(message)}")
        if message.whole_text.strip():
            parts.append(_clean(message.whole_text).strip("\n"))
        if ending := _ending(message):
            parts.append(f"*({_clean(ending)})*")
    return "\n\n".join(parts) + "\n"


def file_stem(conversation: Conversation) -> str:
    """A name for the document: when the chat began and what it is about."""
    first = next(iter(conversation), None)
    began = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(first.created if first is not None else None))
    words = re.findall(r"\w+", conversation.title.lower())
    return "-".join([began, *words])[:80]


def _speaker(message: Message) -> str:
    if message.role == "assistant":
        return _clean(message.model or "Assistant")
    return {"system": "System", "user": "You"}[message.role]


def _ending(message: Message) -> str | None:
    if message.state is MessageState.FAILED:
        return f"failed: {message.error}"
    if message.state is not MessageState.COMPLETE:
        return "unfinished"
    return _ENDINGS.get(message.reason or "")


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("", text.replace("\r\n", "\n"))
