"""A message is selected, and what can be done with it: copy, quote, edit, answer again, delete, leaf."""

from __future__ import annotations

import re

import pytest
from tinyllm_chat.tui.widgets.pane import MOST, WINDOW, ChatPane
from tinyllm_chat.tui.widgets.prompt import Prompt

CODE = "Two ways:\n\n```python\nprint(1)\n```\n\nor\n\n~~~\nplain\n~~~\n\nDone."


async def talk(chat, *questions: str) -> None:
    for question in questions:
        await chat.ask(question)


def selected(chat) -> str | None:
    message_id = chat.app.pane.selected
    return None if message_id is None else chat.session.conversation[message_id].content


def rows(chat) -> list[str]:
    """The screen without header and panels."""
    return [line.split("│")[0].rstrip() for line in chat.screen[2:]]


def marked(chat) -> list[str]:
    """The lines beside which the bar stands."""
    return [line[2:].strip() for line in rows(chat) if line.startswith("▎")]


async def test_the_selection_walks_over_the_messages_and_back_into_the_input(open_chat):
    async with open_chat("A.", "B.") as chat:
        await talk(chat, "one", "two")
        await chat.press("shift+tab")
        assert selected(chat) == "B."
        assert isinstance(chat.app.focused, ChatPane)
        await chat.press("up", "k", "up", "up")
        assert selected(chat) == "one"
        assert marked(chat)[1:] == ["one"]
        await chat.press("down", "G")
        assert selected(chat) == "B."
        await chat.press("g")
        assert selected(chat) == "one"
        await chat.press("end", "tab")
        assert selected(chat) is None
        assert isinstance(chat.app.focused, Prompt)
        assert marked(chat) == []


@pytest.mark.parametrize("key", ["escape", "enter", "i"])
async def test_the_way_back_to_the_input(open_chat, key):
    async with open_chat("A.") as chat:
        await talk(chat, "one")
        await chat.type("draft")
        await chat.press("shift+tab", key)
        assert (selected(chat), chat.app.prompt.text) == (None, "draft")
        assert isinstance(chat.app.focused, Prompt)


async def test_what_is_no_key_for_messages_goes_into_the_input(open_chat):
    async with open_chat("A.") as chat:
        await talk(chat, "one")
        await chat.press("shift+tab", "W", "h", "y")
        assert chat.app.prompt.text == "Why"
        assert selected(chat) is None


async def test_nothing_to_select(open_chat):
    async with open_chat() as chat:
        await chat.press("shift+tab")
        assert chat.toasts == ["there is no message to select yet"]
        assert isinstance(chat.app.focused, Prompt)


async def test_a_click_selects_and_typing_still_goes_to_the_input(open_chat):
    async with open_chat("A.", "B.") as chat:
        await talk(chat, "one", "two")
        row = next(y for y, line in enumerate(rows(chat), 2) if line.strip() == "A.")
        await chat.pilot.click(offset=(3, row))
        assert selected(chat) == "A."
        await chat.press("d")
        assert chat.app.prompt.text == "d"
        assert "A." in chat.text
        heading = next(line for line in chat.screen if "copy · quote" in line)
        await chat.pilot.click(offset=(heading.index("quote"), chat.screen.index(heading)))
        await chat.until(lambda: "> A." in chat.app.prompt.text)


async def test_the_foot_of_the_screen_says_what_keys_do(open_chat):
    async with open_chat("A.", size=(160, 30)) as chat:
        await talk(chat, "one")
        await chat.press("shift+tab")
        assert "c copy" in chat.screen[-1]
        assert "Esc back" in chat.screen[-1]
        await chat.press("escape")
        assert "Enter send" in chat.screen[-1]


async def test_any_message_is_copied_as_it_was_written(open_chat):
    async with open_chat("Some **bold** words.") as chat:
        await talk(chat, "one *two*")
        await chat.press("shift+tab", "c")
        assert chat.app.clipboard == "Some **bold** words."
        await chat.press("up", "y")
        assert chat.app.clipboard == "one *two*"


async def test_code_blocks_are_copied_one_after_the_other_or_by_number(open_chat):
    async with open_chat(CODE) as chat:
        await talk(chat, "one")
        await chat.press("alt+c")
        assert chat.app.clipboard == "print(1)\n"
        await chat.press("shift+tab", "b")
        assert chat.app.clipboard == "plain\n"
        await chat.press("1")
        assert chat.app.clipboard == "print(1)\n"
        await chat.press("7")
        assert chat.toasts[-1] == "there are 2 code blocks, no number 7"
        await chat.press("escape")
        await chat.send("/code 2")
        assert chat.app.clipboard == "plain\n"


