"""The input: newlines, pasting, growing, what was sent before, counting, suggestions."""

from __future__ import annotations

import pytest
from textual import events


def paste(chat, text):
    chat.app.prompt.post_message(events.Paste(text))


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter"])
async def test_newline_keys(open_chat, key):
    async with open_chat() as chat:
        await chat.press("a", key, "b")
        assert chat.app.prompt.text == "a\nb"
        assert not chat.backend.requests


async def test_a_paste_of_many_lines_is_one_message(open_chat):
    async with open_chat() as chat:
        text = "\r\n".join(f"line {number}" for number in range(500))
        paste(chat, text)
        await chat.until(lambda: chat.app.prompt.text)
        assert chat.app.prompt.whole_text == text.replace("\r\n", "\n")
        await chat.press("enter")
        await chat.until(lambda: chat.backend.requests)
        assert chat.backend.requests[0].messages[-1].content == text.replace("\r\n", "\n")
        await chat.sees("more characters, which the model reads too")


async def test_the_input_grows_with_its_text_up_to_a_limit(open_chat):
    async with open_chat() as chat:
        assert chat.app.prompt.size.height == 1
        await chat.type("one\ntwo\nthree")
        await chat.until(lambda: chat.app.prompt.size.height == 3)
        await chat.type("\n".join("line" for _ in range(100)))
        await chat.until(lambda: chat.app.prompt.size.height == 10)
        await chat.type("short")
        await chat.until(lambda: chat.app.prompt.size.height == 1)


async def test_control_characters_do_not_get_in(open_chat):
    async with open_chat() as chat:
        paste(chat, "a\x1b[31mred\x07\x9b1m\u202eb")
        await chat.until(lambda: chat.app.prompt.text)
        assert chat.app.prompt.text == "a␛[31mred␇\ufffd1m\ufffdb"


async def test_what_was_sent_comes_back_and_so_does_the_draft(open_chat):
    async with open_chat() as chat:
        await chat.ask("first")
        await chat.ask("second")
        await chat.type("draft")
        await chat.press("up")
        assert chat.app.prompt.text == "second"
        await chat.press("up", "up")
        assert chat.app.prompt.text == "first"
        await chat.press("down", "down")
        assert chat.app.prompt.text == "draft"
        await chat.press("down")
        assert chat.app.prompt.text == "draft"


async def test_up_and_down_move_within_a_longer_text(open_chat):
    async with open_chat() as chat:
        await chat.ask("sent")
        await chat.type("one\ntwo")
        await chat.press("up")
        assert chat.app.prompt.text == "one\ntwo"
        await chat.press("up")
        assert chat.app.prompt.text == "sent"


async def test_the_tokens_of_the_draft_are_counted(open_chat):
    async with open_chat() as chat:
        await chat.type("one two three")
        await chat.until(lambda: "3 tokens" in "\n".join(chat.screen))
        await chat.type("one")
        await chat.until(lambda: "1 token" in "\n".join(chat.screen))
        assert "1 tokens" not in "\n".join(chat.screen)
        await chat.type("")
        await chat.until(lambda: "1 token" not in "\n".join(chat.screen))


async def test_the_draft_is_counted_once_the_model_is_there(open_chat):
    async with open_chat(ready=False) as chat:
        await chat.type("one two three")
        await chat.until(lambda: chat.app.writing.bar.count.text == "")
        await chat.ready()
        await chat.until(lambda: "3 tokens" in "\n".join(chat.screen))


async def test_commands_are_suggested_and_completed(open_chat):
    async with open_chat() as chat:
        await chat.press("slash", "t", "e")
        await chat.until(lambda: "/temp VALUE" in "\n".join(chat.screen))
        assert "/top_p VALUE" not in "\n".join(chat.screen)
        await chat.press("tab")
        assert chat.app.prompt.text == "/temp "
        assert "/temp VALUE" not in "\n".join(chat.screen)
        await chat.press("1", "enter")
        assert chat.session.sampling["temperature"].value == 1.0


async def test_a_message_may_start_with_a_slash(open_chat):
    async with open_chat() as chat:
        await chat.ask("//etc is a folder")
        assert chat.backend.requests[0].messages[-1].content == "/etc is a folder"


async def test_a_text_of_several_lines_is_no_command(open_chat):
    async with open_chat() as chat:
        await chat.ask("/usr\n/bin")
        assert chat.backend.requests[0].messages[-1].content == "/usr\n/bin"


async def test_an_unknown_command_is_not_sent_and_stays(open_chat):
    async with open_chat() as chat:
        await chat.send("/tmep 1")
        assert chat.app.prompt.text == "/tmep 1"
        assert "did you mean /temp?" in chat.toasts[0]
        assert not chat.backend.requests


async def test_wide_characters_are_edited_whole(open_chat):
    async with open_chat() as chat:
        await chat.type("你好👍")
        await chat.press("backspace", "backspace")
        assert chat.app.prompt.text == "你"


def press_at_once(chat, *keys):
    """Keys that arrive in one piece, as over a slow line."""
    for key in keys:
        chat.app.post_message(events.Key(key, key if len(key) == 1 else None))


async def test_keys_that_arrive_together_act_in_their_order(open_chat):
    async with open_chat() as chat:
        press_at_once(chat, *"teh", "backspace", "backspace", *"he", "left", "left", "x", "end", "ctrl+j", "z")
        await chat.until(lambda: "z" in chat.app.prompt.text)
        assert chat.app.prompt.text == "txhe\nz"
        press_at_once(chat, "ctrl+c", *"next", "alt+up", "ctrl+w", *"word")
        await chat.until(lambda: "word" in chat.app.prompt.text)
        assert chat.app.prompt.text == "word"
        assert chat.session.sampling["temperature"].value == pytest.approx(0.85)
        press_at_once(chat, "enter", *"draft")
        await chat.until(lambda: chat.backend.requests)
        assert chat.backend.requests[0].messages[-1].content == "word"
        await chat.until(lambda: chat.app.prompt.text == "draft")


async def test_selected_text_of_the_input_is_copied(open_chat):
    async with open_chat() as chat:
        await chat.type("some words")
        await chat.press("ctrl+shift+left", "ctrl+c")
        assert chat.app.clipboard == "words"
        assert chat.app.prompt.text == "some words"


async def test_typing_works_while_the_model_loads(open_chat):
    async with open_chat(ready=False) as chat:
        await chat.press("h", "i")
        chat.backend.loading("compiling kernels", 1, 20)
        await chat.sees("compiling")
        await chat.press("space", "y")
        assert chat.app.prompt.text == "hi y"


async def test_a_long_draft_is_counted_bit_by_bit_and_one_that_is_too_long_stands_out(open_chat, monkeypatch):
    async with open_chat(backend={"context_length": 100}) as chat:
        answers = [None, None, 101]
        monkeypatch.setattr(chat.backend, "count_tokens", lambda text: answers.pop(0))
        await chat.type("A long draft")
        await chat.until(lambda: chat.app.writing.bar.count.text == "101 tokens")
        assert answers == []
        assert chat.app.writing.bar.count.render().spans[0].style == "$warning"
