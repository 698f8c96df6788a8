"""Ways out: the Ctrl+C ladder, Ctrl+D, Ctrl+Q, /quit."""

from __future__ import annotations

import pytest

LONG = "".join(f"word{number} " for number in range(60))


def closed(chat):
    return chat.app._exit


async def test_ctrl_c_clears_then_stops_then_asks_then_quits(open_chat):
    async with open_chat(LONG) as chat:
        await chat.ask("Go", steps=3)
        await chat.type("a draft")
        await chat.press("ctrl+c")
        assert chat.app.prompt.text == ""
        assert chat.session.busy
        await chat.press("ctrl+c")
        await chat.until(lambda: not chat.session.busy)
        assert not closed(chat)
        await chat.press("ctrl+c")
        assert chat.toasts == ["Ctrl+C again quits"]
        assert not closed(chat)
        await chat.pilot.press("ctrl+c")
        assert closed(chat)


async def test_a_cleared_draft_can_be_recalled(open_chat):
    async with open_chat() as chat:
        await chat.type("a long thought")
        await chat.press("ctrl+c", "up")
        assert chat.app.prompt.text == "a long thought"


async def test_the_second_ctrl_c_counts_only_for_a_while(open_chat):
    now = [100.0]
    async with open_chat() as chat:
        chat.app._actions._clock = lambda: now[0]
        await chat.press("ctrl+c")
        now[0] += 10
        await chat.press("ctrl+c")
        assert not closed(chat)
        now[0] += 1
        await chat.pilot.press("ctrl+c")
        assert closed(chat)


async def test_ctrl_d_quits_only_on_an_empty_input(open_chat):
    async with open_chat() as chat:
        await chat.type("ab")
        await chat.press("home", "ctrl+d")
        assert chat.app.prompt.text == "b"
        await chat.press("ctrl+d")
        assert not closed(chat)
        await chat.pilot.press("ctrl+d")
        assert closed(chat)


async def test_ctrl_q_quits_at_once(open_chat):
    async with open_chat(LONG) as chat:
        await chat.ask("Go", steps=3)
        await chat.type("draft")
        await chat.pilot.press("ctrl+q")
        assert closed(chat)


@pytest.mark.parametrize("command", ["/quit", "/exit", "/bye"])
async def test_quit_commands(open_chat, command):
    async with open_chat() as chat:
        await chat.type(command)
        await chat.pilot.press("enter")
        assert closed(chat)
