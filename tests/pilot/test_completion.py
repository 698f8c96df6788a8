"""Slash commands and what they take, completed with Tab."""

from __future__ import annotations

import pytest
from tinyllm_chat.chat.describing import ModelFacts
from tinyllm_chat.tui.actions import COMMANDS
from tinyllm_chat.tui.models import ModelChoice


def shown(chat) -> list[str]:
    return [suggestion.text for suggestion in chat.app.writing.suggestions.shown]


@pytest.mark.parametrize(
    ("draft", "texts"),
    [
        ("/sy", ["/system "]),
        ("/min", ["/min_p "]),
        ("/repeat-l", ["/repeat_last_n "]),
        ("/system x", []),
        ("/nothing x", []),
        ("//sy", []),
        ("sy", []),
        ("/think o", ["/think on", "/think off"]),
        ("/think off", []),
        ("/THINK A", ["/think auto"]),
        ("/set min", ["/set min_p "]),
        ("/set ignore_eos t", ["/set ignore_eos true"]),
        ("/ignore_eos f", ["/set ignore_eos false"]),
        ("/set nothing ", []),
        ("/set top_k ", []),
        ("/theme tinyllm-l", ["/theme tinyllm-light"]),
    ],
)
async def test_what_is_suggested(open_chat, draft, texts):
    async with open_chat() as chat:
        await chat.type(draft)
        assert [text for text in shown(chat) if not text.startswith(("/think-", "/system_"))] == texts


async def test_tab_completes_and_goes_on_to_the_next(open_chat):
    async with open_chat() as chat:
        await chat.type("/think o")
        await chat.press("tab")
        assert chat.app.prompt.text == "/think on"
        await chat.press("tab")
        assert chat.app.prompt.text == "/think off"
        await chat.press("tab")
        assert chat.app.prompt.text == "/think on"
        await chat.press("enter")
        assert chat.session.settings.value("think") == "on"


async def test_models_that_are_here_are_suggested(open_chat):
    class Models:
        def choices(self):
            return [ModelChoice("a", "", "/models/a.gguf"), ModelChoice("b", "to download")]

        def find(self, name, progress):
            return name

        def describe(self, path):
            return ModelFacts()

        def opened(self, path):
            pass

    async with open_chat(models=Models()) as chat:
        await chat.type("/model ")
        await chat.until(lambda: shown(chat) == ["/model /models/a.gguf"])
        await chat.press("tab", "enter")
        await chat.until(lambda: chat.backend.opened[-1] == "/models/a.gguf")


def test_every_command_and_setting_is_found_by_its_beginning():
    for entry in COMMANDS.actions:
        for name in entry.slash:
            assert any(found.shown == entry.usage for found in COMMANDS.suggestions(f"/{name}", None)), name
    for name in COMMANDS.settings:
        assert COMMANDS.suggestions(f"/{name}", None), name
