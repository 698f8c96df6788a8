"""Looking at the tokens of an answer: colours in the chat, the inspector, and going on from another token."""

from __future__ import annotations

import pytest
from support.chat_driver import MODEL
from tinyllm_chat.chat.scripted import ScriptedBackend, choice_of, split_tokens
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.tui.app import TinyLLMChatApp
from tinyllm_chat.tui.details import DetailsScreen
from tinyllm_chat.tui.inspector import InspectorScreen
from tinyllm_chat.tui.tokens import COLOURS, MARKS, has_shades, heat, named, openness, percent, rank_in_words
from tinyllm_chat.tui.widgets.message import MessageView

ANSWER = "**Gravity** is a fundamental concept"


def styles_of(view: MessageView) -> set[str]:
    """The styles of the answer's text that mean a probability."""
    spans = [span for piece in view.pieces for line in piece.lines(80) for span in line.spans]
    return {str(span.style) for span in spans} & {*COLOURS, *MARKS}


def all_levels(text: str, styles: tuple[str, ...]) -> set[str]:
    found = {heat(choice_of(token).logprob, styles is COLOURS) for token in split_tokens(text)}
    return found - {""}


async def test_heat_shows_tokens_in_colours_and_markdown_again(open_chat):
    async with open_chat(ANSWER) as chat:
        await chat.ask("What?")
        assert "**" not in chat.text
        await chat.press("alt+h")
        await chat.until(lambda: "**Gravity**" in chat.text, "the answer by its tokens")
        assert styles_of(chat.app.pane.views[-1]) == all_levels(ANSWER, COLOURS) != set()
        assert chat.session.settings.value("inspect_tokens")
        await chat.press("alt+h")
        assert "**" not in chat.text
        assert not chat.session.settings.value("inspect_tokens")


async def test_heat_is_seen_while_the_answer_is_written(open_chat):
    async with open_chat(ANSWER, settings={"inspect_tokens": True}) as chat:
        await chat.ask("What?", steps=3)
        assert chat.backend.requests[-1].inspect
        await chat.sees("**Gravity** is a")
        await chat.write(1)
        await chat.sees("**Gravity** is a fundamental")


async def test_without_heat_nothing_is_asked_for(open_chat):
    async with open_chat(ANSWER) as chat:
        answer = await chat.ask("What?")
        assert (chat.backend.requests[-1].inspect, answer.choices) == (False, {})


async def test_marks_stand_for_colours_where_there_are_none(open_chat):
    async with open_chat(ANSWER, settings={"inspect_tokens": True, "theme": "ansi-dark"}) as chat:
        await chat.ask("What?")
        assert styles_of(chat.app.pane.views[-1]) == all_levels(ANSWER, MARKS)


async def inspecting(chat) -> InspectorScreen:
    await chat.press("alt+i")
    await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen), "the inspector")
    await chat.until(lambda: any("token 1 of" in line for line in chat.screen), "its first token")
    return chat.app.screen


def sees(chat, *texts) -> bool:
    return all(any(text in line for line in chat.screen) for text in texts)


@pytest.mark.parametrize("size", [(80, 24), (130, 36)])
async def test_the_inspector_reads_an_old_answer_and_walks_its_tokens(open_chat, size):
    async with open_chat(ANSWER, size=size) as chat:
        answer = await chat.ask("What?")
        await inspecting(chat)
        assert answer.is_seen
        assert sees(chat, "**Gravity**", percent(answer.choices[0].logprob), openness(answer.choices[0].entropy))
        await chat.press("right", "right")
        assert sees(chat, "token 3 of 5", "·a", rank_in_words(answer.choices[2].rank), "t 0.80 · p 0.95")
        await chat.press("end")
        assert sees(chat, "token 5 of 5")
        await chat.press("left", "home")
        assert sees(chat, "token 1 of 5")
        await chat.press("escape")
        assert not isinstance(chat.app.screen, InspectorScreen)


async def test_enter_on_an_alternative_goes_on_from_it(open_chat):
    async with open_chat(ANSWER, [" force"]) as chat:
        old = await chat.ask("What?")
        await inspecting(chat)
        await chat.press("right")
        texts = [other.text for other in old.choices[1].alternatives]
        start = 1 if old.choices[1].rank == 1 else 0
        await chat.press(*["down"] * ((texts.index(" the") - start) % len(texts)), "enter")
        await chat.until(lambda: len(chat.backend.requests) == 2, "the branch at the backend")
        chat.backend.finish()
        await chat.until(lambda: not chat.session.busy)
        new = chat.session.conversation.leaf
        assert new.content == "**Gravity** the force"
        assert chat.backend.requests[-1].continue_last
        await chat.sees("2/2")
        assert (new.branch.message_id, new.branch.token) == (old.id, 1)


