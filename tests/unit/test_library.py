"""Chats renamed, pinned, deleted and brought back; chats named by what people remember of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.errors import ChatError, SessionError, TranscriptError
from tinyllm_chat.chat.keeper import Keeper
from tinyllm_chat.chat.library import TRASH_SECONDS, ChatLibrary
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.transcript import TranscriptStore


class Shelf:
    def __init__(self, folder: Path) -> None:
        self.store = TranscriptStore(folder / "transcripts")
        self.now = 1.8e9
        self.library = ChatLibrary(self.store, folder / "cache", lambda: self.now)

    def write(self, title: str) -> str:
        conversation = Conversation()
        conversation.new_message("user", title, None)
        transcript = self.store.create(conversation, title, None)
        transcript.close()
        return transcript.id

    @property
    def titles(self) -> set[str]:
        self.library.update()
        return {chat.title for chat in self.library.chats()}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_chat_is_renamed_and_pinned_without_being_opened(shelf: Shelf) -> None:
    chat = shelf.write("What is gravity?")
    shelf.library.rename(chat, "  Heavy \n things\x1b ")
    shelf.library.pin(chat, True)
    assert shelf.titles == {"Heavy things"}
    assert shelf.library.chats()[0].pinned
    assert shelf.store.open(chat).conversation.title == "Heavy things"


def test_an_empty_title_is_the_first_message_again(shelf: Shelf) -> None:
    chat = shelf.write("What is gravity?")
    shelf.library.rename(chat, "Things")
    shelf.library.rename(chat, " ")
    assert shelf.titles == {"What is gravity?"}


def test_what_was_deleted_is_brought_back_as_it_was(shelf: Shelf) -> None:
    chat = shelf.write("one")
    shelf.write("two")
    before = (shelf.store.folder / f"{chat}.jsonl").read_bytes()
    shelf.library.delete(chat)
    assert shelf.titles == {"two"}
    assert [deleted.id for deleted in shelf.library.deleted()] == [chat] == shelf.library.deleted_here
    shelf.library.restore(chat)
    assert shelf.titles == {"one", "two"}
    assert (shelf.store.folder / f"{chat}.jsonl").read_bytes() == before
    assert shelf.library.deleted() == shelf.library.deleted_here == []


def test_the_kept_cache_of_what_was_deleted_is_gone(shelf: Shelf) -> None:
    chat = shelf.write("one")
    kept = shelf.store.folder / f"{chat}.kv"
    kept.touch()
    shelf.library.delete(chat)
    assert not kept.exists()


def test_what_was_deleted_goes_after_thirty_days(shelf: Shelf) -> None:
    chat = shelf.write("one")
    shelf.library.delete(chat)
    shelf.now += TRASH_SECONDS - 1
    shelf.library.update()
    assert len(shelf.library.deleted()) == 1
    shelf.now += 2
    shelf.library.update()
    assert shelf.library.deleted() == []
    with pytest.raises(TranscriptError, match="no such chat was deleted"):
        shelf.library.restore(chat)


def test_a_chat_that_is_there_is_not_overwritten_by_a_deleted_one(shelf: Shelf) -> None:
    chat = shelf.write("one")
    shelf.library.delete(chat)
    path = shelf.store.folder / f"{chat}.jsonl"
    path.write_text("another")
    with pytest.raises(TranscriptError, match="there is a chat of that id"):
        shelf.library.restore(chat)
    assert path.read_text() == "another"
    assert len(shelf.library.deleted()) == 1


def test_a_chat_that_is_open_elsewhere_is_seen_and_left_alone(shelf: Shelf) -> None:
    chat = shelf.write("one")
    assert shelf.library.open_chats() == set()
    opened = shelf.store.open(chat).transcript
    assert shelf.library.open_chats() == {chat}
    for change in (
        lambda: shelf.library.rename(chat, "two"),
        lambda: shelf.library.pin(chat, True),
        lambda: shelf.library.delete(chat),
    ):
        with pytest.raises(TranscriptError, match="open in another window"):
            change()
    opened.close()
    assert shelf.library.open_chats() == set()
    assert shelf.titles == {"one"}


@pytest.mark.parametrize("chat", ["nothing", "../etc/passwd", "", "a\nb"])
def test_a_chat_that_is_not_there_is_refused(shelf: Shelf, chat: str) -> None:
    shelf.write("one")
    for change in (shelf.library.delete, shelf.library.restore, lambda chat: shelf.library.rename(chat, "x")):
        with pytest.raises(TranscriptError):
            change(chat)


def test_a_chat_is_named_by_its_id_its_beginning_or_its_title(shelf: Shelf) -> None:
    gravity, light = shelf.write("What is gravity?"), shelf.write("Is light a wave?")
    assert shelf.library.resolve(gravity) == gravity
    different = next(n for n in range(len(gravity)) if gravity[n] != light[n])
    assert shelf.library.resolve(light[: different + 1]) == light
    progress: list[tuple[int, int]] = []
    assert shelf.library.resolve("WAVE light", lambda *counts: progress.append(counts)) == light
    assert progress == [(0, 2), (2, 2)]  # two chats were not known yet
    with pytest.raises(TranscriptError, match=r"2 chats match: .*What is gravity\?"):
        shelf.library.resolve("is")
    with pytest.raises(TranscriptError, match="no chat has that id or title"):
        shelf.library.resolve("magnets")
    for text in ("", "\x00", "../x"):
        with pytest.raises(ChatError):
            shelf.library.resolve(text)


# The chat that is open here


def test_the_open_chat_is_changed_through_its_session(shelf: Shelf) -> None:
    backend = ScriptedBackend(["Well."], automatic=False)
    session = Session(backend, shelf.store, Settings())
    keeper = Keeper(session, shelf.library)
    assert keeper.chat_id is None
    session.open_model("m.gguf")
    backend.finish_opening()
    session.drain()
    session.send("What is gravity?")
    chat = keeper.chat_id
    assert chat is not None
    keeper.rename_chat(chat, "Heavy things")
    keeper.pin_chat(chat, True)
    assert shelf.titles == {"Heavy things"}
    assert session.conversation.pinned
    with pytest.raises(SessionError, match="stop it first"):
        keeper.delete_chat(chat)
    backend.finish()
    session.drain()
    keeper.delete_chat(chat)
    assert keeper.chat_id is None
    assert len(session.conversation) == 0
    assert shelf.titles == set()
    shelf.library.restore(chat)
    other = shelf.write("other")
    keeper.rename_chat(other, "another")
    assert shelf.titles == {"Heavy things", "another"}
    session.close()
