"""Transcripts: one append-only JSONL file for each chat.

Records: header (version, id, title, model), message (id, parent, role, content, attachments: name and text of files),
delta (a piece of an answer: id, text, token ids, sampling where it changed, seconds if it is reasoning, what the tokens
were chosen from if that was looked at), resume (an answer is written on), end (why an answer ended, figures), head (the
visible leaf), title (the user's; null: none), pin (pinned), delete (a message with all below it), restore (what was
deleted is back where it stood), cut (the model is no longer shown what is from `begin` up to `end`, but the summary if
there is one; without `begin`: it is shown again).
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tinyllm_chat.chat.choices import to_record
from tinyllm_chat.chat.conversation import UNTITLED, Conversation, Message, MessageState, title_of
from tinyllm_chat.chat.cuts import Cut
from tinyllm_chat.chat.errors import TranscriptError, reason_of
from tinyllm_chat.chat.events import ModelInfo, TextDelta
from tinyllm_chat.chat.files import make_private_folder
from tinyllm_chat.chat.journal import Journal, JournalError
from tinyllm_chat.chat.locks import LockFile
from tinyllm_chat.chat.transcript_reader import VERSION, read_conversation

CHAT_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,80}")
HEADER_LIMIT = 65536  # bytes looked at for a listing


@dataclass(frozen=True, slots=True)
class ChatInfo:
    """One line of the list of chats."""

    id: str
    title: str
    modified: float  # seconds since 1970
    model: str | None
    path: Path


@dataclass(frozen=True, slots=True)
class LoadedChat:
    conversation: Conversation
    transcript: Transcript
    warnings: list[str]


class RecordLog(Protocol):
    """What takes records: a journal on disk, or a list."""

    def append(self, record: dict[str, Any]) -> None: ...
    def check(self) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Transcript:
    """The file of one chat. Every method but `sync` and `close` returns at once.

    What cannot be written is told by `check`, `sync` and `close`, all of which raise TranscriptError; nothing is left
    out of a record of several parts for that.
    """

    def __init__(self, chat_id: str, path: Path, journal: RecordLog | None, lock: LockFile | None) -> None:
        self.id = chat_id
        self.path = path
        self._journal = journal
        self._lock = lock

    @property
    def read_only(self) -> bool:
        return self._journal is None

    def header(self, title: str, model: ModelInfo | None, forked_from: str | None = None) -> None:
        record: dict[str, Any] = {"version": VERSION, "id": self.id, "title": title, "created": time.time()}
        if model is not None:
            record["model"] = {"name": model.name, "path": model.path, "fingerprint": model.fingerprint}
        if forked_from is not None:
            record["forked_from"] = forked_from
        self._append("header", record)

    def message(self, message: Message) -> None:
        """Records a message as it was made; an answer's text follows in deltas."""
        record: dict[str, Any] = {"id": message.id, "parent": message.parent, "role": message.role}
        record["created"] = message.created
        if message.role == "assistant":
            record |= {"model": message.model, "fingerprint": message.fingerprint}
            if message.branch is not None:
                record["branch"] = asdict(message.branch)
        else:
            record["content"] = message.content
        if message.attachments:
            record["attachments"] = [asdict(attachment) for attachment in message.attachments]
        self._append("message", record)

    def whole_message(self, message: Message) -> None:
        """Records a message with everything that happened to it."""
        self.message(message)
        if message.role != "assistant":
            return
        for delta in _deltas(message):
            self.delta(delta)
        if message.state is not MessageState.INTERRUPTED:
            self.end(message)

    def whole_chat(self, conversation: Conversation) -> None:
        """Records everything but the header."""
        if conversation.name is not None:
            self.title(conversation.name)
        if conversation.pinned:
            self.pin(True)
        if conversation.system is not None:
            self.message(conversation.system)
        for message in conversation:
            self.whole_message(message)
        for cut in conversation.cuts.values():
            if cut.begin in conversation and cut.end in conversation:  # neither is deleted
                self.cut(cut)
        if conversation.head is not None:
            self.head(conversation.head)

    def resume(self, message: Message) -> None:
        self._append("resume", {"id": message.id, "fingerprint": message.fingerprint})

    def delta(self, delta: TextDelta) -> None:
        record: dict[str, Any] = {"id": delta.message_id, "text": delta.text, "ids": list(delta.ids)}
        if delta.sampling is not None:
            record["sampling"] = delta.sampling
        if delta.reasoning:
            record |= {"reasoning": True, "seconds": round(delta.seconds, 3)}
        if any(delta.choices):
            record["choices"] = [to_record(choice) for choice in delta.choices]
        self._append("delta", record)

    def end(self, message: Message) -> None:
        record: dict[str, Any] = {"id": message.id, "reason": message.reason}
        if message.error is not None:
            record["error"] = message.error
        if message.stats is not None:
            record["stats"] = asdict(message.stats)
        self._append("end", record)

    def head(self, message_id: str | None) -> None:
        """None: nothing is visible, everything was deleted or undone."""
        self._append("head", {"id": message_id})

    def title(self, title: str | None) -> None:
        self._append("title", {"title": title})

    def pin(self, pinned: bool) -> None:
        self._append("pin", {"pinned": pinned})

    def delete(self, message_id: str) -> None:
        self._append("delete", {"id": message_id})

    def restore(self, message_id: str) -> None:
        self._append("restore", {"id": message_id})

    def cut(self, cut: Cut) -> None:
        self._append("cut", asdict(cut))

    def lift(self, cut: Cut) -> None:
        self._append("cut", {"end": cut.end})

    def check(self) -> None:
        """Says if something could not be written meanwhile."""
        if self._journal is not None:
            with _transcript_errors():
                self._journal.check()

    def sync(self) -> None:
        """Returns when everything recorded is on disk."""
        if self._journal is not None:
            with _transcript_errors():
                self._journal.sync()

    def close(self) -> None:
        """Writes what is left and lets other instances write this chat."""
        try:
            if self._journal is not None:
                with _transcript_errors():
                    self._journal.close()
        finally:
            self._journal = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _append(self, kind: str, record: dict[str, Any]) -> None:
        if self._journal is None:
            raise TranscriptError(f"{self.path}: this chat is open for reading only")
        self._journal.append({"type": kind, **record})


