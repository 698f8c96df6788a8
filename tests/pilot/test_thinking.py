"""What a model thinks before it answers: folded, seen while it grows, and shown when asked for."""

from __future__ import annotations

from tinyllm_chat.chat.scripted import Thought

THOUGHT = [Thought("First"), Thought(" this"), Thought(".\n"), Thought("Then"), Thought(" that"), Thought(".")]
ANSWER = ["So", " *it*", " is", "."]


def below_heading(chat) -> list[str]:
    """The lines of the answer."""
    return chat.text.split("SmolLM2-135M-Instruct")[-1].splitlines()[1:]


async def test_while_it_thinks_its_last_line_is_seen(open_chat):
    async with open_chat([*THOUGHT, *ANSWER]) as chat:
        await chat.ask("Go", steps=2)
        await chat.sees("▸ thinking, 2 tokens\n  First this")
        await chat.write(1)
        await chat.sees("3 tokens\n  First this.")
        await chat.write(2)
        await chat.sees("▸ thinking, 5 tokens\n  Then that")
        assert "First" not in chat.text


async def test_when_it_answers_one_line_is_left(open_chat):
    async with open_chat([*THOUGHT, *ANSWER]) as chat:
        await chat.ask("Go", steps=7)
        await chat.sees("▸ thought for 6 tokens, 60 ms\nSo")
        chat.backend.finish()
        await chat.sees("So it is.")
        assert "that" not in chat.text


async def test_a_key_unfolds_it_and_folds_it_again(open_chat):
    async with open_chat([*THOUGHT, *ANSWER]) as chat:
        await chat.ask("Go")
        await chat.press("ctrl+o")
        assert "▾ thought for 6 tokens, 60 ms\n│ First this.\n│ Then that.\n\nSo it is." in chat.text
        await chat.press("ctrl+o")
        assert "▸ thought for 6 tokens, 60 ms\nSo it is." in chat.text


async def test_unfolded_it_grows_line_by_line(open_chat):
    async with open_chat([*THOUGHT, *ANSWER]) as chat:
        await chat.send("/thoughts")
        await chat.ask("Go", steps=5)
        await chat.sees("▾ thinking, 5 tokens\n│ First this.\n│ Then that")
        chat.backend.finish()
        await chat.sees("│ Then that.\n\nSo it is.")


async def test_a_click_unfolds_one(open_chat):
    async with open_chat([*THOUGHT, *ANSWER]) as chat:
        await chat.ask("Go")
        await chat.ask("Again")
        row = next(y for y, line in enumerate(chat.screen) if "▸ thought" in line)
        await chat.pilot.click(offset=(chat.screen[row].index("thought"), row))
        await chat.sees("▾ thought for 6 tokens, 60 ms")
        assert chat.text.count("▾") == 1
        assert chat.text.count("▸") == 1


async def test_stopped_while_thinking(open_chat):
    async with open_chat([*THOUGHT, *ANSWER]) as chat:
        await chat.ask("Go", steps=2)
        await chat.press("escape")
        await chat.sees("▸ thought for 2 tokens, 20 ms\nstopped")
        await chat.press("ctrl+o")
        assert "│ First this" in chat.text


async def test_no_control_character_of_a_thought_reaches_the_screen(open_chat):
    async with open_chat([Thought("a\x1b[2J"), Thought("\nb\x07[bold]"), "Yes"]) as chat:
        await chat.ask("Go", steps=2)
        await chat.sees("b␇[bold]")
        await chat.press("ctrl+o")
        assert "│ a␛[2J" in chat.text


async def test_an_answer_without_a_thought_has_no_line_for_it(open_chat):
    async with open_chat("Yes.") as chat:
        await chat.ask("Go")
        assert below_heading(chat)[0] == "Yes."


async def test_thinking_is_turned_off_and_on(open_chat):
    async with open_chat("Yes.", backend={"info": {"reasons": True}}) as chat:
        await chat.send("/think off")
        assert chat.toasts == ["Thinking is off, from the next answer on"]
        await chat.ask("Go")
        assert chat.backend.requests[-1].think is False
        await chat.send("/think")
        assert chat.toasts[-1] == "Thinking is off"
        await chat.send("/think maybe")
        assert "think: expected one of auto, on, off" in chat.toasts[-1]


async def test_a_model_that_does_not_think_says_so(open_chat):
    async with open_chat("Yes.") as chat:
        await chat.send("/think on")
        assert chat.toasts == ["Thinking is on, from the next answer on; this model does not seem to know how"]