async def test_the_token_that_was_drawn_is_no_branch(open_chat):
    async with open_chat(ANSWER) as chat:
        answer = await chat.ask("What?")
        await inspecting(chat)
        own = answer.choices[0].rank - 1
        start = 1 if own == 0 else 0
        await chat.press(*["down"] * ((own - start) % 6), "enter")
        assert isinstance(chat.app.screen, InspectorScreen)
        assert len(chat.backend.requests) == 1
        assert "That is the token that was drawn; ↑↓ choose another" in chat.toasts


async def test_the_next_unlikely_token_is_a_key_away(open_chat):
    async with open_chat(ANSWER) as chat:
        answer = await chat.ask("What?")
        await inspecting(chat)
        await chat.press("tab")
        unlikely = next(at for at in range(1, 5) if answer.choices[at].logprob < -1.21)
        assert sees(chat, f"token {unlikely + 1} of 5")


def place_of(chat, text) -> tuple[int, int]:
    row = next(number for number, line in enumerate(chat.screen) if text in line)
    return chat.screen[row].index(text), row


async def test_the_mouse_picks_tokens_and_alternatives(open_chat):
    async with open_chat(ANSWER, size=(130, 36)) as chat:
        old = await chat.ask("What?")
        await inspecting(chat)
        await chat.pilot.click(offset=place_of(chat, "fundamental"))
        await chat.until(lambda: sees(chat, "token 4 of 5"))
        other = next(one for one in old.choices[3].alternatives if one.text == "\n")
        place = place_of(chat, "↵")
        await chat.pilot.click(offset=place)
        await chat.pilot.click(offset=place)
        await chat.until(lambda: len(chat.backend.requests) == 2, "the branch")
        assert chat.backend.requests[-1].messages[-1].ids[-1] == other.id


async def test_a_click_on_a_coloured_token_opens_the_inspector_there(open_chat):
    async with open_chat(ANSWER, settings={"inspect_tokens": True}) as chat:
        await chat.ask("What?")
        await chat.pilot.click(offset=place_of(chat, "fundamental"))
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen) and sees(chat, "token 4 of 5"))


async def test_an_answer_that_nobody_looks_at_while_it_is_written_has_to_end_first(open_chat):
    async with open_chat(ANSWER) as chat:
        await chat.press("alt+i")
        assert "there is no answer to look at yet" in chat.toasts
        await chat.ask("What?", steps=2)
        await chat.press("alt+i")
        assert not isinstance(chat.app.screen, InspectorScreen)
        assert any("when it is finished" in toast for toast in chat.toasts)


async def test_how_an_answer_was_made_is_told(open_chat):
    async with open_chat(ANSWER) as chat:
        await chat.ask("What?", steps=2)
        await chat.press("alt+up")
        await chat.write(3)
        await chat.press("alt+d")
        await chat.until(lambda: isinstance(chat.app.screen, DetailsScreen))
        assert sees(chat, "SmolLM2-135M-Instruct", "7319", "temperature 0.80", "from token 3", "temperature 0.85")
        await chat.press("escape")
        assert not isinstance(chat.app.screen, DetailsScreen)


def test_words_for_figures():
    assert [named(text) for text in (" is", "\n", "\udcf0\udc9f", "", "\x1b")] == [
        "·is",
        "↵",
        "<F0><9F>",
        "nothing",
        "␛",
    ]
    assert [percent(logprob) for logprob in (0.0, -0.5, -3.0, -6.0, -50.0)] == [
        "100 %",
        "61 %",
        "5.0 %",
        "0.2 %",
        "0.01 %",
    ]
    assert [rank_in_words(rank) for rank in (1, 2, 3, 11, 22)] == [
        "the likeliest",
        "the 2nd likeliest",
        "the 3rd likeliest",
        "the 11th likeliest",
        "the 22nd likeliest",
    ]
    assert [openness(entropy) for entropy in (0.0, 0.5, 1.5, 6.0)] == [
        "the model was sure",
        "the model was fairly sure",
        "torn between about 4",
        "open: as if among 403",
    ]


async def test_no_color_means_marks(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = TinyLLMChatApp(Session(ScriptedBackend(), None, Settings({CONFIG: {}})), model=MODEL)
    assert not has_shades(app)


async def test_an_answer_that_is_selected_is_the_one_to_look_at(open_chat):
    async with open_chat("First one", "Second answer here") as chat:
        first = await chat.ask("What?")
        await chat.ask("And?")
        chat.app.pane.select(first.id)
        chat.app.pane.focus()
        await chat.press("x")
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen) and sees(chat, "token 1 of 2"))
        await chat.press("escape", "m")
        await chat.until(lambda: isinstance(chat.app.screen, DetailsScreen))