class TranscriptStore:
    """All chats of a folder."""

    def __init__(self, folder: Path, exports: Path | None = None) -> None:
        self.folder = folder
        self.exports = exports or folder.parent / "exports"  # where Markdown copies go

    def create(
        self, conversation: Conversation, title: str, model: ModelInfo | None, forked_from: str | None = None
    ) -> Transcript:
        """A new file that holds `conversation` so far. Raises TranscriptError."""
        chat_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        path = self.path_of(chat_id)
        lock = None
        try:
            make_private_folder(self.folder)
            lock = LockFile.acquire(self._lock_path(chat_id))
            journal = Journal(path, new=True)  # the clock may go back, and other instances have the same
        except OSError as error:
            if lock is not None:
                lock.release()
            raise TranscriptError(f"{path}: the chat cannot be saved: {reason_of(error)}") from error
        transcript = Transcript(chat_id, path, journal, lock)
        transcript.header(title, model, forked_from)
        transcript.whole_chat(conversation)
        return transcript

    def open(self, chat_id: str) -> LoadedChat:
        """Reads a chat and owns its file, unless another instance does. Raises TranscriptError."""
        path = self.path_of(chat_id)
        if not path.is_file():
            raise TranscriptError(f"{path}: there is no such chat")
        # First the lock, then the text: nobody may write between the two.
        lock = None
        with contextlib.suppress(OSError):
            lock = LockFile.acquire(self._lock_path(chat_id))
        try:
            conversation, warnings = read_conversation(path)
            journal = Journal(path) if lock is not None else None
        except (OSError, ValueError) as error:
            if lock is not None:
                lock.release()
            raise TranscriptError(f"{path}: the chat cannot be opened: {reason_of(error)}") from error
        return LoadedChat(conversation, Transcript(chat_id, path, journal, lock), warnings)

    def append_to(self, chat_id: str) -> Transcript:
        """A chat's file to add records to, without reading it. Raises TranscriptError."""
        path = self.path_of(chat_id)
        lock = self.lock(chat_id)
        try:
            return Transcript(chat_id, path, Journal(path), lock)
        except OSError as error:
            lock.release()
            raise TranscriptError(f"{path}: the chat cannot be written: {reason_of(error)}") from error

    def lock(self, chat_id: str) -> LockFile:
        """Owns a chat's file. Raises TranscriptError if there is none, and while an instance has it open."""
        path = self.path_of(chat_id)
        if not path.is_file():
            raise TranscriptError(f"{path}: there is no such chat")
        try:
            lock = LockFile.acquire(self._lock_path(chat_id))
        except OSError as error:
            raise TranscriptError(f"{path}: the chat cannot be written: {reason_of(error)}") from error
        if lock is None:
            raise TranscriptError(f"{chat_id}: this chat is open in another window")
        return lock

    def list(self) -> list[ChatInfo]:
        """All chats, the latest first. Files that cannot be read are left out."""
        chats = []
        with contextlib.suppress(OSError):
            for path in self.folder.glob("*.jsonl"):
                if CHAT_ID.fullmatch(path.stem):
                    with contextlib.suppress(OSError):
                        chats.append(chat_info(path))
        return sorted(chats, key=lambda chat: (chat.modified, chat.id), reverse=True)

    def latest(self, besides: str | None = None) -> str | None:
        """Id of the chat that was written last, or of the one before it."""
        found: list[tuple[float, str]] = []
        with contextlib.suppress(OSError):
            for path in self.folder.glob("*.jsonl"):
                if CHAT_ID.fullmatch(path.stem) and path.stem != besides:
                    with contextlib.suppress(OSError):
                        found.append((path.stat().st_mtime, path.stem))
        return max(found)[1] if found else None

    def path_of(self, chat_id: str) -> Path:
        """The file of a chat, be it there or not. Raises TranscriptError for what cannot be the id of one."""
        if not CHAT_ID.fullmatch(chat_id):
            raise TranscriptError(f"{chat_id!r} is not the id of a chat")
        return self.folder / f"{chat_id}.jsonl"

    def _lock_path(self, chat_id: str) -> Path:
        return self.folder / f"{chat_id}.lock"


