"""A session over a scripted backend."""

from __future__ import annotations

from typing import Any

from tinyllm_chat.chat.conversation import Message
from tinyllm_chat.chat.events import (
    Event,
)
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.transcript import TranscriptStore


class Chat:
    """A session over a scripted backend, with its model open."""

    def __init__(
        self,
        store: TranscriptStore | None,
        *answers: Any,
        settings: Settings | None = None,
        automatic: bool = True,
        **options: Any,
    ) -> None:
        self.backend = ScriptedBackend(answers or ("Hello.",), automatic=automatic, **options)
        self.session = Session(self.backend, store, settings or Settings())
        self.session.open_model("model.gguf")
        self.backend.finish_opening()
        self.events = self.session.drain()

    def say(self, text: str) -> list[Event]:
        self.session.send(text)
        return self.session.drain()

    def seen(self) -> list[tuple[str, str]]:
        return shown(self.session.conversation.path())


def shown(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


def asked(chat: Chat, index: int = -1) -> list[tuple[str, str]]:
    """What the model saw."""
    return [(message.role, message.content) for message in chat.backend.requests[index].messages]


def on_disk(store: TranscriptStore, session: Session) -> list[tuple[str, str]]:
    """What another program reads from the file at this moment."""
    assert session.transcript_path is not None
    loaded = store.open(session.transcript_path.stem)
    loaded.transcript.close()
    return shown(loaded.conversation.path())
