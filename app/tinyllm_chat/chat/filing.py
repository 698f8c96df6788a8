"""The part of a session that knows in which file the chat is: its name, its place among the others, documents of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tinyllm_chat.chat import exports
from tinyllm_chat.chat.backend import Backend
from tinyllm_chat.chat.context_keeping import ContextKeeping
from tinyllm_chat.chat.conversation import Conversation, Message, title_of
from tinyllm_chat.chat.errors import SessionError, TranscriptError
from tinyllm_chat.chat.events import Notice, PathChanged
from tinyllm_chat.chat.kept_cache import cache_file
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.transcript import Transcript, TranscriptStore


@dataclass(frozen=True, slots=True)
class Writing:
    """The answer that is being written. Its conversation may no longer be the visible one."""

    message: Message
    conversation: Conversation
    transcript: Transcript | None


class Filing(ContextKeeping):
    """A part of `Session`. Without a store the chat is in memory only."""

    def __init__(self, backend: Backend, settings: Settings, store: TranscriptStore | None) -> None:
        super().__init__(backend, settings)
        self._store = store
        self._transcript: Transcript | None = None
        self._writing: Writing | None = None

    @abstractmethod
    def _leave(self) -> None: ...

    @property
    def title(self) -> str:
        return self.conversation.title

    @property
    def chat_id(self) -> str | None:
        """The id of this chat's file; None while it has none."""
        return self._transcript.id if self._transcript is not None else None

    @property
    def transcript_path(self) -> Path | None:
        """The file of this chat; None before the first message and for a chat in memory."""
        return self._transcript.path if self._transcript is not None else None

    @property
    def read_only(self) -> bool:
        """True while another instance owns this chat's file. Writing on goes into a copy."""
        return self._transcript is not None and self._transcript.read_only

    def rename(self, title: str) -> None:
        """Gives the chat a title; empty: its first message is the title again."""
        self.conversation.name = title_of(title) if title.strip() else None
        self._record_own(lambda transcript: transcript.title(self.conversation.name))

    def pin(self, pinned: bool) -> None:
        """Marks the chat as one to keep at hand, or not."""
        self.conversation.pinned = pinned
        self._record_own(lambda transcript: transcript.pin(pinned))

    def new_chat(self) -> None:
        """Leaves this chat, on disk as it is, for an empty one. A running answer is stopped."""
        self._leave()
        self.conversation = Conversation()
        self._apply_default_system_prompt()
        self._own_events.append(PathChanged())

    def open_chat(self, chat_id: str) -> None:
        """Shows another chat; read-only if another instance has it. Raises TranscriptError, SessionError."""
        if self._store is None:
            raise SessionError("chats are not kept here")
        if self._transcript is not None and self._transcript.id == chat_id:
            return
        left = self._writing.transcript if self._writing is not None else None
        if left is not None and left.id == chat_id:
            raise SessionError("the answer in that chat is still being stopped: try again")
        loaded = self._store.open(chat_id)
        self._leave()
        self.conversation, self._transcript = loaded.conversation, loaded.transcript
        self._own_events.extend(Notice(warning) for warning in loaded.warnings)
        if loaded.transcript.read_only:
            self._own_events.append(Notice("this chat is open elsewhere: what you write goes into a copy of it"))
        self._own_events.append(PathChanged())

    def chat_before(self) -> str:
        """The chat that was written last, this one left out. Raises SessionError."""
        found = self._store.latest(besides=self.chat_id) if self._store is not None else None
        if found is None:
            raise SessionError("there is no other chat")
        return found

    def export(self, path: Path | None = None, format: str | None = None) -> Path:
        """Writes this chat as a document and returns where. None: beside the chats; as the file's name says.

        Raises SessionError, ExportError.
        """
        if path is None:
            if self._store is None:
                raise SessionError("name the file to save to")
            path = self._store.exports / exports.file_name(self.conversation, format or "md")
        exports.export(self.conversation, path, format)
        return path

    def import_chat(self, path: Path) -> None:
        """Opens the chat in a document, as a new one. Raises SessionError, ExportError, TranscriptError."""
        if self._store is None:
            raise SessionError("chats are not kept here")
        conversation, warnings = exports.read_document(path)
        transcript = self._store.create(conversation, conversation.title, None)
        transcript.close()
        self.open_chat(transcript.id)
        self._own_events.extend(Notice(warning) for warning in warnings)

    # Inside

    def _cache_file(self) -> Path | None:
        """Where the cache of this chat may be kept; None for a chat whose file is not our own."""
        path = self.transcript_path
        return None if path is None or self.read_only else cache_file(path)

    def _leave_cache(self) -> None:
        path = self._cache_file()
        if path is not None:
            self._backend.leave(path)

    def _own_file(self, title: str) -> None:
        """Makes sure that what comes next can be written: a file for a new chat, a copy of one that is read-only."""
        if self._store is None or (self._transcript is not None and not self._transcript.read_only):
            return
        source = self._transcript.id if self._transcript is not None else None
        if source is not None:
            self._own_events.append(Notice("this chat is open elsewhere: you go on in a copy of it", "information"))
        try:
            self._transcript = self._store.create(self.conversation, title, self.model, forked_from=source)
        except TranscriptError as error:
            self._own_events.append(Notice(str(error), "error"))

    def _record(self, write: Callable[[Transcript], None], transcript: Transcript | None = None) -> None:
        transcript = transcript or self._transcript
        if transcript is None:
            return
        try:
            write(transcript)
            transcript.check()
        except TranscriptError as error:
            self._own_events.append(Notice(str(error), "error"))

    def _record_own(self, write: Callable[[Transcript], None]) -> None:
        """Records something about the chat as a whole. A chat without a file takes it along when it gets one."""
        if self.read_only:
            self._own_file(self.title)  # a copy, which has it already
        else:
            self._record(write)
            self._record(lambda transcript: transcript.sync())  # who lists chats reads the file
        self._own_events.append(PathChanged())

    def _record_head(self) -> None:
        self._record(lambda transcript: transcript.head(self.conversation.head))

    def _apply_default_system_prompt(self) -> None:
        prompt = self.settings.value("system_prompt")
        if prompt.strip():
            self.conversation.set_system(prompt)
