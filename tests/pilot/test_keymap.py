"""The user's own keys: they work, and footer, help and palette show them."""

from __future__ import annotations

from tinyllm_chat.tui.actions import ACTIONS
from tinyllm_chat.tui.keymap import keymap
from tinyllm_chat.tui.palette import ActionProvider

WANTED = {
    "send": "f14",
    "help": "ctrl+g f1",
    "temperature_up": "ctrl+x",
    "temperature_down": "alt+x",
    "regenerate": "",
    "scroll_bottom": "alt+e",
}


async def test_keys_of_the_user_work_and_are_shown(open_chat):
    async with open_chat("One.", size=(160, 70), keymap=keymap(ACTIONS, WANTED)) as chat:
        assert "F14 send" in chat.screen[-1]
        assert "Ctrl+X/Alt+X temperature" in chat.screen[-1]
        assert "Ctrl+G help" in chat.screen[-1]
        listed = [hit.help async for hit in ActionProvider(chat.app.screen).discover()]
        assert any(text.startswith("Ctrl+X") for text in listed)
        assert not any("Alt+↑" in text for text in listed)
        await chat.type("Count")
        await chat.press("enter")  # a new line now
        assert chat.app.prompt.text == "Count\n"
        assert chat.backend.requests == []
        await chat.press("f14")
        await chat.until(lambda: chat.backend.requests)
        await chat.press("ctrl+x", "alt+up")
        assert chat.session.sampling["temperature"].value == 0.85
        await chat.press("escape", "ctrl+g")
        shown = "\n".join(chat.screen)
        assert "Ctrl+X" in shown
        assert "/regen" in shown
        assert "Ctrl+R" not in shown


async def test_a_key_that_is_gone_does_nothing(open_chat):
    async with open_chat("One.", keymap=keymap(ACTIONS, WANTED)) as chat:
        await chat.type("Count")
        await chat.press("f14", "ctrl+r")
        assert not chat.toasts


async def test_notes_name_the_keys_in_force(open_chat):
    lines = "\n\n".join(f"Line {number}." for number in range(60))
    async with open_chat(lines, keymap=keymap(ACTIONS, WANTED)) as chat:
        await chat.type("Go")
        await chat.press("f14")
        await chat.until(lambda: chat.backend.requests)
        await chat.write(100)
        await chat.until(lambda: chat.app.pane.max_scroll_y > 10)
        await chat.press("pageup")
        await chat.write(10)
        await chat.until(lambda: "more below · Alt+E" in "\n".join(chat.screen))
