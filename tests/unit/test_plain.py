"""The chat in lines: what is said, in what order, and that nothing in it moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_chat.chat.errors import ModelNotFoundError
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.cli.models import openable
from tinyllm_chat.cli.plain import WELCOME, PlainChat
from tinyllm_chat.cli.spoken import Spoken


def spoken(*pieces: str) -> list[str]:
    voice = Spoken()
    return [said for said in [*map(voice.feed, pieces), voice.end()] if said]


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (("One. Two", " three. Fo", "ur"), ["One.", " Two three.", " Four\n"]),
        (("A list\n- a", "\n- b\n"), ["A list\n", "- a\n- b\n"]),
        (("3.14 is pi",), ["3.14 is pi\n"]),
        (
            ("See:\n``", "`python\nx = 1. y\n", "```\nSo. "),
            ["See:\n", "Code, python:\nx = 1. y\n", "End of code.\nSo.", " \n"],
        ),
        (("```\nx",), ["Code:\n", "x\nEnd of code.\n"]),
        (("~~~~\n```\n~~~~\n",), ["Code:\n```\nEnd of code.\n"]),
        (("重力。它",), ["重力。", "它\n"]),
        (("\x1b[31mred",), ["[31mred\n"]),
        ((), []),
    ],
)
def test_sentences_lines_and_code_in_words(pieces: tuple[str, ...], said: list[str]) -> None:
    assert spoken(*pieces) == said


@given(st.lists(st.text("ab. \n`~", max_size=8), max_size=12))
def test_pieces_do_not_matter_and_no_text_is_lost(pieces: list[str]) -> None:
    assert "".join(spoken(*pieces)) == "".join(spoken("".join(pieces)))
    text = "".join(pieces)
    if "`" not in text and "~" not in text:
        assert "".join(spoken(*pieces)).rstrip("\n") == text.rstrip("\n")


class Conversation:
    """A plain chat with a scripted model, to which lines are typed."""

    def __init__(self, *answers: Any, model: str | None = "/models/a.gguf", **session: Any) -> None:
        self.backend = ScriptedBackend(answers or ("Hello there.",), automatic=True)
        self.session = Session(self.backend, session.pop("store", None), Settings(), **session)
        self.model = Path(model) if model is not None else None
        self.output: list[str] = []
        self.find: Callable[[str], str] = str

    def with_lines(self, *lines: str | Callable[[], str], warnings: tuple[str, ...] = ()) -> list[str]:
        """What is said when these lines are typed one after the other."""
        typed = iter(lines)

        def read(prompt: str) -> str:
            self.output.append(f"{prompt}\n")
            line = next(typed, None)
            if line is None:
                raise EOFError
            return line() if callable(line) else line

        chat = PlainChat(self.session, read=read, write=self.output.append, clock=lambda: 0.0, find=self.find)
        chat.run(self.model, list(warnings))
        self.session.close()
        return "".join(self.output).splitlines()


def test_a_conversation_from_start_to_end() -> None:
    lines = Conversation("Hello. How are you?").with_lines("Hi", warnings=("config.toml: a mistake",))
    assert lines[:2] == [WELCOME, "Warning: config.toml: a mistake"]
    assert "SmolLM2-135M-Instruct is open, with 8192 tokens of context." in lines
    asked = lines.index("You: ")
    assert lines[asked + 1] == "Hello. How are you?"
    assert lines[asked + 2].startswith("Answer finished. 4 tokens, ")
    assert lines[-2:] == ["You: ", ""]
    assert not any(character in "─│━┃▌·⠋✓" for line in lines for character in line)


def test_an_answer_can_be_stopped_and_the_chat_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Conversation("One two three.", "Again.")
    drain = chat.session.drain
    steps = iter([lambda: chat.backend.step(2), _interrupt])

    def drained() -> Any:
        if chat.session.busy:
            next(steps, chat.backend.finish)()
        return drain()

    def typed() -> str:
        chat.backend.automatic = False
        return "Hi"

    monkeypatch.setattr(chat.session, "drain", drained)
    text = "\n".join(chat.with_lines(typed, "More"))
    assert "Answer stopped. 2 tokens" in text
    assert "Again.\nAnswer finished" in text


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_what_goes_wrong_is_one_line() -> None:
    text = "\n".join(
        Conversation(RuntimeError("not enough memory")).with_lines(
            "Hi", "/nothing", "/top_k many", "/set top_q 1", "/regen now", "/save /dev/null/x.md"
        )
    )
    assert "Error: not enough memory" in text
    assert "Error: there is no command /nothing" in text
    assert "Error: top_k: expected a whole number" in text
    assert "Error: top_q: there is no such setting, did you mean top_k?" in text or "did you mean top_p?" in text
    assert "Error: /dev/null/x.md" in text


def test_settings_and_other_answers() -> None:
    chat = Conversation("First.", "Second.")
    lines = chat.with_lines(
        "/top_k 7", "/temp 0.5", "Hi", "/regen", "/previous", "/next", "/settings top_k", "/think on"
    )
    assert "top_k: 7, session" in lines
    assert "temperature: 0.50, session" in lines
    assert lines.count("Answer 1 of 2:") == 1
    assert lines.count("Answer 2 of 2:") == 1
    assert any("Choose among the k likeliest" in line and "Expected: a whole number" in line for line in lines)
    assert "Thinking: on." in lines


def test_help_names_what_works_here_and_the_rest_says_why_not() -> None:
    lines = Conversation().with_lines("/help", "/palette", "/quit", "never read")
    assert any(line.startswith("/regen: ") for line in lines)
    assert not any(line.startswith("/palette: ") for line in lines)
    assert "/palette needs the screen: start without --plain." in lines
    assert lines[-1] == "You: "


def test_without_a_model_a_message_is_not_lost_in_silence() -> None:
    lines = Conversation(model=None).with_lines("Hi", "/model /models/a.gguf", "Hi")
    assert any("the message was not sent" in line for line in lines)
    assert "Hello there." in lines


def test_a_model_is_opened_by_its_name_and_stays_where_there_is_none_of_a_name() -> None:
    def find(name: str) -> str:
        if name != "small":
            raise ModelNotFoundError(f"{name}: no such file")
        return "/models/small.gguf"

    chat = Conversation(model=None)
    chat.find = find
    lines = chat.with_lines("/model small", "/model large", "Hi")
    assert chat.backend.opened == ["/models/small.gguf"]
    assert "large: no such file" in " ".join(lines)
    assert "Hello there." in lines


def test_a_file_that_is_no_model_does_not_cost_the_open_one(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, but not much of it")
    chat = Conversation()
    chat.find = lambda name: str(openable(name, Paths(tmp_path, tmp_path, tmp_path, tmp_path)))
    lines = chat.with_lines(f"/model {broken}", "Hi")
    assert len(chat.backend.opened) == 1
    assert any(line.startswith(f"Error: {broken}: ") for line in lines)
    assert "Hello there." in lines


def test_every_command_that_has_a_handler_exists() -> None:
    handlers = {name.removeprefix("_do_") for name in vars(PlainChat) if name.startswith("_do_")}
    assert handlers == {entry.name for entry in PlainChat.commands()}


def test_a_full_context_is_told_with_what_can_be_done() -> None:
    chat = Conversation("Yes.", "Yes.", "Yes.", "They agreed.", "No.")
    chat.backend.context_length = 500
    long, more = " ".join(["word"] * 300), " ".join(["more"] * 160)
    first = " ".join(["First"] * 30)
    lines = chat.with_lines("a " * 600, first, long, more, "/regen", "/summarize", "/summary", more, "/undrop")
    text = "\n".join(lines)
    assert "Not sent: this message has 604 tokens; 500 fit" in lines
    refused = lines.index("Not sent: this message has 164 tokens, the chat before it 348; 500 fit")
    assert [line.partition(":")[0] for line in lines[refused + 1 : refused + 4]] == ["/new", "/drop", "/summarize"]
    assert "Summarizing 2 messages." in text
    assert "Note: a summary stands for 2 messages, 39 tokens" in lines
    assert "Summary: They agreed." in lines
    assert "The model sees the whole chat again." in lines
    assert "No." in lines


def test_an_answer_that_goes_on_without_the_oldest_turns_is_heard_to_its_end() -> None:
    chat = Conversation("Yes.", " ".join(["on"] * 300), "And so on.")
    chat.backend.context_length = 200
    lines = chat.with_lines("/context-full drop-oldest", "a " * 50, "Go")
    assert lines[-3].startswith("Answer finished. 3 tokens")
    assert any(line.startswith("Answer stopped: the context is full. ") for line in lines)


def test_presets_undo_and_the_name_of_the_chat() -> None:
    lines = Conversation("First.").with_lines(
        "/preset",
        "/preset precise",
        "/next-preset",
        "/preset wild",
        "Hi",
        "/rename Greetings",
        "/pin",
        "/delete",
        "/undo",
    )
    assert "Preset: none." in lines
    assert "There are precise, balanced, creative, none." in lines
    assert any(line.startswith("Preset: precise: temperature 0.20") for line in lines)
    assert any(line.startswith("Preset: balanced: ") for line in lines)
    assert any(line.startswith("Error: there is no preset 'wild'") for line in lines)
    assert {"This chat is Greetings.", "Pinned.", "Deleted the last message; /undo brings it back."} <= set(lines)
    assert "Undone: the deletion; /redo does it again." in lines


def test_files_go_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("one two")
    Path("picture.png").write_bytes(b"\x89PNG")
    chat = Conversation()
    lines = chat.with_lines("Sum @notes.txt", "See @picture.png")
    assert "With the file notes.txt, 7 B." in lines
    assert chat.backend.requests[0].messages[-1].content.startswith("notes.txt:\n```\none two\n")
    assert "Error: picture.png: not attached: it is no UTF-8 text" in lines
    assert len(chat.backend.requests) == 1


def test_a_file_to_import_has_to_be_named() -> None:
    assert "Error: /import needs the name of a file" in Conversation().with_lines("/import")