def chat_info(path: Path) -> ChatInfo:
    """What the header of a transcript says. Raises OSError."""
    with open(path, "rb") as file:
        line = file.readline(HEADER_LIMIT)
    modified = path.stat().st_mtime
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        header = {}
    title, model = header.get("title"), header.get("model")
    name = model.get("name") if isinstance(model, dict) else None
    return ChatInfo(
        path.stem,
        title_of(title) if isinstance(title, str) else UNTITLED,
        modified,
        title_of(name) if isinstance(name, str) else None,
        path,
    )


def _deltas(message: Message) -> Iterator[TextDelta]:
    """An answer in one piece for each stretch of equal sampling, reasoning apart; all text goes into the first."""
    sampling = {span.start: span.values for span in message.sampling_spans}
    starts = sorted({0, message.thought_tokens, *sampling})
    texts = {True: message.reasoning, False: message.content}
    for start, stop in zip(starts, [*starts[1:], len(message.ids)], strict=True):
        thought = start < message.thought_tokens
        seconds = message.thought_seconds if thought and start == 0 else 0.0
        text, texts[thought] = texts[thought], ""
        ids = tuple(message.ids[start:stop])
        choices = tuple(map(message.choices.get, range(start, stop))) if message.choices else ()
        if text or ids or start in sampling:
            yield TextDelta(message.id, text, ids, 0.0, sampling.get(start), thought, seconds, choices)
    for thought, text in texts.items():
        if text:
            yield TextDelta(message.id, text, (), 0.0, None, thought)


@contextlib.contextmanager
def _transcript_errors() -> Any:
    try:
        yield
    except JournalError as error:
        raise TranscriptError(str(error)) from error
