"""Text of users and models is shown, never obeyed: no markup, no control characters, no Markdown that breaks things."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.tui.text import clean, clean_line
from tinyllm_chat.tui.widgets.markdown import MarkdownText

MARKUP = [
    "[red]not red[/red]",
    "[bold]x",
    "[/]",
    "[@click=app.quit]quit[/]",
    "[link=https://example.org]x[/link]",
    "[$primary]x[/]",
    "[[escaped]]",
    "\\[x]",
]


@pytest.mark.parametrize("text", MARKUP)
async def test_markup_is_text_everywhere(open_chat, text):
    info = {"name": f"Model {text}", "notes": (f"note {text}",)}
    async with open_chat(text, size=(120, 30), backend={"info": info}, warnings=[f"warning {text}"]) as chat:
        await chat.sees(f"note {text}")
        await chat.ask(text)
        await chat.until(lambda: chat.text.count(text.replace("\\[", "[")) >= 3)
        assert f"▌ warning {text}" in chat.text
        assert f"Model {text}" in chat.screen[0]
        chat.app.say(text)
        await chat.send("/tmep " + text)
        assert not chat.app._exit


async def test_clicking_text_that_looks_like_an_action_does_nothing(open_chat):
    async with open_chat("[@click=app.quit]quit[/]") as chat:
        await chat.ask("Go")
        row = next(number for number, line in enumerate(chat.screen) if "@click" in line)
        for column in range(2, 26):
            await chat.pilot.click(offset=(column, row))
        assert not chat.app._exit


def raw_output(chat):
    """What would be written to the terminal for the whole screen, as the driver gets it."""
    return "".join(strip.render(chat.app.console) for strip in chat.app.screen._compositor.render_strips())


CONTROL = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\x00e\x08f\x7fg\u202eh\u2066i\rj\x0bk\x85l\udcffm"


async def test_control_characters_never_reach_the_terminal(open_chat):
    info = {"name": CONTROL, "file_type": CONTROL, "notes": (CONTROL,)}
    answer = f"{CONTROL}\n\n```{CONTROL}\n{CONTROL}\n```\n\n[{CONTROL}](http://{CONTROL})\n\n| {CONTROL} |\n|---|\n"
    async with open_chat(answer, backend={"info": info}, warnings=[CONTROL]) as chat:
        chat.app.pane.show_queued([CONTROL])
        chat.app.say(CONTROL)
        await chat.ask(CONTROL)
        await chat.until(lambda: chat.text.count("␛]0;title␇b␛[2Jc\ufffd31md␀e␈f␡g\ufffdh\ufffdi") >= 2)
        output = raw_output(chat)
        output.encode()  # no lone surrogates
        for character in "\x07\x08\x00\x7f\x9b\x85\x0b\r\u202e\u2066":
            assert character not in output
        assert "\x1b]0" not in output
        assert "\x1b[2J" not in output


SCREENS = [
    "/settings",
    "/model",
    "/history",
    "/tree",
    "/theme",
    "/help",
    "/system",
    "/summary",
    "/token",
    f"/rename {CONTROL}",
    f"/attach {CONTROL}",
    f"/import /{CONTROL}",
    f"/save /{CONTROL}/x.md",
    f"/system {CONTROL}",
    f"/{CONTROL}",
]


async def test_no_screen_passes_them_on(open_chat, tmp_path):
    """Names of models, titles of chats, messages, prompts and settings: all hostile, on every screen there is."""
    store = TranscriptStore(tmp_path / "transcripts", tmp_path / "exports")
    for title in (CONTROL, "b" + CONTROL):
        conversation = Conversation()
        conversation.new_message("user", CONTROL, None)
        conversation.name = title
        store.create(conversation, title, None).close()
    info = {"name": CONTROL, "file_type": CONTROL, "notes": (CONTROL,)}
    async with open_chat(
        [CONTROL, CONTROL],
        size=(120, 36),
        backend={"info": info},
        store=store,
        chats=ChatLibrary(store, tmp_path / "state"),
        model=f"/{CONTROL}.gguf",
        settings={"system_prompt": CONTROL, "stop": (CONTROL,), "chat_template": CONTROL},
    ) as chat:
        await chat.ask(CONTROL)
        for command in SCREENS:
            await chat.send(command)
            await chat.press("down")
            harmless(raw_output(chat))
            while len(chat.app.screen_stack) > 1:
                await chat.press("escape")
            await chat.type("")


def harmless(output: str) -> None:
    """As the driver gets it: colours and the like, and nothing else that a terminal acts on."""
    output.encode()  # no lone surrogates
    assert not set(output) & set("\x00\x07\x08\x0b\x0c\r\x7f\x85\x90\x9b\x9d\u202e\u2066")
    assert set(re.findall("\x1b(.)", output, re.DOTALL)) <= {"["}
    assert set(re.findall("\x1b\\[[0-9;:]*([^0-9;:])", output)) <= {"m"}


async def test_an_answer_that_is_edited_steers_nothing_and_stays_what_it_is(open_chat):
    async with open_chat(CONTROL, size=(120, 30)) as chat:
        await chat.ask("Go")
        text = re.sub("[\r\x0b\x85]", "", CONTROL)  # which end a line in the input
        await chat.type(text)
        harmless(raw_output(chat))
        assert chat.app.prompt.text == text
        assert "␛[2Jc\ufffd31md␀e␈f␡g\ufffdh\ufffdi" in "\n".join(chat.screen)


LARGE = {
    "combining": "e" + "\u0301" * 10_000,
    "no width": "a\u200b\u200d\u2060\ufeff" * 5000,
    "one line": "x" * 200_000,
    "many lines": "\n" * 20_000 + "x",
    "tabs": "\t" * 20_000,
    "zeros": "\0" * 20_000,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
async def test_texts_without_an_end_are_shown_and_kept(open_chat, text):
    answer = [text[start : start + 5000] for start in range(0, len(text), 5000)]
    async with open_chat(answer, size=(80, 24), backend={"context_length": 1 << 22}) as chat:
        await chat.ask("Go")
        assert chat.session.conversation.leaf.content == text
        harmless(raw_output(chat))
        await chat.type(text)
        harmless(raw_output(chat))
        assert all(cell_len(line) <= 80 for line in chat.screen)


@given(st.text())
def test_clean_text_holds_nothing_that_steers_a_terminal(text):
    shown = clean(text)
    assert all(character in "\t\n" or not 0 <= ord(character) < 32 for character in shown)
    assert not any(0x7F <= ord(character) <= 0x9F or 0xD800 <= ord(character) <= 0xDFFF for character in shown)
    assert clean(shown) == shown
    assert "\n" not in clean_line(text)
    shown.encode()


HOSTILE = [
    ">" * 500 + " deep",
    "- " * 300 + "deep",
    "1. " * 300 + "deep",
    "*" * 2000,
    "`" * 2000,
    "[" * 2000,
    "![" * 500,
    "[a](<" * 300,
    "```" * 400,
    "~~~~\n```\n~~~\nnever closed",
    "| a " * 200 + "|\n" + "|---" * 200 + "|\n" + "| b " * 200 + "|",
    "|a|b|\n|-|-|\n|only one|",
    "<script>alert(1)</script>\n\n<!-- comment -->\n\n<b>bold</b>",
    "[a]: http://example.org\n\n[a]",
    "&#27;[31m &#x9b;31m &nbsp; &zwj;",
    "\\\x1b[31m",
    "#" * 7 + " seven",
    "***",
    "- [ ] task\n- [x] done",
    "```python\n" + "x = (" * 3000 + "\n```",
    "```no-such-language {.x onclick=y}\ncode\n```",
    "```\n" + "long " * 2000 + "\n```",
    "999999999. far",
    "1" * 400 + ". number",
    "a" * 20_000,
    "👨‍👩‍👧 ❤️ 1️⃣ 🇫🇷 \u200b\u200d\ufe0f e\u0301" * 50,
    "你好" * 2000,
    "\t- tab\n\t\t- tab\n",
    "javascript: [x](javascript:alert(1)) [y](data:text/html,z)",
]


async def test_hostile_markdown_is_shown_and_does_no_harm(open_chat):
    answers = [[text[start : start + 97] for start in range(0, len(text), 97)] for text in HOSTILE]
    async with open_chat(*answers, size=(80, 24), backend={"context_length": 1 << 20}) as chat:
        for number in range(len(HOSTILE)):
            await chat.ask(f"Number {number}")
            await chat.until(lambda number=number: f"Number {number}" in chat.text)
            raw_output(chat).encode()
        await chat.pilot.resize_terminal(30, 10)
        await chat.press("ctrl+home", "ctrl+end")
        raw_output(chat).encode()
        assert "\x1b[31m" not in chat.text
        assert "deep" in chat.text
        assert "你好" in chat.text


async def test_html_and_definitions_are_shown(open_chat):
    async with open_chat("<b>bold</b> <!-- hidden? -->\n\n[a]: http://example.org 'title'") as chat:
        await chat.ask("Go")
        await chat.sees("<b>bold</b> <!-- hidden? -->")
        await chat.sees("[a]: http://example.org 'title'")


async def test_links_show_where_they_lead_and_are_not_opened(open_chat, monkeypatch):
    answer = "See [your bank](https://evil.example/a'b\")x) and ![pic](http://p.example/1)."
    async with open_chat(answer, size=(140, 30)) as chat:
        opened = []
        monkeypatch.setattr(chat.app, "open_url", lambda *arguments, **more: opened.append(arguments))
        await chat.ask("Go")
        await chat.sees("your bank (https://evil.example/")
        await chat.sees("pic (http://p.example/1)")
        row = next(number for number, line in enumerate(chat.screen) if "your bank" in line)
        await chat.pilot.click(offset=(chat.screen[row].index("bank"), row))
        await chat.until(lambda: chat.app.clipboard.startswith("https://evil.example/"))
        assert not opened


BLOCKS = ["\n", "\n\n", "- item ", "1. one ", "> quote ", "```py\n", "```\n", "~~~\n", "~~~ two words\n", "# Title "]
INLINE = ["text ", " **bold** ", "`code` ", "*em*", "***", "  ", "- ", "* * *", "\t", "    code", "deeper\n    - "]
TABLE = "| a | b |\n|---|---|\n| cell | cell |\n"
MARKDOWN = st.lists(st.sampled_from([*BLOCKS, *INLINE, TABLE]), max_size=25)


@given(MARKDOWN, st.integers(1, 120))
def test_any_markdown_fits_in_any_width(parts, width):
    document = MarkdownText()
    document.append("".join(parts))
    for piece in document.pieces:
        for line in piece.lines(width):
            assert "\n" not in line.plain
            assert line.cell_length <= max(2, width)


@given(MARKDOWN, st.integers(12, 120))
def test_no_word_of_any_markdown_is_lost(parts, width):
    text = "".join(parts)
    document = MarkdownText()
    document.append(text)
    shown = " ".join(line.plain for piece in document.pieces for line in piece.lines(width))
    for word in ("item", "one", "quote", "Title", "text", "bold", "code", "deeper", "cell", "two"):
        assert shown.count(word) >= text.count(word), word