async def test_a_quote_goes_below_what_is_typed(open_chat):
    async with open_chat("first\n\nsecond\n") as chat:
        await talk(chat, "one")
        await chat.type("You said")
        await chat.press("shift+tab", "q")
        assert chat.app.prompt.text == "You said\n\n> first\n>\n> second\n\n"
        assert isinstance(chat.app.focused, Prompt)


async def test_an_own_message_is_edited_and_sent_beside_the_old_one(open_chat):
    async with open_chat("A.", "B.", "C.") as chat:
        await talk(chat, "one", "two")
        await chat.type("draft")
        await chat.press("shift+tab", "home", "e")
        assert chat.app.prompt.text == "one"
        await chat.until(lambda: "editing a message" in "\n".join(chat.screen))
        await chat.press("!", "enter")
        await chat.until(lambda: len(chat.backend.requests) == 3)
        chat.backend.finish()
        await chat.sees("C.")
        assert "one!" in chat.text
        assert "two" not in chat.text
        assert "2/2 ◂ ▸" in chat.text.splitlines()[1]
        assert chat.app.prompt.text == "draft"
        await chat.press("alt+comma")
        await chat.sees("two")


@pytest.mark.parametrize("width", [60, 80, 100])
async def test_that_a_message_is_being_edited_is_seen_on_every_screen(open_chat, width):
    async with open_chat("A.", size=(width, 24)) as chat:
        await talk(chat, "one")
        await chat.press("alt+e")
        await chat.until(lambda: "editing a message · Esc leaves it as it is" in "\n".join(chat.screen))
        await chat.press("escape")
        await chat.until(lambda: "editing a message" not in "\n".join(chat.screen))
        assert width >= 100 or "KV" in "\n".join(chat.screen)


async def test_escape_leaves_an_edit_and_the_draft_is_back(open_chat):
    async with open_chat("A.") as chat:
        await talk(chat, "one")
        await chat.type("draft")
        await chat.press("alt+e", "x", "escape")
        assert chat.app.prompt.text == "draft"
        assert chat.app.writing.editing is None
        assert len(chat.backend.requests) == 1
        await chat.press("escape")
        assert chat.app.prompt.text == "draft"


async def test_an_answer_is_rewritten(open_chat):
    async with open_chat("A.", "B.") as chat:
        await talk(chat, "one")
        await chat.press("shift+tab", "e")
        assert chat.app.prompt.text == "A."
        await chat.send("Mine.")
        await chat.sees("Mine.")
        assert "edited" in chat.text
        assert "2/2" in chat.text
        assert len(chat.backend.requests) == 1


async def test_an_edit_waits_for_the_running_answer(open_chat):
    async with open_chat("A.", "B. and more") as chat:
        await talk(chat, "one")
        await chat.ask("two", steps=1)
        await chat.send("/edit")
        await chat.press("!", "enter")
        assert chat.toasts[-1] == "an answer is being written: stop it first"
        assert chat.app.prompt.text == "two!"


async def test_any_answer_is_written_again(open_chat):
    async with open_chat("A.", "B.", "C.") as chat:
        await talk(chat, "one", "two")
        await chat.press("shift+tab", "up", "up", "r")
        await chat.until(lambda: len(chat.backend.requests) == 3)
        chat.backend.finish()
        await chat.sees("C.")
        assert "two" not in chat.text
        await chat.press("shift+tab", "left")
        await chat.sees("A.")
        assert selected(chat) == "A."
        assert "two" in chat.text


async def test_a_deleted_message_comes_back(open_chat):
    async with open_chat("A.", "B.") as chat:
        await talk(chat, "one", "two")
        await chat.press("shift+tab", "up", "d")
        await chat.until(lambda: "two" not in chat.text)
        assert chat.toasts == ["Deleted 2 messages · /undo brings back"]
        assert selected(chat) == "A."
        await chat.press("u")
        await chat.sees("two")
        await chat.press("U")
        await chat.until(lambda: "two" not in chat.text)
        await chat.press("home", "delete")
        await chat.until(lambda: "one" not in chat.text)
        assert isinstance(chat.app.focused, Prompt)
        await chat.press("alt+z")
        await chat.sees("one")


