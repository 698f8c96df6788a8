"""Sending, streaming, stopping, answering again: what happens between Enter and the end of an answer."""

from __future__ import annotations

import pytest
from tinyllm_chat.chat.scripted import Thought

LONG = "".join(f"word{number} " for number in range(60))


async def test_a_question_is_answered(open_chat):
    async with open_chat("Gravity is *curvature*.") as chat:
        await chat.ask("What is gravity?")
        assert "You\nWhat is gravity?" in chat.text
        assert "Gravity is curvature." in chat.text
        assert chat.app.prompt.text == ""
        assert chat.backend.requests[0].messages[-1].content == "What is gravity?"


async def test_an_empty_message_is_not_sent(open_chat):
    async with open_chat() as chat:
        await chat.send("  \n ")
        assert not chat.backend.requests
        assert not chat.session.conversation.path()


async def test_text_shows_while_the_answer_is_written(open_chat):
    async with open_chat(LONG) as chat:
        await chat.ask("Go", steps=5)
        await chat.sees("word4")
        assert "word5" not in chat.text
        await chat.write(5)
        await chat.sees("word9")
        assert chat.session.busy


async def test_finished_blocks_are_rendered_and_the_rest_is_plain(open_chat):
    async with open_chat("# Title\n\nSome **bold** words\n\nand **more") as chat:
        chat.backend.answers = [["# Title\n\n", "Some **bold** words\n\n", "and **more"]]
        await chat.ask("Go", steps=2)
        await chat.sees("Some bold words")
        chat.backend._answer.tokens.append(" to come")  # so that the end is not reached
        await chat.write(1)
        await chat.sees("and **more")
        assert "# Title" not in chat.text


async def test_stop_keeps_the_text(open_chat):
    async with open_chat(LONG) as chat:
        answer = await chat.ask("Go", steps=7)
        await chat.press("escape")
        await chat.until(lambda: not chat.session.busy, "the stop")
        assert answer.content.split()[-1] == "word6"
        assert answer.reason == "cancelled"
        await chat.sees("word6")
        await chat.sees("stopped")


async def test_stop_reaches_the_backend_with_the_key(open_chat):
    async with open_chat(LONG) as chat:
        await chat.ask("Go", steps=3)
        await chat.pilot.press("escape")
        assert chat.backend._answer is None  # no timer was waited for


async def test_a_message_waits_for_the_model(open_chat):
    async with open_chat("Here.", ready=False) as chat:
        await chat.send("Are you there?")
        assert chat.session.queued == ["Are you there?"]
        await chat.sees("waiting")
        assert "Are you there?" in chat.text
        await chat.ready()
        await chat.until(lambda: chat.backend.requests, "the message at the backend")
        chat.backend.finish()
        await chat.sees("Here.")
        assert "waiting" not in chat.text


async def test_a_message_waits_for_the_running_answer(open_chat):
    async with open_chat("First.", "Second.") as chat:
        await chat.ask("One", steps=0)
        await chat.send("Two")
        assert chat.session.queued == ["Two"]
        await chat.sees("waiting")
        chat.backend.finish()
        await chat.until(lambda: len(chat.backend.requests) == 2, "the second question")
        chat.backend.finish()
        await chat.sees("Second.")
        assert chat.text.index("First.") < chat.text.index("Two") < chat.text.index("Second.")


async def test_stop_gives_waiting_text_back(open_chat):
    async with open_chat(LONG) as chat:
        await chat.ask("One", steps=2)
        await chat.send("Two")
        await chat.send("Three")
        await chat.type("draft")
        await chat.press("escape")
        assert chat.app.prompt.text == "Two\nThree\ndraft"
        assert "waiting" not in chat.text
        assert not chat.session.queued


async def test_answer_again_and_leaf_through_the_answers(open_chat):
    async with open_chat("One.", "Two.") as chat:
        await chat.ask("Count")
        await chat.press("ctrl+r")
        await chat.until(lambda: len(chat.backend.requests) == 2, "the second answer")
        chat.backend.finish()
        await chat.sees("Two.")
        assert "One." not in chat.text
        assert "2/2 ◂ ▸" in chat.text
        await chat.press("alt+comma")
        await chat.sees("One.")
        assert "1/2" in chat.text
        await chat.press("f9")
        await chat.sees("Two.")


async def test_other_answers_are_a_click_away(open_chat):
    async with open_chat("One.", "Two.") as chat:
        await chat.ask("Count")
        await chat.press("ctrl+r")
        await chat.until(lambda: len(chat.backend.requests) == 2)
        chat.backend.finish()
        await chat.sees("2/2")
        row = next(number for number, line in enumerate(chat.screen) if "◂" in line)
        column = chat.screen[row].index("◂")
        await chat.pilot.click(offset=(column, row))
        await chat.sees("One.")


async def test_continue_writes_on(open_chat):
    async with open_chat(LONG) as chat:
        answer = await chat.ask("Go", steps=4)
        await chat.press("escape")
        await chat.until(lambda: not chat.session.busy)
        chat.backend.answers = ["and on."]
        await chat.press("ctrl+t")
        await chat.until(lambda: len(chat.backend.requests) == 2)
        assert chat.backend.requests[-1].continue_last
        chat.backend.finish()
        await chat.until(lambda: not chat.session.busy)
        assert answer.content == "word0 word1 word2 word3and on."
        await chat.sees("word3and on.")
        assert "stopped" not in chat.text


