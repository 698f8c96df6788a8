"""The input: folded pastes, attached files, what comes back with Up, drafts that outlive the program, editors."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from textual import events
from textual.widgets import TextArea
from tinyllm_chat.chat.drafts import Draft, DraftKeeper
from tinyllm_chat.chat.prompt_history import PromptHistory
from tinyllm_chat.tui.system_prompt import SystemPromptScreen

LINES = "\n".join(f"line {number}" for number in range(312))


async def paste(chat, text: str) -> None:
    chat.app.post_message(events.Paste(text))
    await chat.pilot.pause()


def asked(chat) -> str:
    return chat.backend.requests[-1].messages[-1].content


async def test_a_large_paste_is_folded_and_sent_in_full(open_chat):
    async with open_chat() as chat:
        await chat.press(*"See")
        await paste(chat, f" {LINES}")
        assert chat.app.prompt.text == "See[pasted 312 lines, 624 tokens]"
        await chat.press(*" it")
        counted = chat.session.count_tokens(f"See {LINES} it")
        await chat.until(lambda: f"{counted} tokens" in "\n".join(chat.screen))
        await chat.press("enter")
        await chat.until(lambda: chat.backend.requests)
        assert asked(chat) == f"See {LINES} it"


async def test_a_small_paste_is_text(open_chat):
    async with open_chat() as chat:
        await paste(chat, "a\r\nb\x1b[1m")
        assert chat.app.prompt.text == "a\nb␛[1m"


async def test_a_folded_paste_is_unfolded_or_taken_away_whole(open_chat):
    async with open_chat() as chat:
        await paste(chat, LINES)
        await paste(chat, LINES.replace("line", "word"))
        assert chat.app.prompt.text.endswith("[pasted 312 lines, 624 tokens, 2]")
        await chat.press("backspace")
        assert chat.app.prompt.text == "[pasted 312 lines, 624 tokens]"
        await chat.press("alt+x")
        assert chat.app.prompt.text == LINES
        await chat.press("alt+x")
        assert chat.toasts[-1].startswith("Nothing is folded")


async def test_a_paste_of_megabytes_does_not_stop_the_screen(open_chat):
    async with open_chat(backend={"context_length": 10_000_000}) as chat:
        book = "All work and no play makes a dull chat.\n" * 130_000
        await paste(chat, book)
        assert chat.app.prompt.text == "[pasted 130,000 lines, 5.2 MB]"
        await chat.press("enter")
        await chat.until(lambda: chat.backend.requests)
        assert asked(chat) == book
        await chat.sees("more characters, which the model reads too")


async def test_a_file_goes_with_the_message(open_chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("one two\n")
    async with open_chat() as chat:
        await chat.press(*"Sum @no")
        assert "notes.txt" in "\n".join(chat.screen)
        await chat.press("tab")
        assert chat.app.prompt.text == "Sum @notes.txt "
        await chat.until(lambda: "goes with the message" in "\n".join(chat.screen))
        assert "+ notes.txt" in "\n".join(chat.screen)
        await chat.press("enter")
        await chat.until(lambda: chat.backend.requests)
        assert asked(chat) == "notes.txt:\n```\none two\n```\n\nSum @notes.txt "
        await chat.sees("+ notes.txt  8 B, 1 line")
        Path("notes.txt").unlink()
        chat.backend.finish()
        await chat.until(lambda: not chat.session.busy)
        await chat.press("alt+e", "!", "enter")
        await chat.until(lambda: len(chat.backend.requests) == 2)
        assert asked(chat).startswith("notes.txt:\n```\none two\n")


async def test_a_file_that_cannot_go_is_refused_and_the_text_stays(open_chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("picture.png").write_bytes(b"\x89PNG")
    async with open_chat() as chat:
        await chat.send("Look at @picture.png")
        assert chat.toasts == ["picture.png: not attached: it is no UTF-8 text"]
        assert chat.app.prompt.text == "Look at @picture.png"
        assert not chat.backend.requests


async def test_what_is_pasted_names_no_files(open_chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("secret.txt").write_text("secret")
    async with open_chat() as chat:
        await paste(chat, f"{LINES}\n@secret.txt\n")
        await chat.press("enter")
        await chat.until(lambda: chat.backend.requests)
        assert "\nsecret\n" not in asked(chat)


async def test_what_is_refused_comes_back_as_it_was_typed_with_its_files(open_chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("one two\n")
    Path("secret.txt").write_text("secret")
    async with open_chat(backend={"context_length": 200}) as chat:
        await chat.press(*"/x")
        await chat.type("Sum @notes.txt ")
        await paste(chat, f"{LINES}\n@secret.txt\n")
        typed = chat.app.prompt.text
        await chat.press("enter")
        await chat.sees("200 fit")
        assert chat.app.prompt.text == typed
        Path("notes.txt").unlink()
        await chat.press("backspace")  # the folded part, whole
        assert chat.app.prompt.text == "Sum @notes.txt "
        await chat.press("enter")
        await chat.until(lambda: chat.backend.requests)
        assert asked(chat) == "notes.txt:\n```\none two\n```\n\nSum @notes.txt "


async def test_what_waited_comes_back_with_its_files_and_labels(open_chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("one two\n")
    async with open_chat("A b c d e") as chat:
        await chat.ask("one", steps=1)
        for lines in (LINES, LINES.replace("line", "word")):
            await chat.type("@notes.txt ")
            await paste(chat, lines)
            await chat.press("enter")
        Path("notes.txt").unlink()
        await chat.press("escape")
        await chat.until(lambda: not chat.session.busy)
        label = "[pasted 312 lines, 624 tokens"
        assert chat.app.prompt.text == f"@notes.txt {label}]\n@notes.txt {label}, 2]"
        await chat.press("enter")
        await chat.until(lambda: len(chat.backend.requests) == 2)
        whole = f"@notes.txt {LINES}\n@notes.txt {LINES.replace('line', 'word')}"
        assert asked(chat) == f"notes.txt:\n```\none two\n```\n\n{whole}"


async def test_undo_gives_back_the_files_too(open_chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("one two\n")
    async with open_chat() as chat:
        await chat.ask("Sum @notes.txt")
        Path("notes.txt").unlink()
        await chat.press("alt+z")
        assert chat.app.prompt.text == "Sum @notes.txt"
        await chat.until(lambda: "goes with the message" in "\n".join(chat.screen))
        await chat.ask("Sum @notes.txt")
        assert asked(chat) == "Sum @notes.txt"  # typed anew: there is no such file


async def test_a_refused_edit_that_begins_with_a_slash_is_no_command(open_chat):
    async with open_chat(backend={"context_length": 200}) as chat:
        await chat.ask("one")
        await chat.press("alt+e")
        text = "/quit " + "word " * 300
        await chat.send(text)
        await chat.sees("200 fit")
        assert chat.app.prompt.text == text
        await chat.press("enter")  # still an edit
        await chat.until(lambda: chat.text.count("200 fit") == 2)
        assert chat.app.prompt.text == text


async def test_up_brings_back_what_earlier_sessions_sent(open_chat, tmp_path):
    path = tmp_path / "prompts.jsonl"
    async with open_chat(history=PromptHistory(path)) as chat:
        await chat.ask("first")
    async with open_chat(history=PromptHistory(path)) as chat:
        await chat.ask("second")
        await chat.type("draft")
        await chat.press("up", "up")
        assert chat.app.prompt.text == "first"
        await chat.press("down", "down")
        assert chat.app.prompt.text == "draft"


async def test_up_in_an_empty_input_takes_back_what_waits(open_chat):
    async with open_chat("A b c d e") as chat:
        await chat.ask("one", steps=1)
        await chat.send("two")
        await chat.send("three")
        await chat.press("up")
        assert (chat.app.prompt.text, chat.session.queued) == ("three", ["two"])
        assert "three" not in chat.text
        await chat.send("/unqueue")
        assert (chat.app.prompt.text, chat.session.queued) == ("two", [])
        await chat.press("ctrl+c")
        await chat.press("alt+w")
        assert chat.toasts[-1] == "no message waits"


async def test_a_draft_outlives_the_program(open_chat, tmp_path):
    async with open_chat(drafts=DraftKeeper(tmp_path)) as chat:
        await chat.press(*"half a ")
        await paste(chat, LINES)
        await chat.until(lambda: list(tmp_path.glob("*.json")))
        chat.app.writing._drafts._lock.release()  # as if it had crashed
        chat.app.writing._drafts = None
    async with open_chat(drafts=DraftKeeper(tmp_path)) as chat:
        assert chat.app.prompt.draft.whole == f"half a {LINES}"
        assert chat.app.prompt.text.startswith("half a [pasted 312 lines")
        await chat.press("enter")
        await chat.until(lambda: chat.backend.requests)
    assert list(tmp_path.iterdir()) == []


async def test_the_draft_goes_through_the_own_editor(open_chat, tmp_path, monkeypatch):
    script = tmp_path / "editor.py"
    script.write_text("import sys\nopen(sys.argv[1], 'a').write(' and more\\n')\n")
    monkeypatch.setenv("VISUAL", f"'{sys.executable}' '{script}'")
    async with open_chat() as chat:
        await chat.type("some text")
        await chat.press("ctrl+g")
        assert chat.toasts == ["this terminal cannot be given to an editor"]
        assert chat.app.prompt.text == "some text"
        monkeypatch.setattr(chat.app, "suspend", nullcontext)
        await chat.press("ctrl+g")
        assert chat.app.prompt.text == "some text and more"


@pytest.mark.parametrize("keys", [("alt+r",), ("shift+tab", "home", "e")])
async def test_the_system_prompt_has_a_small_editor(open_chat, keys):
    async with open_chat() as chat:
        await chat.send("/system Be brief.")
        await chat.ask("Hi")
        await chat.press(*keys)
        assert isinstance(chat.app.screen, SystemPromptScreen)
        await chat.press(*" And", "enter", "k", "ctrl+s")
        assert chat.session.conversation.system.content == "Be brief. And\nk"
        await chat.sees("▸ System prompt  Be brief. And k")
        await chat.press("alt+r", "x", "escape")
        assert chat.session.conversation.system.content == "Be brief. And\nk"
        await chat.press("escape")
        await chat.send("/system")
        chat.app.screen.query_one(TextArea).text = ""
        await chat.press("f4")
        await chat.ask("Hi")
        assert chat.backend.requests[-1].messages[0].role == "user"


def test_labels_that_begin_alike_unfold_each_to_its_own():
    assert Draft("[a][a, 2]", {"[a]": "x", "[a, 2]": "y"}).whole == "xy"
