"""The chats that are kept: found, renamed, pinned, thrown away and brought back."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.errors import TranscriptError, reason_of
from tinyllm_chat.chat.files import make_private_folder, sync_folder
from tinyllm_chat.chat.finding import Query
from tinyllm_chat.chat.history import ChatSummary, HistoryIndex, Hit
from tinyllm_chat.chat.kept_cache import cache_file
from tinyllm_chat.chat.locks import is_held
from tinyllm_chat.chat.transcript import CHAT_ID, Transcript, TranscriptStore, chat_info
from tinyllm_chat.chat.transcript_reader import read_conversation

TRASH = "trash"  # folder beside the transcripts
TRASH_SECONDS = 30 * 86400.0  # that a deleted chat is kept
_DELETED = re.compile(rf"(\d{{1,12}})-({CHAT_ID.pattern})\.jsonl")


@dataclass(frozen=True, slots=True)
class DeletedChat:
    id: str
    deleted: float  # seconds since 1970
    path: Path

    @property
    def title(self) -> str:
        """As it was called at first; the id where the file cannot be read."""
        try:
            return chat_info(self.path).title
        except OSError:
            return self.id


class ChatLibrary:
    """All chats of a store. Methods may be called on any thread; all raise ChatError with one line."""

    def __init__(self, store: TranscriptStore, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """`folder`: where the index is kept."""
        self.index = HistoryIndex(store.folder, folder)
        self.deleted_here: list[str] = []  # ids in the order they were deleted, for undo
        self._store = store
        self._clock = clock

    # What there is

    def update(
        self,
        progress: Callable[[int, int], None] = lambda done, total: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Brings the index up to date, and lets go of what was deleted long ago."""
        self._empty_trash()
        self.index.update(progress, cancelled)

    def chats(self, limit: int = -1, offset: int = 0) -> list[ChatSummary]:
        return self.index.chats(limit, offset)

    def search(self, text: str, limit: int = 50) -> list[Hit]:
        return self.index.search(text, limit)

    def count(self) -> int:
        return self.index.count()

    def open_chats(self) -> set[str]:
        """Ids of the chats that a running instance, this one too, has open for writing."""
        found = set()
        with contextlib.suppress(OSError), os.scandir(self._store.folder) as entries:
            for entry in entries:
                chat, _, kind = entry.name.rpartition(".")
                if kind == "lock" and CHAT_ID.fullmatch(chat) and is_held(Path(entry.path)):
                    found.add(chat)
        return found

    def resolve(self, text: str, progress: Callable[[int, int], None] = lambda done, total: None) -> str:
        """The id of the one chat that is meant: by id, the beginning of one, or words of its title.

        For the latter all chats are read that are new or changed; `progress` counts them.
        """
        ids = self._ids()
        if text in ids:
            return text
        found = {chat: "" for chat in sorted(ids) if text and chat.startswith(text)}
        if not found and (query := Query(text)):
            self.index.update(progress)
            found = {chat.id: chat.title for chat in self.chats() if query.answered_by(chat.title)}
        if not found:
            raise TranscriptError(f"{text!r}: no chat has that id or title; tinyllm-chat chats lists them")
        if len(found) > 1:
            shown = ", ".join(f"{chat} {title}".rstrip() for chat, title in list(found.items())[:3])
            more = ", ..." if len(found) > 3 else ""
            raise TranscriptError(f"{text!r}: {len(found)} chats match: {shown}{more}")
        return next(iter(found))

    def read(self, chat_id: str) -> Conversation:
        """What is in a chat, be it open or not."""
        path = self._store.path_of(chat_id)
        try:
            return read_conversation(path)[0]
        except (OSError, ValueError) as error:
            raise TranscriptError(f"{path}: the chat cannot be read: {reason_of(error)}") from error

    def add(self, conversation: Conversation) -> str:
        """Keeps a conversation as a new chat and returns its id."""
        transcript = self._store.create(conversation, conversation.title, None)
        transcript.sync()
        transcript.close()
        return transcript.id

    # Changing a chat that is not open

    def rename(self, chat_id: str, title: str) -> None:
        """Gives a chat a title; empty: its first message is the title again."""
        with self._opened(chat_id) as transcript:
            transcript.title(title if title.strip() else None)

    def pin(self, chat_id: str, pinned: bool) -> None:
        with self._opened(chat_id) as transcript:
            transcript.pin(pinned)

    def delete(self, chat_id: str) -> None:
        """Moves a chat to the trash, where it stays for 30 days."""
        path, trash = self._store.path_of(chat_id), self._store.folder / TRASH
        lock = self._store.lock(chat_id)
        try:
            with _named(path, "cannot be deleted"):
                make_private_folder(trash)
                os.rename(path, trash / f"{int(self._clock())}-{chat_id}.jsonl")
            with contextlib.suppress(OSError):
                cache_file(path).unlink()
        finally:
            lock.release()
        _sync(trash, path.parent)
        self.deleted_here.append(chat_id)

    def restore(self, chat_id: str) -> None:
        """Brings a deleted chat back."""
        path = self._store.path_of(chat_id)
        found = next((chat for chat in self.deleted() if chat.id == chat_id), None)
        if found is None:
            raise TranscriptError(f"{chat_id}: no such chat was deleted in the last 30 days")
        with _named(path, "cannot be brought back"):
            if path.exists():
                raise FileExistsError(17, "there is a chat of that id", str(path))
            os.rename(found.path, path)
        _sync(path.parent, found.path.parent)
        if chat_id in self.deleted_here:
            self.deleted_here.remove(chat_id)

    def deleted(self) -> list[DeletedChat]:
        """What can be brought back, the latest first."""
        chats = []
        with contextlib.suppress(OSError):
            for path in (self._store.folder / TRASH).iterdir():
                if match := _DELETED.fullmatch(path.name):
                    chats.append(DeletedChat(match[2], float(match[1]), path))
        return sorted(chats, key=lambda chat: (chat.deleted, chat.id), reverse=True)

    # Inside

    def _empty_trash(self) -> None:
        for chat in self.deleted():
            if chat.deleted < self._clock() - TRASH_SECONDS:
                with contextlib.suppress(OSError):
                    chat.path.unlink()

    def _ids(self) -> set[str]:
        with contextlib.suppress(OSError):
            names = (name.rpartition(".") for name in os.listdir(self._store.folder))
            return {chat for chat, _, kind in names if kind == "jsonl" and CHAT_ID.fullmatch(chat)}
        return set()

    @contextlib.contextmanager
    def _opened(self, chat_id: str) -> Iterator[Transcript]:
        transcript = self._store.append_to(chat_id)
        try:
            yield transcript
            transcript.sync()
        finally:
            transcript.close()


def _sync(*folders: Path) -> None:
    for folder in folders:
        sync_folder(folder)


@contextlib.contextmanager
def _named(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TranscriptError(f"{path}: the chat {what}: {reason_of(error)}") from error
