"""Panels that fold away, resizing while text streams, scrolling, and the window of messages."""

from __future__ import annotations

import pytest
from tinyllm_chat.tui.widgets import pane

PARAGRAPHS = "\n\n".join(f"Paragraph {number} says little, in some words that wrap." for number in range(40))


@pytest.mark.parametrize(("width", "panels"), [(60, False), (80, False), (99, False), (100, True), (160, True)])
async def test_panels_need_100_columns(open_chat, width, panels):
    async with open_chat(size=(width, 24)) as chat:
        text = "\n".join(chat.screen)
        assert ("KV cache" in text) is panels
        assert ("tok/s" in text) is not panels
        assert all(len(row) <= width for row in chat.screen)


async def test_panels_can_be_hidden_and_shown(open_chat):
    async with open_chat() as chat:
        await chat.press("ctrl+b")
        assert "KV cache" not in "\n".join(chat.screen)
        assert "tok/s" in "\n".join(chat.screen)
        await chat.press("f3")
        assert "KV cache" in "\n".join(chat.screen)


async def test_figures_are_whole_in_a_narrow_terminal(open_chat):
    """The picture of the cache gives way to them."""
    async with open_chat("word " * 1200, size=(80, 24)) as chat:
        await chat.ask("Count")
        for width, picture in [(60, "── KV ━·"), (54, "── KV 12")]:
            await chat.pilot.resize_terminal(width, 20)
            await chat.until(
                lambda picture=picture: any(
                    picture in row and "/8192 15% ·  100 tok/s · t 0.80  p 0.95 ─" in row for row in chat.screen
                )
            )
        await chat.pilot.resize_terminal(80, 24)
        await chat.until(lambda: "KV ━━··········" in "\n".join(chat.screen))


@pytest.mark.parametrize(("width", "last"), [(60, "F1 help"), (80, "F1 help"), (160, "Shift+Tab messages")])
async def test_the_foot_has_as_many_hints_as_fit(open_chat, width, last):
    async with open_chat(size=(width, 24)) as chat:
        assert chat.screen[-1].startswith("  Enter send ")
        assert chat.screen[-1].endswith(last)


async def test_hidden_panels_are_a_setting(open_chat):
    async with open_chat(settings={"show_panels": False}) as chat:
        assert "KV cache" not in "\n".join(chat.screen)


async def test_asking_for_panels_in_a_narrow_terminal_says_what_they_need(open_chat):
    async with open_chat(size=(80, 24), settings={"show_panels": False}) as chat:
        await chat.press("ctrl+b")
        assert "100 columns" in chat.toasts[0]


async def test_panels_show_cache_and_speed(open_chat):
    async with open_chat("One two three four.") as chat:
        await chat.ask("Count")
        await chat.until(lambda: "of 8192 tokens" in "\n".join(chat.screen))
        text = "\n".join(chat.screen)
        assert "189 MB full" in text
        assert "23.0 kB a token · f16" in text
        assert "decode           100" in text
        assert "prefill         1000" in text
        assert "answer             4  ━" in text


async def test_resizing_while_text_streams_keeps_the_text_and_the_end_in_view(open_chat):
    async with open_chat(PARAGRAPHS) as chat:
        await chat.ask("Go", steps=0)
        for width, height in [(100, 30), (60, 20), (160, 45), (80, 24), (40, 10), (100, 30)]:
            await chat.pilot.resize_terminal(width, height)
            await chat.write(25)
            last = chat.session.conversation.leaf.content.split()[-1]
            await chat.until(lambda last=last: last in "\n".join(chat.screen), f"{last} at the end")
        chat.backend.finish()
        await chat.until(lambda: not chat.session.busy)
        for number in range(40):
            assert f"Paragraph {number} says" in chat.text


