"""The settings screen: every setting with its origin, changed in place, saved, taken back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList
from tinyllm_chat.chat.settings import SCHEMA, SESSION
from tinyllm_chat.tui.settings_screen import SettingsScreen


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text("# mine\n[sampling]\ntop_k = 7  # seven\n")
    return file


async def opened(chat, name: str) -> SettingsScreen:
    await chat.send(f"/settings {name}")
    assert isinstance(chat.app.screen, SettingsScreen)
    return chat.app.screen


def row_of(chat, name: str) -> str:
    return next(line for line in chat.screen if line.strip().startswith(name + " "))


def kept(config: Path) -> dict:
    return tomllib.loads(config.read_text())


async def test_all_settings_are_listed_with_value_and_origin(open_chat, config):
    async with open_chat(size=(100, 90), settings={"top_k": 7}, config=config) as chat:
        await chat.press("f12")
        shown = "\n".join(chat.screen)
        assert all(f" {name} " in shown for name in SCHEMA)
        assert row_of(chat, "top_k").split() == ["top_k", "7", "config.toml"]
        assert row_of(chat, "temperature").split() == ["temperature", "0.8", "built-in"]
        assert "Model to open when none is named" in shown
        await chat.press("escape")
        assert not isinstance(chat.app.screen, SettingsScreen)


async def test_a_number_is_written_in_place_for_this_session(open_chat, config):
    async with open_chat(settings={"top_k": 7}, config=config) as chat:
        screen = await opened(chat, "top-k")
        await chat.press("enter", *"25", "enter")
        assert chat.session.sampling["top_k"].value == 25
        assert row_of(chat, "top_k").split() == ["top_k", "25", "this", "session"]
        assert isinstance(screen.focused, OptionList)
        assert kept(config)["sampling"]["top_k"] == 7


async def test_a_value_that_is_refused_says_what_is_expected_and_can_be_put_right(open_chat, config):
    async with open_chat(config=config) as chat:
        screen = await opened(chat, "top_p")
        await chat.press("enter", *"9", "enter")
        assert "top_p: expected a number from 0 to 1" in "\n".join(chat.screen)
        assert isinstance(screen.focused, Input)
        await chat.press("escape")
        assert chat.session.settings.value("top_p") == 0.95
        assert "expected a number" not in "\n".join(chat.screen)
        assert isinstance(chat.app.screen, SettingsScreen)


async def test_arrows_turn_numbers_and_choices(open_chat, config):
    async with open_chat(config=config) as chat:
        await opened(chat, "temperature")
        await chat.press("right", "right", "left")
        assert chat.session.sampling["temperature"].value == 0.85
        await chat.press("escape")
        await opened(chat, "think")
        await chat.press("enter", "right")
        assert chat.session.settings.value("think") == "off"
        await chat.press("escape")
        await opened(chat, "show_panels")
        await chat.press("right")
        assert chat.session.settings.value("show_panels") is False
        await chat.press("escape")
        assert "KV cache" not in "\n".join(chat.screen)


async def test_saving_writes_the_file_and_keeps_what_stands_there(open_chat, config):
    async with open_chat(settings={"top_k": 7}, config=config) as chat:
        await opened(chat, "top_k")
        await chat.press("right", "ctrl+s")
        assert row_of(chat, "top_k").split() == ["top_k", "12", "config.toml"]
        assert config.read_text() == "# mine\n[sampling]\ntop_k = 12  # seven\n"
        assert chat.toasts == ["Saved top_k"]
        assert SESSION not in chat.session.settings.origin("top_k")


async def test_reset_takes_back_the_session_then_the_file(open_chat, config):
    async with open_chat(settings={"top_k": 7}, config=config) as chat:
        await opened(chat, "top_k")
        await chat.press("right", "ctrl+r")
        assert row_of(chat, "top_k").split() == ["top_k", "7", "config.toml"]
        await chat.press("ctrl+r")
        assert row_of(chat, "top_k").split() == ["top_k", "40", "built-in"]
        assert "top_k" not in kept(config)["sampling"]
        await chat.press("ctrl+r")
        assert "that is the built-in value" in "\n".join(chat.screen)


async def test_a_file_that_was_changed_meanwhile_is_not_overwritten(open_chat, config):
    async with open_chat(settings={"top_k": 7}, config=config) as chat:
        await opened(chat, "top_k")
        config.write_text("[sampling]\ntop_k = 99\n")
        await chat.press("right", "ctrl+s")
        assert "top_k was changed there meanwhile, to 99" in chat.app.screen._error
        assert row_of(chat, "top_k").split() == ["top_k", "99", "config.toml"]
        assert kept(config)["sampling"]["top_k"] == 99


async def test_letters_search(open_chat, config):
    async with open_chat(config=config) as chat:
        await chat.press("f12")
        await chat.press(*"penalty")
        shown = "\n".join(chat.screen)
        assert "repeat_penalty" in shown
        assert "top_k " not in shown
        await chat.press("escape")
        assert chat.app.screen.query_one(OptionList).option_count > len(SCHEMA)
        await chat.press(*"xyzzy", "enter", "right", "ctrl+s", "ctrl+r")
        assert "(none)" in "\n".join(chat.screen)


async def test_texts_and_lists_come_back_as_they_are(open_chat, config):
    prompt = 'Be "kind".\n\tAnd C:\\new'
    async with open_chat(settings={"system_prompt": prompt, "stop": ["\n", "]"]}, config=config) as chat:
        for name in ("system_prompt", "stop"):
            before = chat.session.settings.value(name)
            await opened(chat, name)
            await chat.press("enter", "enter")
            assert chat.session.settings.origin(name) == SESSION
            assert chat.session.settings.value(name) == before
            await chat.press("escape")


async def test_it_works_with_the_mouse(open_chat, config):
    async with open_chat(config=config) as chat:
        await opened(chat, "")
        row = next(number for number, line in enumerate(chat.screen) if "think" in line)
        await chat.pilot.click(offset=(10, row))
        await chat.until(lambda: chat.session.settings.value("think") == "on")
        row = next(number for number, line in enumerate(chat.screen) if "Ctrl+S save" in line)
        await chat.pilot.click(offset=(chat.screen[row].index("save to"), row))
        await chat.until(lambda: kept(config).get("model") == {"think": "on"})


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (240, 60)])
async def test_it_fits(open_chat, config, size):
    async with open_chat(size=size, config=config) as chat:
        await chat.press("f12")
        await chat.press("end")
        shown = "\n".join(chat.screen)
        assert "Settings" in shown
        assert "Esc close" in shown
        assert "built-in" in row_of(chat, "show_panels") or "built-in" in shown


async def test_a_preset_is_taken_at_once(open_chat):
    async with open_chat(size=(150, 40)) as chat:
        await chat.send("/settings preset")
        await chat.press("enter", *"precise", "enter")
        assert chat.session.preset == "precise"
        assert chat.session.sampling["temperature"].value == 0.2
        await chat.press("enter", "x", "enter")
        await chat.until(lambda: "did you mean precise?" in "\n".join(chat.screen))
        assert chat.session.preset == "precise"
