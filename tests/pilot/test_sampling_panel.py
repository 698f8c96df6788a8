"""Turning sampling values in their panel, by mouse and keyboard, and presets."""

from __future__ import annotations

import pytest
from textual.events import MouseScrollUp
from tinyllm_chat.tui.widgets.panels import sparkline
from tinyllm_chat.tui.widgets.prompt import Prompt
from tinyllm_chat.tui.widgets.sampling import SamplingPanel

SIZE = (120, 36)


def row_of(chat, label) -> int:
    return next(number for number, line in enumerate(chat.screen) if label in line)


def sampled(chat, name):
    value = chat.session.sampling[name]
    return value.value, value.origin


async def test_the_keyboard_selects_a_row_and_turns_it(open_chat):
    async with open_chat(size=SIZE) as chat:
        await chat.press("alt+v")
        assert isinstance(chat.app.focused, SamplingPanel)
        await chat.press("down", "right", "right")
        assert sampled(chat, "top_k") == (50, "session")
        await chat.press("down", "down", "left")
        assert sampled(chat, "min_p") == (pytest.approx(0.04), "session")
        await chat.press("delete")
        assert sampled(chat, "min_p") == (0.05, "built-in")
        await chat.press("up", "up", "up", "up")
        assert "◂ ▸" in chat.screen[row_of(chat, "seed ")]
        await chat.press("escape")
        assert isinstance(chat.app.focused, Prompt)
        assert not any("◂" in line for line in chat.screen)


async def test_typing_goes_to_the_message(open_chat):
    async with open_chat(size=SIZE) as chat:
        await chat.press("alt+v", "H", "i")
        assert isinstance(chat.app.focused, Prompt)
        assert chat.app.prompt.text == "Hi"


async def test_the_mouse_turns_what_it_points_at(open_chat):
    async with open_chat(size=SIZE) as chat:
        row = row_of(chat, "repeat  ")
        column = chat.screen[row].index("repeat")
        await chat.pilot.hover(offset=(column, row))
        await chat.pilot.click(offset=(column, row))
        more = chat.screen[row].index("▸")
        await chat.pilot.click(offset=(more, row))
        await chat.pilot.click(offset=(more, row))
        assert sampled(chat, "repeat_penalty") == (pytest.approx(1.1), "session")
        await chat.pilot.click(offset=(chat.screen[row].index("◂"), row))
        assert sampled(chat, "repeat_penalty")[0] == pytest.approx(1.05)
        assert isinstance(chat.app.focused, Prompt)
        await chat.pilot.hover(offset=(5, 5))
        await chat.until(lambda: "▸" not in chat.screen[row])


async def test_the_wheel_turns_the_row_under_it(open_chat):
    async with open_chat(size=SIZE) as chat:
        row = row_of(chat, "top-k")
        place = (chat.screen[row].index("top-k"), row)
        await chat.pilot._post_mouse_events([MouseScrollUp], offset=place)
        assert sampled(chat, "top_k") == (45, "session")


async def test_without_the_panel_it_says_what_to_do(open_chat):
    async with open_chat(size=(80, 24)) as chat:
        await chat.press("alt+v")
        assert isinstance(chat.app.focused, Prompt)
        assert any("/set NAME VALUE" in toast for toast in chat.toasts)


async def test_presets_by_key_and_by_name(open_chat):
    async with open_chat("One two three four", size=SIZE) as chat:
        answer = await chat.ask("Go", steps=1)
        await chat.press("alt+m")
        assert (chat.session.preset, sampled(chat, "temperature")) == ("precise", (0.2, "preset"))
        assert "preset: precise" in chat.screen[row_of(chat, "Sampling")]
        await chat.write(1)
        assert answer.sampling_spans[-1].values["temperature"] == 0.2
        await chat.send("/preset creative")
        assert chat.session.preset == "creative"
        await chat.send("/preset creatve")
        assert "there is no preset 'creatve': did you mean creative?" in chat.toasts
        await chat.send("/preset none")
        assert chat.session.preset is None
        await chat.until(lambda: "preset" not in chat.screen[row_of(chat, "Sampling")])


@pytest.mark.parametrize("size", [(100, 30), (160, 45)])
async def test_where_the_time_goes_is_measured_and_shown_while_it_is_wanted(open_chat, size):
    async with open_chat(size=size) as chat:
        await chat.ask("Go")
        assert not any("% of a token" in line for line in chat.screen)
        await chat.press("alt+o")
        assert chat.backend.profiling
        assert any("measured while an answer comes" in line for line in chat.screen)
        await chat.ask("And?")
        await chat.until(lambda: "61" in chat.screen[row_of(chat, "matmul Q4_1")])
        for panel in ("KV cache", "decode", "temperature", "min-p", "barrier wait", "sampling"):
            assert row_of(chat, panel)
        await chat.press("alt+o")
        assert not chat.backend.profiling
        assert not any("barrier wait" in line for line in chat.screen)


def test_the_speed_of_a_whole_answer_fits_into_its_place():
    assert sparkline([], 8) == ""
    assert sparkline([1.0, 2.0, 3.0], 8) == "▃▅▇"
    assert sparkline([0.0] * 30 + [9.0] * 30, 4) == "▁▁▇▇"
    assert len(sparkline([5.0] * 1001, 12)) == 12
    assert sparkline([5.0], 0) == ""


async def test_every_answer_has_a_curve_of_its_own(open_chat):
    async with open_chat("One two three", size=SIZE) as chat:
        await chat.ask("Go")
        await chat.ask("And?")
        await chat.until(lambda: chat.screen[row_of(chat, "decode")].count("▇") == 1)