async def test_a_tiny_terminal_does_no_harm(open_chat):
    async with open_chat(PARAGRAPHS, size=(20, 6)) as chat:
        await chat.ask("Go")
        for size in [(1, 1), (4, 2), (12, 3), (100, 30)]:
            await chat.pilot.resize_terminal(*size)
            await chat.pilot.pause()
        await chat.sees("Paragraph 39")


async def test_the_view_stays_where_the_user_scrolled_to(open_chat):
    async with open_chat(PARAGRAPHS) as chat:
        await chat.ask("Go", steps=200)
        await chat.until(lambda: chat.app.pane.max_scroll_y > 10)
        await chat.press("pageup")
        place = chat.app.pane.scroll_y
        assert not chat.app.pane.following
        await chat.write(80)
        await chat.until(lambda: "more below" in "\n".join(chat.screen), "the note that there is more")
        assert chat.app.pane.scroll_y == place
        await chat.press("ctrl+end")
        assert chat.app.pane.following
        await chat.write(60)
        await chat.until(lambda: chat.app.pane.following)
        await chat.until(lambda: "more below" not in "\n".join(chat.screen))


async def test_scrolling_back_to_the_end_follows_again(open_chat):
    async with open_chat(PARAGRAPHS) as chat:
        await chat.ask("Go", steps=200)
        await chat.until(lambda: chat.app.pane.max_scroll_y > 10)
        await chat.press("shift+up", "shift+up", "shift+up")
        assert not chat.app.pane.following
        await chat.press("shift+down", "shift+down", "shift+down")
        await chat.write(80)
        await chat.until(lambda: chat.app.pane.following)


async def test_sending_goes_to_the_end(open_chat):
    async with open_chat(PARAGRAPHS) as chat:
        await chat.ask("Go")
        await chat.press("ctrl+home")
        assert chat.app.pane.scroll_y == 0
        await chat.ask("Again", steps=0)
        await chat.until(lambda: chat.app.pane.following)


async def test_only_a_window_of_a_long_chat_is_laid_out(open_chat, monkeypatch):
    monkeypatch.setattr(pane, "WINDOW", 6)
    monkeypatch.setattr(pane, "MORE", 4)
    async with open_chat("Answer.\n\nWith lines.\n\nAnd more.") as chat:
        for turn in range(10):
            await chat.ask(f"Question {turn}?")
        assert len(chat.app.pane.views) <= 12
        chat.app.pane.show_path([])
        chat.app.pane.show_path(chat.session.conversation.path())
        assert len(chat.app.pane.views) == 6
        assert "↑ 14 earlier messages" in chat.text
        assert "Question 7?" in chat.text
        assert "Question 6?" not in chat.text
        first = chat.app.pane.views[0].message
        chat.app.pane.scroll_home(animate=False)
        await chat.until(lambda: len(chat.app.pane.views) == 10, "more messages")
        assert "↑ 10 earlier messages" in chat.text
        assert chat.app.pane.views[4].message is first
        await chat.until(lambda: "Question 7?" in "\n".join(chat.screen), "the message that was at the top")


async def test_text_can_be_selected_and_copied(open_chat):
    async with open_chat("Some words to copy.") as chat:
        await chat.ask("Go")
        row = next(number for number, line in enumerate(chat.screen) if "Some words" in line)
        column = chat.screen[row].index("Some")
        await chat.pilot.mouse_down(offset=(column, row))
        await chat.pilot.hover(offset=(column + 9, row))
        await chat.pilot.mouse_up(offset=(column + 9, row))
        await chat.press("ctrl+c")
        assert chat.app.clipboard == "Some words"
        # It copied and did not count as a step towards quitting.
        assert chat.toasts == ["What is selected, 10 characters: sent to the terminal"]