async def test_a_new_chat_is_empty(open_chat):
    async with open_chat("One.") as chat:
        await chat.ask("Count")
        await chat.press("ctrl+n")
        await chat.until(lambda: "Count" not in chat.text)
        assert chat.session.conversation.path() == []
        assert "SmolLM2-135M-Instruct" in chat.text  # the welcome is back


async def test_an_error_stands_where_the_answer_would(open_chat):
    async with open_chat(RuntimeError("out of memory: close something")) as chat:
        await chat.ask("Go")
        await chat.sees("▌ out of memory: close something")
        assert chat.text.index("Go") < chat.text.index("out of memory")
        chat.backend.answers = ["Fine."]
        await chat.press("ctrl+r")
        await chat.until(lambda: len(chat.backend.requests) == 2)
        chat.backend.finish()
        await chat.sees("Fine.")


async def test_a_model_that_does_not_open_says_why_and_the_chat_lives_on(open_chat):
    async with open_chat(ready=False, backend={"model_failure": "smollm2.gguf: not a GGUF file"}) as chat:
        await chat.until(lambda: chat.backend.opened)
        chat.backend.finish_opening()
        await chat.sees("▌ smollm2.gguf: not a GGUF file · /model opens another one")
        chat.backend.model_failure = None
        chat.app.models.open("/models/other.gguf")
        chat.backend.finish_opening()
        await chat.until(lambda: chat.session.model is not None)
        await chat.ask("Hello")
        await chat.sees("Hello there.")


async def test_loading_shows_its_stages(open_chat):
    async with open_chat(ready=False) as chat:
        await chat.until(lambda: chat.backend.opened)
        await chat.sees("opening")
        chat.backend.loading("compiling kernels", 7, 20)
        await chat.sees("compiling kernels 35 % · only the first time")
        assert "━━····" in chat.text
        chat.backend.finish_opening()
        await chat.until(lambda: chat.app.pane.progress is None)
        assert "compiling" not in chat.text


async def test_reading_a_prompt_shows_how_far_it_is(open_chat):
    async with open_chat() as chat:
        await chat.ask("Go", steps=0)
        chat.backend.reading(1840, 4096)
        await chat.sees("reading 1840 of 4096 tokens")
        chat.backend.step(1)
        await chat.until(lambda: "reading" not in chat.text)


@pytest.mark.parametrize(
    ("reason", "said"), [("context_full", "the context is full"), ("length", "stopped at the token limit")]
)
async def test_why_an_answer_ended_early_is_said(open_chat, reason, said):
    async with open_chat(LONG) as chat:
        await chat.ask("Go", steps=3)
        chat.backend.finish(reason)
        await chat.sees(said)


async def test_notes_of_the_model_are_seen(open_chat):
    notes = ("this file has no chat template: the model completes text",)
    async with open_chat(backend={"info": {"notes": notes}}) as chat:
        await chat.sees("this file has no chat template")


async def test_warnings_are_seen_from_the_start(open_chat):
    async with open_chat(warnings=["config.toml: unknown key temprature; did you mean temperature?"]) as chat:
        await chat.sees("config.toml: unknown key temprature; did you mean")


async def test_the_title_bar_tells_model_chat_and_where_it_is_kept(open_chat):
    async with open_chat("One.") as chat:
        assert chat.screen[0].split() == ["SmolLM2-135M-Instruct", "Q4_1"]
        await chat.ask("What is gravity?")
        assert "What is gravity? · 1 turn · not saved" in chat.screen[0]
        await chat.ask("And " + "very " * 30 + "much more?")
        for width in (160, 80, 60):
            await chat.pilot.resize_terminal(width, 24)
            await chat.until(lambda: chat.screen[0].endswith("2 turns · not saved"))


async def test_the_system_prompt_is_shown_and_sent(open_chat):
    async with open_chat() as chat:
        await chat.send("/system Be brief.")
        await chat.sees("▸ System prompt  Be brief.")
        await chat.ask("Hello")
        assert [message.role for message in chat.backend.requests[0].messages] == ["system", "user"]


async def test_an_answer_that_is_faster_than_the_screen_is_shown_once(open_chat):
    async with open_chat([Thought("So."), "Hello", " there."]) as chat:
        chat.backend.automatic = True
        await chat.send("Hi")
        await chat.sees("Hello there.")
        await chat.press("ctrl+o")
        assert (chat.text.count("Hello there."), chat.text.count("So.")) == (1, 1)


async def test_the_model_prepares_for_the_next_message_once_nothing_else_is_to_be_answered(open_chat):
    async with open_chat("One.", "Two.", "Three.") as chat:
        await chat.ask("First", steps=0)
        await chat.send("Second")
        assert chat.backend.awaited == []
        chat.backend.finish()
        await chat.until(lambda: len(chat.backend.requests) == 2, "the second question at the backend")
        assert chat.backend.awaited == []
        chat.backend.finish()
        await chat.until(lambda: chat.backend.awaited, "what the next message follows")
        assert [message.content for message in chat.backend.awaited[-1]] == ["First", "One.", "Second", "Two."]
        await chat.press("ctrl+r")
        await chat.until(lambda: len(chat.backend.requests) == 3, "the question once more")
        chat.backend.finish()
        await chat.until(lambda: chat.backend.awaited[-1][-1].content == "Three.", "the other answer")
        await chat.press("alt+comma")
        await chat.until(lambda: chat.backend.awaited[-1][-1].content == "Two.", "the first answer again")
