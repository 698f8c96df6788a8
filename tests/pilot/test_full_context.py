"""A chat that outgrows the context, on the screen: what is refused, what can be done, what the model does not see."""

from __future__ import annotations

import pytest

LONG = " ".join(["word"] * 300)
SMALL = {"context_length": 500}
WIDE = (150, 40)


async def filled(chat) -> None:
    """Two turns, of which the second has just fitted."""
    await chat.ask("First")
    await chat.ask(LONG)


async def test_a_message_that_cannot_fit_comes_back_into_the_input(open_chat):
    async with open_chat(backend={"context_length": 200}) as chat:
        await chat.send(LONG)
        await chat.sees("this message has 304 tokens; 200 fit")
        assert chat.app.prompt.text == LONG
        assert chat.backend.requests == []
        assert "You" not in chat.text


async def test_a_message_that_begins_with_a_slash_comes_back_as_it_was_typed(open_chat):
    async with open_chat(backend={"context_length": 200}) as chat:
        await chat.send(f"//{LONG}")
        await chat.sees("200 fit")
        assert chat.app.prompt.text == f"//{LONG}"


@pytest.mark.parametrize("start", ["", "/"])
async def test_an_edit_that_cannot_fit_comes_back_as_that_edit(open_chat, start):
    async with open_chat(backend={"context_length": 200}) as chat:
        await chat.ask("First")
        await chat.type("a thought")
        await chat.press("alt+e")
        await chat.send(f"{start}{LONG}")
        await chat.sees("200 fit")
        assert chat.app.prompt.text == f"{start}{LONG}"
        assert len(chat.backend.requests) == 1
        await chat.ask(f"{start}First, but otherwise")
        edited = chat.session.conversation.path()[0]
        assert edited.content == f"{start}First, but otherwise"
        assert len(chat.session.conversation.siblings(edited.id)) == 2
        assert chat.app.prompt.text == "a thought"


async def test_a_full_chat_says_what_can_be_done_and_a_click_does_it(open_chat):
    async with open_chat("Yes.", backend=SMALL, size=WIDE) as chat:
        await filled(chat)
        text = "more " * 180
        await chat.send(text)
        await chat.sees("500 fit")
        assert chat.app.prompt.text == text
        rows = chat.screen
        row = next(index for index, line in enumerate(rows) if "/drop" in line and "oldest turns" in line)
        await chat.pilot.click(offset=(rows[row].index("/drop") + 2, row))
        await chat.sees("not seen by the model: 2 messages")
        await chat.press("enter")
        await chat.until(lambda: len(chat.backend.requests) == 3)
        assert chat.backend.requests[-1].messages[0].content == LONG


async def test_what_the_model_does_not_see_is_marked(open_chat):
    async with open_chat("Yes.", backend=SMALL, settings={"context_full": "drop-oldest"}) as chat:
        await filled(chat)
        await chat.ask(LONG)
        await chat.sees("not seen by the model: 4 messages, 319 tokens")
        lines = chat.text.split("\n")
        begin = next(index for index, line in enumerate(lines) if "from here on not seen" in line)
        end = next(index for index, line in enumerate(lines) if "4 messages, 319 tokens" in line)
        assert [line.strip() for line in lines[begin:end]].count("You") == 2
        await chat.send("/undrop")
        await chat.until(lambda: "not seen" not in chat.text)


async def test_an_answer_that_fills_the_context_says_so(open_chat):
    async with open_chat(" ".join(["on"] * 300), backend={"context_length": 100}, size=WIDE) as chat:
        await chat.ask("Go")
        await chat.sees("the context is full, 100 of 100 tokens; -c 8192 opens the model with more")
        await chat.sees("/new")
        assert "/drop" not in chat.text


async def test_a_summary_is_seen_while_it_is_written_and_can_be_edited(open_chat):
    answers = ("Yes.", "Yes.", "They said yes.", "No.")
    async with open_chat(*answers, backend=SMALL, size=WIDE) as chat:
        await filled(chat)
        await chat.send("/summarize")
        await chat.until(lambda: len(chat.backend.requests) == 3)
        chat.backend.reading(50, 200)
        await chat.sees("summarizing 50 of 200 tokens · 1000/s · 150 ms left")
        chat.backend.step(2)
        await chat.sees("summarizing 2 messages · 2 tokens")
        chat.backend.finish()
        await chat.sees("They said yes.")
        assert "summarizing" not in chat.text
        assert "Summary  in its place" in chat.text
        await chat.send("/summary")
        assert chat.app.prompt.text == "/summary They said yes."
        await chat.send("/summary They said\nno.")
        await chat.sees("no.")
        assert chat.session.conversation.cut.summary == "They said\nno."


async def test_escape_stops_a_summary(open_chat):
    async with open_chat("Yes.", backend=SMALL) as chat:
        await filled(chat)
        await chat.send("/summarize")
        await chat.until(lambda: len(chat.backend.requests) == 3)
        await chat.press("escape")
        await chat.sees("the summary was stopped: nothing has changed")
        assert "summarizing" not in chat.text


async def test_the_policy_can_be_changed_and_is_told(open_chat):
    async with open_chat() as chat:
        await chat.send("/context-full")
        assert chat.toasts[-1] == "When the context is full: the chat stops and says what can be done"
        await chat.send("/context-full drop-oldest")
        assert chat.toasts[-1] == "When the context is full: the model no longer sees the oldest turns"
        await chat.send("/context-full perhaps")
        assert "expected one of stop, drop-oldest, shift, summarize" in chat.toasts[-1]
        assert chat.session.settings.value("context_full") == "drop-oldest"