@pytest.mark.parametrize("theme", ["tinyllm-light", "textual-dark", "ansi-dark", "ansi-light", "dracula"])
async def test_themes(open_chat, theme):
    answer = "# T\n\n- a `b`\n\n```html\n<a href='x'>y</a>\n```\n\n| a |\n|---|\n| b |"
    async with open_chat(answer, settings={"theme": theme}) as chat:
        assert chat.app.theme == theme
        await chat.ask("Go")
        assert "<a href='x'>y</a>" in "\n".join(chat.screen)
        await chat.send("/theme tinyllm-dark")
        assert chat.app.theme == "tinyllm-dark"
        assert "<a href='x'>y</a>" in "\n".join(chat.screen)


async def test_a_theme_nobody_knows_is_a_warning(open_chat):
    async with open_chat(settings={"theme": "neon"}) as chat:
        await chat.sees("there is no theme 'neon'")
        await chat.send("/theme neon")
        assert "neon" in chat.toasts[0]
        assert chat.app.theme == "tinyllm-dark"


async def test_no_color_leaves_no_colour(open_chat, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat("Some `code` and *words*.\n\n```python\nx = 1\n```") as chat:
        await chat.ask("Go")
        for strip in chat.app.screen._compositor.render_strips():
            for segment in strip:
                for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                    if colour is not None and colour.triplet is not None:
                        assert len(set(colour.triplet)) == 1, (segment.text, colour)


async def test_the_cache_is_a_map_in_which_every_message_can_be_pointed_at(open_chat):
    answer = " ".join(["word"] * 400)
    async with open_chat(answer, backend={"context_length": 1000}, size=(120, 45)) as chat:
        await chat.ask("What is gravity?")
        await chat.ask("And the Moon? " * 30, steps=0)
        await chat.until(lambda: "last prompt: 411 reused, 95 read" in "\n".join(chat.screen))
        left = chat.app.figures.panels.cache.region.x
        top = next(row for row, line in enumerate(chat.screen) if "of 1000 tokens" in line) + 1
        rows = [line[left:].strip() for line in chat.screen[top : top + 3]]
        # 411 tokens that were there, 95 that were read, and as many dots as is free.
        assert [len(row) for row in rows] == [34, 34, 34]
        assert ["".join(rows).count(mark) for mark in "┅━·"] == [42, 10, 50]
        await chat.pilot.hover(offset=(left + 10, top))
        await chat.until(lambda: "answer 404 tokens · 404 reused" in "\n".join(chat.screen))
        await chat.pilot.click(offset=(left, top))
        await chat.until(lambda: chat.app.pane.scroll_y < 2)
        await chat.pilot.hover(offset=(2, 2))
        await chat.until(lambda: "last prompt" in "\n".join(chat.screen))


async def test_the_panel_says_what_is_being_read_and_what_is_not_seen(open_chat):
    async with open_chat("Yes.", size=(120, 45)) as chat:
        await chat.ask("a")
        await chat.ask("b")
        await chat.send("/drop")
        await chat.send("c")
        await chat.until(lambda: len(chat.backend.requests) == 3)
        chat.backend.reading(5, 15)
        await chat.until(lambda: "reading 5 of 15 · 10 ms left" in "\n".join(chat.screen))
        chat.backend.finish()
        await chat.until(lambda: "last prompt: 0 reused, 15 read" in "\n".join(chat.screen))
        text = " ".join("\n".join(chat.screen).split())
        assert "not seen 10 2 messages" in text


async def test_the_status_line_has_the_map_in_small(open_chat):
    async with open_chat(" ".join(["word"] * 500), backend={"context_length": 1000}, size=(80, 24)) as chat:
        await chat.ask("Go")
        await chat.until(lambda: "KV ━━━━━━······ 505/1000 50%" in "\n".join(chat.screen))


async def test_adapters_are_named_with_the_model(open_chat):
    async with open_chat(backend={"info": {"adapters": ("pirate × 0.5", "formal × 1")}}) as chat:
        await chat.sees("LoRA pirate × 0.5\n")
        assert "LoRA formal × 1" in chat.text
        assert "Q4_1 + LoRA" in chat.screen[0]
