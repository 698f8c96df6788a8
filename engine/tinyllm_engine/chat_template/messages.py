"""Messages on their way into a template: checked, marked, and rearranged for templates that are particular."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tinyllm_engine.chat_template.marked_text import MarkedText, message_mark
from tinyllm_engine.errors import TemplateError
from tinyllm_engine.gguf_header import shown

Message = dict[str, Any]

REASONING = "reasoning_content"  # what an assistant thought before its content
_ALSO_REASONING = ("reasoning", "thinking")  # what other templates call it

# Templates put a role beside control tokens, or make one of it ("<|user|>"), so it must not be a way in.
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}")
_SEPARATOR = "\n\n"


def marked_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Copies whose texts are marked with the message's index, all but the role; `ids` stays behind.

    TemplateError if a message is not as a template expects one.
    """
    return [_marked_message(message, index) for index, message in enumerate(messages)]


def _marked_message(message: Mapping[str, Any], index: int) -> Message:
    if not isinstance(message, Mapping):
        raise TemplateError(f"message {index}: expected role and content, found {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise TemplateError(f"message {index}: expected a role of letters and digits, found {_shown(role)}")
    content = message.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise TemplateError(f"message {index}: expected content that is text, found {type(content).__name__}")
    fields = {key: value for key, value in message.items() if key != "ids"}
    if fields.get(REASONING):
        fields = dict.fromkeys(_ALSO_REASONING, fields[REASONING]) | fields
    mark = message_mark(index)
    return {key: value if key == "role" else marked(value, mark) for key, value in fields.items()}


def _shown(role: Any) -> str:
    return shown(role, 40) if isinstance(role, str) else type(role).__name__


def marked(value: Any, mark: str) -> Any:
    """A copy in which every text has this mark, keys of nested mappings included."""
    if isinstance(value, str):
        return MarkedText(value, mark * len(value))
    if isinstance(value, Mapping):
        return {marked(key, mark): marked(item, mark) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [marked(item, mark) for item in value]
    return value


def merge_system(messages: list[Message]) -> list[Message]:
    """System text goes in front of the first user message, or becomes one."""
    system = [message for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    users = [number for number, message in enumerate(others) if message["role"] == "user"]
    if not system or not users:
        return [{**message, "role": "user"} for message in system] + others
    first = users[0]
    joined = _joined([*system, others[first]])
    return messages if joined is None else [*others[:first], joined, *others[first + 1 :]]


def merge_turns(messages: list[Message]) -> list[Message]:
    """Messages of the same role in a row become one."""
    merged: list[Message] = []
    for message in messages:
        same = merged and merged[-1]["role"] == message["role"] in ("user", "assistant", "system")
        joined = _joined([merged[-1], message]) if same else None
        if joined is None:
            merged.append(message)
        else:
            merged[-1] = joined
    return merged


def _joined(messages: list[Message]) -> Message | None:
    """The last message with the texts of all; None if one is more than text."""
    contents = [content for message in messages if isinstance(content := message.get("content"), str)]
    if len(contents) < len(messages):
        return None
    return {**messages[-1], "content": MarkedText(_SEPARATOR).join(contents)}
