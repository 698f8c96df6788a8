"""The choice of a model: where each was found, what it needs, whether it runs; files and addresses that are typed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from textual.widgets import Input
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.describing import ModelFacts
from tinyllm_chat.chat.errors import DownloadError
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.tui.models import ModelChoice
from tinyllm_chat.tui.picker import ModelScreen

FACTS = {
    "/small": ModelFacts("llama", "Q4_1", 135_000_000, 8192, 287_000_000),
    "/large": ModelFacts("qwen2", "Q4_K", 70_000_000_000, 8192, 45_000_000_000, tight=True),
    "/broken": ModelFacts(problem="not a GGUF file:\x1b it ends after 12 of 24 bytes"),
}


class Models:
    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.remembered = threading.Event()

    def choices(self) -> list[ModelChoice]:
        return [
            ModelChoice("SmolLM2-135M", "98.4 MB", "/small", "opened lately"),
            ModelChoice("broken", "1.2 GB", "/broken", "of LM Studio"),
            ModelChoice("llama3:70b", "42.5 GB", "/large", "of Ollama"),
            ModelChoice("smollm2", "SmolLM2 135M Instruct, 98.4 MB to download"),
        ]

    def describe(self, path: str) -> ModelFacts:
        return FACTS.get(path, ModelFacts())

    def find(self, name: str, progress: Any) -> str:
        if name.startswith("/"):
            return name
        self.fetched.append(name)
        if name.endswith("missing.gguf"):
            raise DownloadError(f"{name}: the repository has no such file")
        return "/fetched.gguf"

    def opened(self, path: str) -> None:
        self.remembered.set()


async def choosing(chat: Any, *texts: str) -> None:
    def seen() -> bool:
        shown = "\n".join(chat.screen)
        return isinstance(chat.app.screen, ModelScreen) and all(text in shown for text in texts)

    await chat.until(seen, f"a choice with {texts}")


async def test_each_model_says_what_it_is_and_needs(open_chat):
    async with open_chat(model=None, models=Models()) as chat:
        await choosing(chat, "opened lately", "Q4_1", "llama", "98.4 MB", "needs 287 MB", "runs")
        await choosing(chat, "of Ollama", "needs 45.0 GB", "too large", "to download")
        await choosing(chat, "does not run: not a GGUF file:␛ it ends after 12 of 24 bytes")


async def test_typing_searches_names_and_places(open_chat):
    async with open_chat(model=None, models=Models()) as chat:
        await choosing(chat, "broken")
        await chat.press(*"oLLam")
        await choosing(chat, "llama3:70b")
        assert "broken" not in "\n".join(chat.screen)
        await chat.press("enter")
        await chat.until(lambda: chat.backend.opened == ["/large"])


async def test_the_path_of_a_file_is_opened(open_chat):
    async with open_chat(model=None, models=Models()) as chat:
        await choosing(chat, "broken")
        chat.app.screen.query_one(Input).value = "/some/other.gguf"
        await chat.press("enter")
        await chat.until(lambda: chat.backend.opened == ["/some/other.gguf"])


async def test_an_address_of_the_hub_is_downloaded_and_opened(open_chat):
    models = Models()
    async with open_chat(model=None, models=models) as chat:
        await choosing(chat, "broken")
        chat.app.screen.query_one(Input).value = "hf:owner/name/file.gguf"
        await chat.press("enter")
        await chat.until(lambda: chat.backend.opened == ["/fetched.gguf"])
        assert models.fetched == ["hf:owner/name/file.gguf"]


async def test_the_command_downloads_as_well_and_says_what_is_wrong(open_chat):
    models = Models()
    async with open_chat(models=models) as chat:
        await chat.send("/model hf:owner/name/missing.gguf")
        await chat.sees("the repository has no")
        assert len(chat.backend.opened) == 1


@pytest.mark.parametrize("name", ["/broken", "hf:owner/name/missing.gguf"])
async def test_the_model_in_use_stays_where_another_cannot_take_its_place(open_chat, name):
    async with open_chat("Still here.", models=Models()) as chat:
        await chat.send(f"/model {name}")
        await chat.until(lambda: "▌" in chat.text and chat.app.pane.progress is None)
        assert len(chat.backend.opened) == 1
        await chat.ask("Are you there?")
        await chat.sees("Still here.")


async def test_a_name_opens_what_it_means_on_the_command_line(open_chat):
    models = Models()
    async with open_chat(models=models) as chat:
        await chat.send("/model smollm2")
        await chat.until(lambda: chat.backend.opened[-1] == "/fetched.gguf")
        assert models.fetched == ["smollm2"]


async def test_who_chooses_no_model_is_told_how_to_get_one(open_chat):
    async with open_chat(model=None, models=Models()) as chat:
        await choosing(chat, "broken")
        await chat.press("escape")
        await chat.sees("▌ No model is open")
        await chat.sees("▌ /model")


async def test_that_no_model_is_open_is_said_once_and_while_it_is_so(open_chat):
    async with open_chat(model=None, models=Models()) as chat:
        for _ in range(2):
            await choosing(chat, "broken")
            await chat.press("escape")
            await chat.sees("▌ No model is open")
            await chat.press("f2")
        assert chat.text.count("No model is open") == 1
        await choosing(chat, "broken")
        await chat.press("enter")
        await chat.until(lambda: chat.backend.opened)
        assert "No model is open" not in chat.text


async def test_what_was_opened_is_remembered(open_chat):
    models = Models()
    async with open_chat(models=models) as chat:
        await chat.until(models.remembered.is_set)


async def test_another_model_goes_on_with_the_chat(open_chat):
    async with open_chat("First.", "Second.", models=Models()) as chat:
        await chat.ask("One?")
        await chat.press("f2")
        await choosing(chat, "broken")
        await chat.press("enter")
        await chat.until(lambda: chat.backend.opened[-1] == "/small")
        chat.backend.finish_opening()
        await chat.until(lambda: chat.session.model is not None)
        await chat.until(lambda: any("2 messages will be read again" in toast for toast in chat.toasts))
        await chat.ask("Two?")
        assert [message.content for message in chat.backend.requests[-1].messages] == ["One?", "First.", "Two?"]
        assert "One?" in chat.text


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (240, 60)])
async def test_it_fits_any_terminal(open_chat, size):
    async with open_chat(model=None, models=Models(), size=size) as chat:
        await choosing(chat, "SmolLM2-135M", "Enter open", "runs")
        await chat.press("end")
        await choosing(chat, "smollm2")
        await chat.pilot.resize_terminal(100, 30)
        await choosing(chat, "llama3:70b")


async def test_chats_are_found_from_the_start_screen(open_chat, tmp_path):
    store = TranscriptStore(tmp_path / "transcripts")
    conversation = Conversation()
    conversation.new_message("user", "What is gravity?", None)
    store.create(conversation, "What is gravity?", None).close()
    async with open_chat(
        model=None, models=Models(), store=store, chats=ChatLibrary(store, tmp_path / "state")
    ) as chat:
        await choosing(chat, "Ctrl+L chats")
        await chat.press("ctrl+l")
        await chat.until(lambda: "What is gravity?" in "\n".join(chat.screen))
        await chat.press("enter")
        await chat.until(lambda: chat.session.title == "What is gravity?")
        await choosing(chat, "broken")
        await chat.press("enter")
        await chat.until(lambda: chat.backend.opened == ["/small"])
        await chat.sees("What is gravity?")


async def test_what_is_found_when_the_list_is_closed_already_is_let_go(open_chat):
    async with open_chat(model=None, models=Models()) as chat:
        await choosing(chat, "broken")
        screen = chat.app.screen
        screen.dismiss(None)
        assert screen.is_attached
        screen._found([])
        assert screen._choices
