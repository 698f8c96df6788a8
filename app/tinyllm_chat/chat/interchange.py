"""A chat as a JSON document that holds all of it, every branch, and back.

`messages` is what is visible, in the form that most programs know; `not_seen` says which of them, from `begin` up to
`end`, the model is not shown, and what it reads instead; `records` is the whole tree, as in a transcript. A document
of another program that has only `messages`, or is nothing but their list, is read as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.transcript import Transcript
from tinyllm_chat.chat.transcript_reader import read_records

FORMAT = "tinyllm-chat"
VERSION = 1


class _Records(list[dict[str, Any]]):
    """Takes what a transcript records."""

    def check(self) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


def to_json(conversation: Conversation) -> str:
    records = _Records()
    Transcript("export", Path(), records, None).whole_chat(conversation)
    path, cut = conversation.path(), conversation.cut
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "title": conversation.title,
        "messages": [{"role": message.role, "content": message.whole_text} for message in path],
    }
    if cut is not None:
        ids = [message.id for message in path]
        places = {"begin": ids.index(cut.begin), "end": ids.index(cut.end)}
        document["not_seen"] = {**places, "tokens": cut.tokens, "summary": cut.summary}
    document["records"] = records
    # ASCII only: nothing in it can steer a terminal, and half surrogate pairs come back.
    return json.dumps(document, ensure_ascii=True, indent=1) + "\n"


def from_json(text: str | bytes, name: str) -> tuple[Conversation, list[str]]:
    """The conversation in a document, and warnings that begin with `name`. Raises ValueError with one line."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON document: {error or 'too deep'}") from error
    if isinstance(document, list):
        document = {"messages": document}
    if not isinstance(document, dict):
        raise ValueError("expected an object with records or messages")
    version = document.get("version")
    if document.get("format") == FORMAT and isinstance(version, int) and version > VERSION:
        raise ValueError(f"it is written in format {version}, this program knows formats up to {VERSION}")
    records, messages = document.get("records"), document.get("messages")
    if isinstance(records, list):
        conversation, warnings = read_records(records, name, "record")
    elif isinstance(messages, list):
        conversation, warnings = read_records(_as_records(messages), name, "record")
    else:
        raise ValueError("expected a list of records or messages")
    if not len(conversation):
        raise ValueError("there is no message in it")
    title = document.get("title")
    if isinstance(title, str) and title.strip() and not isinstance(records, list):
        conversation.name = title
    return conversation, warnings


def _as_records(messages: list[Any]) -> Iterator[dict[str, Any] | None]:
    """Messages that only have a role and a content, each after the one before; None for one that makes no sense."""
    parent = None
    for number, message in enumerate(messages):
        content = _text(message.get("content")) if isinstance(message, dict) else None
        if content is None:
            yield None
            continue
        role = message.get("role")
        record = {"type": "message", "id": f"m{number}", "parent": parent, "role": role, "content": content}
        yield record
        if role == "assistant":
            yield {"type": "delta", "id": record["id"], "text": content, "ids": []}
            yield {"type": "end", "id": record["id"], "reason": "eog"}
        if role in ("user", "assistant"):
            parent = record["id"]


def _text(content: Any) -> str | None:
    """A message's text; of a list of parts, those that are text."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n\n".join(part for part in parts if isinstance(part, str)) or None
    return content if isinstance(content, str) else None
