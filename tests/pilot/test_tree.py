"""The screen that shows every branch: walked over, and left for the branch that is chosen."""

from __future__ import annotations

from tinyllm_chat.tui.tree import TreeLines, TreeScreen


async def with_branches(chat) -> None:
    """one → A., two → B. and C.; beside them uno → D."""
    for question in ("one", "two"):
        await chat.ask(question)
    await chat.press("ctrl+r")
    await chat.until(lambda: len(chat.backend.requests) == 3)
    chat.backend.finish()
    await chat.until(lambda: not chat.session.busy)
    first = chat.session.conversation.path()[0]
    chat.session.resend(first.id, "uno")
    chat.backend.finish()
    await chat.until(lambda: not chat.session.busy)
    await chat.sees("uno")


def rows(chat) -> list[str]:
    lines = chat.app.screen.query_one(TreeLines)
    return [lines._line(row, 80).plain for row in lines._rows]


async def test_every_branch_has_a_line_and_opens(open_chat):
    async with open_chat("A.", "B.", "C.", "D.") as chat:
        await with_branches(chat)
        await chat.press("alt+t")
        assert isinstance(chat.app.screen, TreeScreen)
        name = "SmolLM2-135M-Ins"
        assert [row.replace("…", "").replace("  ", " ").split() for row in rows(chat)] == [
            ["├", "1/2", "You", "one"],
            ["│", name[:15], "A."],
            ["│", "You", "two"],
            ["│", "├", "1/2", name[:15], "B."],
            ["│", "└", "2/2", name[:15], "C."],
            ["●", "└", "2/2", "You", "uno"],
            ["●", name[:15], "D."],
        ]
        assert "7 messages, 3 branches" in "\n".join(chat.screen)
        assert chat.app.screen.query_one(TreeLines).cursor == 6
        await chat.press("left", "left", "left", "enter")
        assert not isinstance(chat.app.screen, TreeScreen)
        await chat.sees("B.")
        assert chat.session.conversation[chat.app.pane.selected].content == "B."
        assert "two" in chat.text


async def test_it_is_walked_with_the_mouse_and_closed(open_chat):
    async with open_chat("A.", "B.", "C.", "D.") as chat:
        await with_branches(chat)
        await chat.send("/tree")
        await chat.press("home")
        lines = chat.app.screen.query_one(TreeLines)
        assert lines.cursor == 0
        await chat.pilot.click(TreeLines, offset=(5, 2))
        assert lines.cursor == 2
        await chat.press("pagedown", "up", "escape")
        assert not isinstance(chat.app.screen, TreeScreen)
        assert "uno" in chat.text
        await chat.press("alt+t", "home")
        await chat.pilot.click(TreeLines, offset=(5, 2))
        await chat.pilot.click(TreeLines, offset=(5, 2))
        await chat.sees("two")


async def test_there_is_no_tree_of_nothing(open_chat):
    async with open_chat() as chat:
        await chat.press("alt+t")
        assert chat.toasts == ["there is no message yet"]


async def test_no_branch_is_opened_while_an_answer_is_written(open_chat):
    async with open_chat("A.", "B.", "C.", "D.", "E and more") as chat:
        await with_branches(chat)
        await chat.ask("three", steps=1)
        await chat.press("alt+t", "home", "enter")
        assert chat.toasts[-1] == "an answer is being written: stop it first"
