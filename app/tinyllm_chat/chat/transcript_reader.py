"""Reading a transcript: whatever happened to the file, as much of the conversation as is left of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.choices import TokenChoice, from_record
from tinyllm_chat.chat.conversation import (
    Attachment,
    Branch,
    Conversation,
    Message,
    MessageState,
    Removed,
    title_of,
)
from tinyllm_chat.chat.cuts import Cut
from tinyllm_chat.chat.events import AnswerStats
from tinyllm_chat.chat.files import read_file
from tinyllm_chat.chat.journal import LARGEST, RECORD
from tinyllm_chat.chat.settings import SAMPLING_NAMES

VERSION = 1
ROLES = ("system", "user", "assistant")


class _BadRecord(Exception):
    pass


def read_conversation(path: Path) -> tuple[Conversation, list[str]]:
    """The conversation in a transcript, and warnings in one line each.

    A torn last line is dropped; a damaged record is skipped with a warning. Raises OSError, and ValueError for a file
    that a newer version wrote, or that holds something else.
    """
    data = read_file(path, LARGEST)
    if data and RECORD not in data[:65536]:
        raise ValueError("it is no transcript: there is no record in it")
    *lines, last = data.split(b"\n")
    if last and _parse(last) is not None:  # whole, but for the newline that an editor took away
        lines.append(last)
    return read_records(map(_parse, lines), path.name, "line")


def read_records(records: Iterable[Any], name: str, place: str) -> tuple[Conversation, list[str]]:
    """The conversation that records tell of, whatever they are, and warnings in one line each.

    `name`: what warnings begin with; `place`: what one of the records is there. Raises ValueError as above.
    """
    reader = _Reader()
    skipped = []
    for number, record in enumerate(records, 1):
        try:
            if not isinstance(record, dict):
                raise _BadRecord
            reader.take(record)
        except _BadRecord:
            skipped.append(number)
    warnings = []
    if skipped:
        damaged = "1 damaged record" if len(skipped) == 1 else f"{len(skipped)} damaged records"
        warnings.append(f"{name}: {damaged} skipped, the first in {place} {skipped[0]}")
    if reader.adopted:
        warnings.append(f"{name}: {reader.adopted} messages lost their place and follow the one before them")
    return reader.conversation, warnings


def _parse(line: bytes) -> Any:
    """A line's value; None where it is none."""
    try:
        # A str is parsed in half the time: with bytes, Python looks for their encoding first.
        return json.loads(line.decode("ascii") if line.isascii() else line)
    except (ValueError, RecursionError):
        return None


