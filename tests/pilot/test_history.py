"""The list of chats: found while typing, opened, renamed, pinned, deleted and brought back by key."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input
from tinyllm_chat.chat import history as history_module
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.tui import history as history_screen
from tinyllm_chat.tui.history import HistoryScreen


class Kept:
    """Some chats on disk."""

    def __init__(self, folder: Path) -> None:
        self.store = TranscriptStore(folder / "transcripts")
        self.library = ChatLibrary(self.store, folder / "cache")

    def write(self, question: str, answer: str = "Well.", created: float = 1.7e9) -> str:
        conversation = Conversation()
        asked = conversation.new_message("user", question, None)
        answered = conversation.new_message("assistant", "", asked.id)
        answered.model = "Tiny"
        answered.extend(answer, ())
        answered.finish("eog", None)
        for message in conversation:
            message.created = created
        transcript = self.store.create(conversation, question, None)
        transcript.close()
        return transcript.id

    @property
    def options(self) -> dict[str, Any]:
        return {"store": self.store, "chats": self.library}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def sees(chat: Any, *texts: str) -> Callable[[], bool]:
    def seen() -> bool:
        shown = "\n".join(chat.screen)
        return isinstance(chat.app.screen, HistoryScreen) and all(text in shown for text in texts)

    return seen


def only(chat: Any, text: str, gone: str) -> Callable[[], bool]:
    def seen() -> bool:
        shown = "\n".join(chat.screen)
        return text in shown and gone not in shown

    return seen


async def listing(chat: Any, *texts: str) -> None:
    await chat.press("ctrl+l")
    await chat.until(sees(chat, *texts), f"the list with {texts}")


async def test_a_chat_is_found_by_its_words_and_opened(open_chat, kept):
    kept.write("What is gravity?", "Spacetime is curved.")
    kept.write("What is light?")
    async with open_chat(**kept.options) as chat:
        await listing(chat, "What is gravity?", "What is light?", "2 messages", "Tiny", "2 chats")
        await chat.press(*"spAce")
        await chat.until(only(chat, "Spacetime is curved.", "light"))
        await chat.press("enter")
        await chat.until(lambda: not isinstance(chat.app.screen, HistoryScreen))
        await chat.sees("Spacetime is curved.")
        assert chat.session.title == "What is gravity?"


async def test_what_was_searched_is_in_view_when_its_chat_opens(open_chat, kept):
    conversation = Conversation()
    parent = None
    for number in range(12):
        parent = conversation.new_message("user", f"Question {number}" + "\nand so on" * 8, parent).id
        answer = conversation.new_message("assistant", "", parent)
        answer.extend("Spacetime is curved." if number == 2 else "Well.", ())
        answer.finish("eog", None)
        parent = answer.id
    kept.store.create(conversation, "Questions", None).close()
    async with open_chat(**kept.options) as chat:
        await chat.send("/history curved")
        await chat.until(sees(chat, "1 found"))
        await chat.press("enter")
        await chat.until(lambda: not isinstance(chat.app.screen, HistoryScreen))
        await chat.until(lambda: "Spacetime is curved." in "\n".join(chat.screen))
        assert "Question 11" not in "\n".join(chat.screen)


async def test_the_first_of_the_list_is_the_last_chat(open_chat, kept):
    kept.write("Old", created=1.6e9)
    kept.write("New", created=1.7e9)
    async with open_chat(**kept.options) as chat:
        await listing(chat, "Old", "New")
        await chat.press("enter")
        await chat.until(lambda: chat.session.title == "New")


async def test_one_key_goes_back_to_the_last_chat_and_again_to_the_one_before(open_chat, kept):
    kept.write("Old")
    async with open_chat(**kept.options) as chat:
        await chat.press("alt+l")
        await chat.until(lambda: chat.session.title == "Old")
        await chat.press("alt+l")
        assert any("there is no other chat" in toast for toast in chat.toasts)


async def test_keys_move_and_the_mouse_opens(open_chat, kept):
    for number in range(30):
        kept.write(f"Number {number:02}", created=1.7e9 + number)
    async with open_chat(size=(100, 24), **kept.options) as chat:
        await listing(chat, "Number 29")
        await chat.press("ctrl+end")
        await chat.until(sees(chat, "Number 00"))
        await chat.press("ctrl+home", "down", "enter")
        await chat.until(lambda: chat.session.title == "Number 28")
        await listing(chat, "Number 27", "open here")
        row = next(index for index, line in enumerate(chat.screen) if "Number 27" in line)
        await chat.pilot.click(offset=(20, row))
        await chat.until(lambda: chat.session.title == "Number 27")


async def test_a_chat_is_renamed(open_chat, kept):
    chat_id = kept.write("What is gravity?")
    async with open_chat(**kept.options) as chat:
        await listing(chat, "What is gravity?")
        await chat.press("ctrl+r")
        assert chat.app.screen.query_one(Input).value == "What is gravity?"
        await chat.press("ctrl+u", *"Heavy", "enter")
        await chat.until(only(chat, "Heavy", "gravity"))
        await chat.press("ctrl+r", *"x", "escape")  # thought better of
        await chat.until(sees(chat, "Heavy", "Enter open"))
        assert kept.store.open(chat_id).conversation.title == "Heavy"


async def test_the_chat_that_is_open_is_renamed_too(open_chat, kept):
    async with open_chat(**kept.options) as chat:
        await chat.ask("What is gravity?")
        await listing(chat, "What is gravity?", "open here")
        await chat.press("ctrl+r", "ctrl+u", *"Heavy", "enter")
        await chat.until(only(chat, "Heavy", "gravity"))
        assert chat.session.title == "Heavy"


async def test_a_chat_is_pinned_and_let_go(open_chat, kept):
    kept.write("Old", created=1.6e9)
    kept.write("New", created=1.7e9)
    async with open_chat(**kept.options) as chat:
        await listing(chat, "Old", "New")
        await chat.press("down", "ctrl+t")
        await chat.until(sees(chat, "Pinned"))
        assert [summary.title for summary in kept.library.chats()] == ["Old", "New"]
        await chat.press("ctrl+t")  # the same one is still chosen
        await chat.until(only(chat, "Old", "Pinned"))


async def test_a_deleted_chat_comes_back(open_chat, kept):
    kept.write("Old", created=1.6e9)
    kept.write("New", created=1.7e9)
    async with open_chat(**kept.options) as chat:
        await listing(chat, "Old", "New")
        await chat.press("ctrl+z")
        assert any("Nothing was deleted" in toast for toast in chat.toasts)
        await chat.press("ctrl+d")
        await chat.until(lambda: len(kept.library.chats()) == 1)
        assert any("Deleted New" in toast for toast in chat.toasts)
        await chat.press("escape")
        await listing(chat, "Old")
        await chat.press("ctrl+z")
        await chat.until(lambda: len(kept.library.chats()) == 2)


async def test_the_open_chat_gives_way_to_a_new_one_when_it_is_deleted(open_chat, kept):
    async with open_chat(**kept.options) as chat:
        await chat.ask("What is gravity?")
        await listing(chat, "What is gravity?")
        await chat.press("ctrl+d")
        await chat.until(sees(chat, "No chats yet"))
        assert chat.session.chat_id is None
        await chat.press("escape")
        await chat.until(lambda: "gravity" not in chat.text)


async def test_a_chat_of_another_window_is_marked_and_kept(open_chat, kept):
    chat_id = kept.write("Mine")
    kept.write("Other")
    elsewhere = kept.store.open(chat_id).transcript
    async with open_chat(**kept.options) as chat:
        await listing(chat, "Mine", "open elsewhere")
        await chat.press(*"Mine")
        await chat.until(only(chat, "Mine", "Other"))
        await chat.press("ctrl+d")
        assert any("open in another window" in toast for toast in chat.toasts)
        assert len(kept.library.chats()) == 2
    elsewhere.close()


async def test_a_damaged_chat_is_listed_with_the_reason(open_chat, kept):
    kept.write("Fine")
    (kept.store.folder / "newer.jsonl").write_text('{"type":"header","version":99}\n')
    async with open_chat(**kept.options) as chat:
        await listing(chat, "Fine", "newer", "format 99")
        await chat.press(*"Fine")
        await chat.until(only(chat, "Fine", "format 99"))
        await chat.press(*["backspace"] * 4)
        await chat.until(sees(chat, "format 99"))


async def test_nothing_found_and_nothing_there_say_so(open_chat, kept):
    async with open_chat(**kept.options) as chat:
        await listing(chat, "No chats yet")
        await chat.press("enter", "ctrl+r", "ctrl+t", "ctrl+d")  # nothing to do it to
        kept.write("Fine")
        await chat.press(*"xyz")
        await chat.until(sees(chat, "No chat has all of these words"))
        await chat.press("escape")
        assert not isinstance(chat.app.screen, HistoryScreen)


async def test_nothing_there_is_said_only_when_everything_was_looked_at(open_chat, kept, monkeypatch):
    kept.write("Fine")
    may_look, update = threading.Event(), kept.library.update

    def slow(*arguments: Any) -> None:
        may_look.wait(60)
        update(*arguments)

    monkeypatch.setattr(kept.library, "update", slow)
    async with open_chat(**kept.options) as chat:
        try:
            await listing(chat, "Search in all chats")
            await chat.until(lambda: chat.app.screen._found_for == "")
            assert not sees(chat, "No chats yet")()
        finally:
            may_look.set()
        await chat.until(sees(chat, "Fine"))


async def test_words_may_come_with_the_command(open_chat, kept):
    kept.write("What is gravity?")
    kept.write("What is light?")
    async with open_chat(**kept.options) as chat:
        await chat.send("/history light")
        await chat.until(lambda: isinstance(chat.app.screen, HistoryScreen))
        await chat.until(only(chat, "What is light?", "gravity"))


async def test_more_chats_come_as_one_goes_down(open_chat, kept, monkeypatch):
    monkeypatch.setattr(history_screen, "PAGE", 10)
    monkeypatch.setattr(history_module, "BATCH", 4)
    for number in range(25):
        kept.write(f"Number {number:02}", created=1.7e9 + number)
    kept.library.update()
    async with open_chat(**kept.options) as chat:
        await listing(chat, "Number 24")
        for _ in range(3):
            await chat.press("ctrl+end")
            await chat.pilot.pause(0.05)
        await chat.until(sees(chat, "Number 00"))


async def test_an_index_that_cannot_be_used_says_so(open_chat, kept, monkeypatch):
    from tinyllm_chat.chat.errors import HistoryError

    def fail(*_arguments: Any) -> None:
        raise HistoryError("history.sqlite3: another instance is writing it")

    monkeypatch.setattr(kept.library.index, "update", fail)
    async with open_chat(**kept.options) as chat:
        await listing(chat, "another instance is writing it")


async def test_where_no_chats_are_kept_there_is_no_list(open_chat):
    async with open_chat() as chat:
        await chat.press("ctrl+l")
        assert any("not kept here" in toast for toast in chat.toasts)


@pytest.mark.parametrize("size", [(60, 20), (100, 30), (240, 60)])
async def test_titles_of_any_kind_fit_any_width(open_chat, kept, size):
    kept.write("我想知道天气怎么样" * 6, "天气 " * 100)
    kept.write("👩‍👩‍👧‍👦 family é́ שלום")
    async with open_chat(size=size, **kept.options) as chat:
        await listing(chat, "我想")
        assert all(len(line) <= size[0] for line in chat.screen)
        await chat.pilot.resize_terminal(80, 24)
        await chat.until(sees(chat, "我想"))


async def test_what_a_chat_is_about_can_be_read_in_a_narrow_terminal(open_chat, kept):
    kept.write("What is gravity, really?")
    async with open_chat(size=(60, 20), **kept.options) as chat:
        await listing(chat, "What is gravity, re", "Tiny")


async def test_what_is_found_when_the_list_is_closed_already_is_let_go(open_chat, kept):
    """The screen is still being taken apart then, and half of it is gone."""
    kept.write("a tower")
    async with open_chat(**kept.options) as chat:
        await listing(chat, "a tower")
        screen = chat.app.screen
        screen.dismiss(None)
        assert screen.is_attached
        screen._found("", [], True, 0, set())
        assert [hit.chat.title for hit in screen._hits] == ["a tower"]
