"""Changes to any chat, be it the one that is open here or another."""

from __future__ import annotations

from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.session import Session


class Keeper:
    """Writes through the session where it owns the chat, through the library otherwise. All raise ChatError."""

    def __init__(self, session: Session, library: ChatLibrary) -> None:
        self._session = session
        self._library = library

    @property
    def chat_id(self) -> str | None:
        """The chat that is open here."""
        return self._session.chat_id

    def rename_chat(self, chat_id: str, title: str) -> None:
        """Empty: its first message is the title again."""
        if self._is_ours(chat_id):
            self._session.rename(title)
        else:
            self._library.rename(chat_id, title)

    def pin_chat(self, chat_id: str, pinned: bool) -> None:
        if self._is_ours(chat_id):
            self._session.pin(pinned)
        else:
            self._library.pin(chat_id, pinned)

    def delete_chat(self, chat_id: str) -> None:
        """Moves a chat to the trash; the one that is open here gives way to a new one."""
        if self._is_ours(chat_id):
            if self._session.busy:
                raise SessionError("an answer is being written in this chat: stop it first")
            self._session.new_chat()
        self._library.delete(chat_id)

    def _is_ours(self, chat_id: str) -> bool:
        return chat_id == self._session.chat_id and not self._session.read_only