async def test_what_was_sent_is_undone_into_the_input(open_chat):
    async with open_chat("A.", "B.") as chat:
        await talk(chat, "one", "two")
        await chat.press("alt+z")
        await chat.until(lambda: "B." not in chat.text)
        assert chat.app.prompt.text == "two"
        await chat.press("alt+y")
        await chat.sees("B.")
        assert chat.app.prompt.text == ""
        for _ in range(3):
            await chat.press("alt+z")
        assert chat.toasts[-1] == "there is nothing to undo"


async def test_the_system_prompt_is_folded_to_one_line(open_chat):
    async with open_chat("A.") as chat:
        await chat.send("/system Be brief.")
        await chat.sees("▸ System prompt  Be brief.")
        await chat.pilot.click(offset=(4, next(y for y, line in enumerate(chat.screen) if "System prompt" in line)))
        await chat.sees("▾ System prompt\nBe brief.")
        await chat.press("shift+tab", "o")
        await chat.until(lambda: "Be brief." not in chat.text)


async def test_a_waiting_text_is_taken_back_by_a_click(open_chat):
    async with open_chat("A b c d") as chat:
        await chat.ask("one", steps=1)
        await chat.send("two")
        await chat.send("three")
        row = next(y for y, line in enumerate(chat.screen) if "take back" in line)
        await chat.pilot.click(offset=(chat.screen[row].index("take back"), row))
        await chat.until(lambda: chat.app.prompt.text == "two")
        assert chat.session.queued == ["three"]


async def test_a_chat_is_named_and_pinned(open_chat):
    async with open_chat("A.") as chat:
        await talk(chat, "one")
        await chat.send("/rename Counting to two")
        await chat.until(lambda: "Counting to two" in chat.screen[0])
        await chat.send("/pin")
        assert chat.session.conversation.pinned
        assert chat.toasts[-1] == "Pinned"
        assert "Counting to two · pinned · 1 turn" in chat.screen[0]
        await chat.send("/pin")
        assert "pinned" not in chat.screen[0]


# The window of messages


def long_chat(chat, turns: int) -> None:
    conversation = chat.session.conversation
    for turn in range(turns):
        conversation.new_message("user", f"question {turn}", conversation.head)
        conversation.new_message("assistant", f"answer {turn}", conversation.head)
    chat.app.feed.show_path()


async def test_only_a_window_of_a_long_chat_is_laid_out(open_chat):
    async with open_chat() as chat:
        long_chat(chat, 500)
        pane = chat.app.pane
        assert len(pane.views) == WINDOW
        assert "↑ 960 earlier messages" in chat.text
        await chat.press("ctrl+home")
        assert "question 0\n" in "\n".join(rows(chat)) + "\n"
        assert len(pane.views) <= MOST
        assert "↓ 960 later messages" in chat.text
        assert not pane.following
        await chat.press("ctrl+end")
        await chat.until(lambda: any("answer 499" in line for line in rows(chat)))
        assert pane.following


async def test_scrolling_moves_the_window_and_nothing_jumps(open_chat):
    async with open_chat() as chat:
        long_chat(chat, 100)
        pane = chat.app.pane
        await chat.press("ctrl+home")
        seen: list[int] = []
        for _ in range(400):
            seen += map(int, re.findall(r"question (\d+)", "\n".join(rows(chat))))
            if any("answer 99" in line for line in rows(chat)):
                break
            await chat.pilot.press("pagedown")
            assert len(pane.views) <= MOST
        assert [*dict.fromkeys(seen)] == list(range(100))
        for _ in range(400):
            if any("question 0" in line for line in rows(chat)):
                break
            await chat.pilot.press("pageup")
            assert len(pane.views) <= MOST
        else:
            pytest.fail("the first message was never reached")


async def test_the_selection_takes_the_window_along(open_chat):
    async with open_chat() as chat:
        long_chat(chat, 200)
        await chat.press("shift+tab", "home")
        assert selected(chat) == "question 0"
        assert marked(chat)[1:] == ["question 0"]
        await chat.press("end")
        assert selected(chat) == "answer 199"
        for _ in range(60):
            await chat.pilot.press("up")
        assert selected(chat) == "answer 169"
        assert marked(chat)[1:] == ["answer 169"]


async def test_a_message_sent_from_far_above_is_seen(open_chat):
    async with open_chat("Here.") as chat:
        long_chat(chat, 200)
        await chat.press("ctrl+home")
        await chat.ask("Where?")
        await chat.until(lambda: any("Here." in line for line in rows(chat)))