class _Reader:
    def __init__(self) -> None:
        self.conversation = Conversation()
        self.adopted = 0
        self._removed: dict[str, Removed] = {}  # what was deleted, by the id of its first message
        self._last: str | None = None

    def take(self, record: dict[str, Any]) -> None:
        match record.get("type"):
            case "header":
                version = record.get("version")
                if isinstance(version, int) and version > VERSION:
                    raise ValueError(f"it is written in format {version}, this program knows formats up to {VERSION}")
            case "message":
                self._take_message(record)
            case "delta":
                self._take_delta(record)
            case "resume":
                self._answer(record).resume(_optional_text(record, "fingerprint"))
                self._answer(record).state = MessageState.INTERRUPTED
            case "end":
                self._take_end(record)
            case "head":
                self.conversation.head = None if record.get("id", "") is None else self._message(record).id
            case "title":
                title = _optional_text(record, "title")
                self.conversation.name = title_of(title) if title is not None else None
            case "pin":
                self.conversation.pinned = record.get("pinned") is True
            case "delete":
                message_id = self._message(record).id
                self._removed[message_id] = self.conversation.remove(message_id)
                if self._last is not None and self._last not in self.conversation:
                    self._last = self.conversation.head
            case "restore":
                self._restore(record)
            case "cut":
                self._take_cut(record)
            case _:
                raise _BadRecord

    def _take_message(self, record: dict[str, Any]) -> None:
        role, parent = record.get("role"), _optional_text(record, "parent")
        if role not in ROLES:
            raise _BadRecord
        message = Message(_text(record, "id"), parent, role, "" if role == "assistant" else _text(record, "content"))
        message.created = float(_number(record, "created", 1e11))
        message.attachments = _attachments(record)
        if role == "system":
            self.conversation.system = message
            return
        if role == "assistant":
            message.state = MessageState.INTERRUPTED  # until its end is found
            message.model = _optional_text(record, "model")
            message.fingerprint = _optional_text(record, "fingerprint")
            message.branch = _branch(record)
        if message.id in self.conversation:
            raise _BadRecord
        if parent is not None and parent not in self.conversation:
            message.parent = self._last
            self.adopted += 1
        self.conversation.add(message)
        self.conversation.head = self._last = message.id

    def _take_delta(self, record: dict[str, Any]) -> None:
        ids, text = record.get("ids"), _text(record, "text")
        if not isinstance(ids, list) or not _are_tokens(ids):
            raise _BadRecord
        self._answer(record).extend(
            text,
            ids,
            _sampling(record),
            reasoning=record.get("reasoning") is True,
            seconds=float(_number(record, "seconds", 1e9)),
            choices=_choices(record, len(ids)),
        )

    def _take_end(self, record: dict[str, Any]) -> None:
        answer = self._answer(record)
        error, reason = _optional_text(record, "error"), _optional_text(record, "reason")
        stats = record.get("stats")
        if error is not None:
            answer.fail(error)
        else:
            answer.finish(reason or "cancelled", _stats(stats) if isinstance(stats, dict) else None)

    def _take_cut(self, record: dict[str, Any]) -> None:
        begin, end = _optional_text(record, "begin"), _text(record, "end")
        if begin is None:
            self.conversation.cuts.pop(end, None)
            return
        if end not in self.conversation or begin not in (message.id for message in self.conversation.path_to(end)[:-1]):
            raise _BadRecord
        messages, tokens = (int(_number(record, key, 2**31)) for key in ("messages", "tokens"))
        self.conversation.cuts[end] = Cut(begin, end, messages, tokens, _text(record, "summary"))

    def _restore(self, record: dict[str, Any]) -> None:
        removed = self._removed.pop(_text(record, "id"), None)
        if removed is None:
            raise _BadRecord
        try:
            self.conversation.restore(removed)
        except ValueError as error:  # what it stood below is not there, or another message took an id
            raise _BadRecord from error

    def _message(self, record: dict[str, Any]) -> Message:
        message_id = _text(record, "id")
        if message_id not in self.conversation:
            raise _BadRecord
        return self.conversation[message_id]

    def _answer(self, record: dict[str, Any]) -> Message:
        message = self._message(record)
        if message.role != "assistant":
            raise _BadRecord
        return message


def _are_tokens(ids: list[Any]) -> bool:
    """Without looking at them one by one in Python: they are most of what a file holds."""
    return {*map(type, ids)} <= {int} and (not ids or (min(ids) >= 0 and max(ids) < 2**31))


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise _BadRecord
    return value


def _optional_text(record: dict[str, Any], key: str) -> str | None:
    return None if record.get(key) is None else _text(record, key)


def _attachments(record: dict[str, Any]) -> tuple[Attachment, ...]:
    found = record.get("attachments", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _BadRecord
    return tuple(Attachment(_text(each, "name"), _text(each, "text")) for each in found)


def _number(record: dict[str, Any], key: str, highest: float) -> int | float:
    """A figure that is only shown: 0 where it makes no sense."""
    value = record.get(key)
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= highest
    return value if valid else 0  # type: ignore[return-value]


def _choices(record: dict[str, Any], count: int) -> list[TokenChoice | None]:
    """What tokens were chosen from: nothing where it makes no sense, since an answer reads without."""
    values = record.get("choices")
    if not isinstance(values, list) or len(values) != count:
        return []
    try:
        return [from_record(value) for value in values]
    except ValueError:
        return []


def _branch(record: dict[str, Any]) -> Branch | None:
    value = record.get("branch")
    if not isinstance(value, dict):
        return None
    message_id, token = value.get("message_id"), value.get("token")
    return Branch(message_id, token) if isinstance(message_id, str) and type(token) is int and token >= 0 else None


def _stats(record: dict[str, Any]) -> AnswerStats:
    nothing = AnswerStats()
    values: dict[str, Any] = {
        field.name: type(getattr(nothing, field.name))(_number(record, field.name, 2**64)) for field in fields(nothing)
    }
    return AnswerStats(**values)


def _sampling(record: dict[str, Any]) -> dict[str, Any] | None:
    values = record.get("sampling")
    if values is None:
        return None
    if not isinstance(values, dict):
        raise _BadRecord
    found = {}
    for name in SAMPLING_NAMES:
        value = values.get(name)
        if type(value) in (int, float, bool):
            found[name] = value
        elif isinstance(value, list) and all(isinstance(text, str) for text in value):
            found[name] = tuple(value)
    return found
