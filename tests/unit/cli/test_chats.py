"""Chats from the command line: found, renamed, deleted, exported, resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import run, the_line
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.places import RecentModels
from tinyllm_chat.chat.safe_text import printable
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli import chat


@pytest.fixture
def two_chats() -> tuple[str, str]:
    """A chat about gravity and one about light, in the folder of the tests."""
    places = Paths.default()
    store = TranscriptStore(places.transcripts, places.exports)
    ids = []
    for question, answer in (("What is gravity?", "Spacetime is curved."), ("What is light?", "A \x1b[31mwave.")):
        conversation = Conversation()
        asked = conversation.new_message("user", question, None)
        conversation.new_message("assistant", "", asked.id).extend(answer, ())
        transcript = store.create(conversation, question, None)
        transcript.close()
        ids.append(transcript.id)
    return ids[0], ids[1]


def test_chats_lists_and_searches(two_chats: tuple[str, str]) -> None:
    gravity, light = two_chats
    listed = run("chats").stdout
    assert all(text in listed for text in (gravity, light, "What is gravity?", "2 messages"))
    found = run("chats", "curv", "space").stdout
    assert gravity in found
    assert light not in found
    assert "    Spacetime is curved." in found
    assert "\x1b" not in run("chats", "wave").stdout
    (chat,) = json.loads(run("chats", "light", "--json").stdout)["chats"]
    assert (chat["id"], chat["title"], chat["messages"], chat["problem"]) == (light, "What is light?", 2, None)


def test_a_chat_goes_on_with_the_model_that_was_opened_last(
    two_chats: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gravity, light = two_chats
    opened: list[tuple[str | None, Path | None]] = []
    monkeypatch.setattr(chat, "_require_terminal", lambda: None)
    monkeypatch.setattr(chat, "_show_screen", lambda session, model, *_: opened.append((session.chat_id, model)))
    run("--continue")
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"GGUF")
    RecentModels(Paths.default()).add(model)
    for arguments in (["--continue"], ["--resume", "gravity"], []):
        run(*arguments)
    assert opened == [(light, None), (light, model), (gravity, model), (None, None)]


def test_a_document_on_a_terminal_steers_nothing(two_chats: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe it is what a file of it would be."""
    _, light = two_chats
    places = Paths.default()
    for format in ("md", "json", "html"):
        piped = run("export", light, "-o", "-", "--format", format).stdout
        saved = places.data / f"chat.{format}"
        assert run("export", light, "-o", str(saved)).exit_code == 0
        assert piped.encode() == saved.read_bytes()
        with monkeypatch.context() as terminal:
            terminal.setattr("tinyllm_chat.cli.text.is_terminal", lambda: True)
            shown = run("export", light, "-o", "-", "--format", format).stdout
        assert shown == printable(piped)


def test_a_path_on_a_terminal_steers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYLLM_DATA_DIR", "/a\x1b]52;c;eA==\x07b")
    assert "\x1b]52" in run("--paths").stdout
    monkeypatch.setattr("tinyllm_chat.cli.text.is_terminal", lambda: True)
    assert "/a]52;c;eA==b/models" in run("--paths").stdout
    assert "\x1b" not in run("--paths").stdout


def test_chats_says_when_there_are_none() -> None:
    assert run("chats").stderr == "there are no chats yet\n"
    assert run("chats", "gravity").stderr == "no chat has all of these words\n"


def test_chats_are_renamed_pinned_deleted_and_brought_back(two_chats: tuple[str, str]) -> None:
    gravity, light = two_chats
    assert run("chats", "--rename", "gravity", "Heavy things").exit_code == 0
    assert run("chats", "--pin", gravity).exit_code == 0
    assert run("chats").stdout.splitlines()[0].startswith(gravity)
    assert "* Heavy things" in run("chats").stdout
    assert run("chats", "--unpin", "heavy").exit_code == 0
    assert run("chats", "--delete", "light").exit_code == 0
    assert light not in run("chats").stdout
    listed = run("chats", "--deleted").stdout
    assert light in listed
    assert "What is light?" in listed
    assert run("chats", "--restore", light).exit_code == 0
    assert light in run("chats").stdout


@pytest.mark.parametrize(
    "arguments", [["--delete", "what"], ["--pin", "nothing"], ["--restore", "x"], ["x", "--deleted"]]
)
def test_chats_refuses_in_one_line(two_chats: tuple[str, str], arguments: list[str]) -> None:
    result = run("chats", *arguments)
    assert result.exit_code != 0
    the_line(result.stderr)


def test_resume_takes_words_of_a_title(two_chats: tuple[str, str], tiny: Path) -> None:
    gravity, light = two_chats
    line = the_line(run(tiny, "--resume", "what is", "-p", "x").stderr)
    assert "2 chats match" in line
    assert gravity in line
    assert light in line


def test_a_chat_is_exported_and_imported(two_chats: tuple[str, str], tmp_path: Path) -> None:
    gravity, _ = two_chats
    path = Path(run("export", "gravity").stdout.strip())
    assert path.parent == Paths.default().exports
    assert "Spacetime is curved." in path.read_text()
    document = json.loads(run("export", gravity, "--format", "json", "-o", "-").stdout)
    assert document["messages"][0] == {"role": "user", "content": "What is gravity?"}
    page = tmp_path / "chat.html"
    assert run("export", "gravity", "-o", page).exit_code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    imported = run("import", path)
    chat = imported.stdout.split()[0]
    assert chat in run("chats", "curved").stdout
    assert "web pages are only written" in the_line(run("import", page).stderr)
    assert "no chat has that id" in the_line(run("export", "magnets").stderr)
