"""Turning sampling while an answer is written: the value changes at once, shows, and is recorded in the heading."""

from __future__ import annotations

import pytest
from tinyllm_chat.chat.conversation import SamplingSpan
from tinyllm_chat.tui.widgets.message import sampling_text

LONG = "".join(f"word{number} " for number in range(60))


@pytest.mark.parametrize(
    ("keys", "name", "value"),
    [
        (("alt+up",), "temperature", 0.85),
        (("ctrl+up", "f6"), "temperature", 0.9),
        (("alt+down",), "temperature", 0.75),
        (("ctrl+down", "f5"), "temperature", 0.7),
        (("alt+right",), "top_p", 0.96),
        (("f8", "f8"), "top_p", 0.97),
        (("alt+left",), "top_p", 0.94),
        (("f7", "f7"), "top_p", 0.93),
    ],
)
async def test_keys_turn_the_value(open_chat, keys, name, value):
    async with open_chat() as chat:
        await chat.press(*keys)
        assert chat.session.sampling[name].value == pytest.approx(value)
        assert chat.session.sampling[name].origin == "session"


async def test_the_next_token_is_sampled_with_it(open_chat):
    async with open_chat(LONG) as chat:
        answer = await chat.ask("Go", steps=4)
        await chat.press("alt+up")
        await chat.write(2)
        assert answer.sampling_spans[-1].start == 4
        assert answer.sampling_spans[-1].values["temperature"] == pytest.approx(0.85)
        await chat.sees("t 0.80 · p 0.95 → t 0.85 from 5")


async def test_keys_work_while_text_is_typed(open_chat):
    async with open_chat() as chat:
        await chat.type("draft")
        await chat.press("alt+up", "f7")
        assert chat.app.prompt.text == "draft"
        assert chat.session.sampling["temperature"].value == pytest.approx(0.85)
        assert chat.session.sampling["top_p"].value == pytest.approx(0.94)


def row_of(chat, label):
    return next(line for line in chat.screen if label in line)


async def test_the_panel_shows_value_and_origin_and_marks_the_change_once(open_chat):
    async with open_chat(settings={"temperature": 0.6}) as chat:
        assert row_of(chat, "temperature ").split()[-3:] == ["temperature", "0.60", "config"]
        await chat.press("alt+up")
        assert row_of(chat, "temperature ").split()[-3:] == ["temperature", "0.65", "session"]
        assert chat.app.figures.flashing == {"temperature"}
        await chat.until(lambda: not chat.app.figures.flashing, "the end of the mark")


async def test_the_status_line_shows_it_without_panels(open_chat):
    async with open_chat(size=(80, 24)) as chat:
        assert "t 0.80  p 0.95" in "\n".join(chat.screen)
        await chat.press("alt+up", "alt+left")
        assert "t 0.85  p 0.94" in "\n".join(chat.screen)
        await chat.send("/min_p 0.2")
        assert "min 0.20" in "\n".join(chat.screen)  # as long as it is marked
        await chat.until(lambda: "min 0.20" not in "\n".join(chat.screen))


async def test_values_stay_in_their_range(open_chat):
    async with open_chat(settings={"temperature": 0.05, "top_p": 1.0}) as chat:
        await chat.press("alt+down", "alt+down", "alt+right")
        assert chat.session.sampling["temperature"].value == 0.0
        assert chat.session.sampling["top_p"].value == 1.0


async def test_slash_commands_set_values(open_chat):
    async with open_chat() as chat:
        await chat.send("/temp 1.25")
        await chat.send("/top_p 0.5")
        await chat.send("/set min-p 0.1")
        await chat.send("/top_k 20")
        values = {name: value.value for name, value in chat.session.sampling.items()}
        assert (values["temperature"], values["top_p"], values["min_p"], values["top_k"]) == (1.25, 0.5, 0.1, 20)
        assert chat.app.prompt.text == ""


@pytest.mark.parametrize("command", ["/temp warm", "/temp -1", "/set warmth 1", "/set", "/top_k 1.5"])
async def test_a_wrong_value_is_refused_in_one_line_and_the_text_stays(open_chat, command):
    async with open_chat() as chat:
        before = dict(chat.session.sampling)
        await chat.send(command)
        assert dict(chat.session.sampling) == before
        assert chat.app.prompt.text == command
        assert len(chat.toasts) == 1
        assert "\n" not in chat.toasts[0]


async def test_a_command_without_value_tells_the_value(open_chat):
    async with open_chat() as chat:
        await chat.send("/temp")
        assert chat.toasts == ["temperature is 0.80"]


async def test_the_seed_that_was_drawn_is_shown(open_chat):
    async with open_chat() as chat:
        assert row_of(chat, "seed ").split()[-3:-1] == ["seed", "–"]
        await chat.ask("Hello")
        await chat.until(lambda: row_of(chat, "seed ").split()[-3:] == ["seed", "7319", "random"])


def test_a_heading_tells_every_change_up_to_two():
    spans = [SamplingSpan(0, {"temperature": 0.8, "top_p": 0.95})]
    assert sampling_text([]) == ""
    assert sampling_text(spans) == "t 0.80 · p 0.95"
    spans.append(SamplingSpan(42, {"temperature": 0.85, "top_p": 0.95}))
    assert sampling_text(spans) == "t 0.80 · p 0.95 → t 0.85 from 43"
    spans.append(SamplingSpan(50, {"temperature": 0.85, "top_p": 0.95}))
    assert sampling_text(spans) == "t 0.80 · p 0.95 → t 0.85 from 43"
    spans.append(SamplingSpan(60, {"temperature": 0.9, "top_p": 0.9}))
    assert sampling_text(spans) == "t 0.80 · p 0.95 → t 0.85 from 43 → t 0.90 p 0.90 from 61"
    spans.append(SamplingSpan(70, {"temperature": 1.0, "top_p": 0.9}))
    assert sampling_text(spans) == "t 0.80 · p 0.95 → 2 changes → t 1.00 from 71"


def test_the_seed_of_what_was_written_on_is_no_change():
    spans = [SamplingSpan(0, {"temperature": 0.8, "seed": 1}), SamplingSpan(5, {"temperature": 0.8, "seed": 2})]
    assert sampling_text(spans) == "t 0.80"
