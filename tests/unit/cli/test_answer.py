"""One answer: what goes to standard output, to a terminal, and to disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import tiny_model
from support.command_line import answered, run, run_process, the_line
from tinyllm_chat.chat.catalogue import CatalogueEntry
from tinyllm_chat.chat.models import resolve_model
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.safe_text import printable
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli import answer as answer_command
from tinyllm_chat.cli.failure import Failure


def test_answer_is_all_there_is_on_standard_output(tiny: Path) -> None:
    first = run_process(tiny, "-p", "Hi", "-n", "12", "--seed", "7")
    again = answered(tiny, "-p", "Hi", "-n", "12", "--seed", "7")
    assert (first.code, again.code) == (0, 0), first.err
    assert first.out
    assert first.out == again.out
    assert "-n" in the_line(first.err)  # the answer was cut at that length


def test_prompt_from_standard_input_and_file_is_the_same_prompt(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("What is it?\n")
    flags = ["-n", "8", "--temp", "0"]
    answers = [
        answered(tiny, *flags, "-p", "What is it?"),
        run_process(tiny, *flags, stdin=b"What is it?\n"),
        answered(tiny, *flags, "-f", tmp_path / "prompt.txt"),
        answered(tiny, *flags, "-f", "-", stdin=b"What is it?\r\n"),
    ]
    assert all(answer.code == 0 for answer in answers)
    assert len({answer.out for answer in answers}) == 1


def test_raw_skips_the_chat_template(tmp_path: Path) -> None:
    """What the file would say through its template is what is said with --raw by writing the template out."""
    tiny = tiny_model.write(tmp_path / "raw.gguf", "{{ messages[0].content }} and")
    flags = ["-n", "8", "--temp", "0"]
    templated = answered(tiny, *flags, "-p", "Hi")
    raw = answered(tiny, *flags, "--raw", "-p", "Hi and")
    assert templated.out == raw.out != ""
    assert answered(tiny, *flags, "--raw", "-p", "Hi").out != raw.out


def test_prompt_that_is_no_text(tiny: Path) -> None:
    result = run(tiny, stdin=b"abc\xff")
    assert result.exit_code == 1
    assert "standard input: expected UTF-8" in the_line(result.stderr)


def test_an_answer_leaves_no_transcript_but_a_continued_chat_grows(tiny: Path, folders: Path) -> None:
    assert answered(tiny, "-p", "Hi", "-n", "4").code == 0
    assert not list(folders.rglob("*.jsonl"))
    result = run("--continue", tiny, "-p", "Hi")
    assert result.exit_code == 1
    assert "no chat to continue" in the_line(result.stderr)


def test_a_continued_chat_grows_by_the_prompt_and_its_answer(tiny: Path, folders: Path) -> None:
    session = Session(
        ScriptedBackend(["An old answer."]), TranscriptStore(folders / "data" / "transcripts"), Settings()
    )
    session.open_model("scripted")
    session.send("An old question")
    while not session.conversation.path() or session.busy:
        session.drain()
    session.close()
    ran = run_process("--continue", tiny, "-p", "A new question", "-n", "4", "--temp", "0")
    assert ran.code == 0, ran.err
    (transcript,) = folders.rglob("*.jsonl")
    records = [json.loads(line) for line in transcript.read_text().splitlines()]
    asked = [record["content"] for record in records if record.get("role") == "user"]
    assert asked == ["An old question", "A new question"]
    assert "".join(record["text"] for record in records if record["type"] == "delta").endswith(ran.out)


def test_a_prompt_that_does_not_fit_is_an_error() -> None:
    session = Session(ScriptedBackend(context_length=100), None, Settings())
    with pytest.raises(Failure, match="this message has 205 tokens; 100 fit"):
        answer_command.answer(session, Path("m.gguf"), "word " * 200)


def test_an_answer_that_goes_on_where_the_context_was_full_is_written_to_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    backend = ScriptedBackend(["Yes.", " ".join(["on"] * 300), " and so on."], context_length=200)
    session = Session(backend, None, Settings({CONFIG: {"context_full": "drop-oldest"}}))
    answer_command.answer(session, Path("m.gguf"), "a " * 50)
    answer_command.answer(session, Path("m.gguf"), "Go")
    assert capsys.readouterr().out.endswith("on on and so on.")


def test_a_catalogue_model_is_downloaded_before_it_answers(
    folders: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(entry: CatalogueEntry, models: Path, progress: Callable[[str, int, int], None]) -> Path:
        progress("downloading", 1, entry.size)
        models.mkdir(parents=True)
        return tiny.rename(models / entry.file)

    monkeypatch.setattr("tinyllm_chat.cli.models.pull", fetched)
    result = run("smollm2", "-p", "Hi", "-n", "4")
    assert result.exit_code == 0, result.stderr
    assert result.stdout
    assert resolve_model("smollm2", Paths.default()) == next((folders / "data" / "models").iterdir())


ENDLESS = ["-c", "30000", "--temp", "0", "--raw", "-p", "aaaa"]


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A model that writes on for as long as anybody reads."""
    return tiny_model.write(tmp_path / "endless.gguf", context_length=30000, extra={"tokenizer.ggml.eos_token_id": 0})


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl+C is a signal elsewhere")
def test_ctrl_c_while_answering_ends_with_130_and_keeps_quiet(endless: Path) -> None:
    command = [sys.executable, "-m", "tinyllm_chat", str(endless), *ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b""


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl+C is a signal elsewhere")
def test_ctrl_c_while_waiting_for_the_prompt(tiny: Path) -> None:
    source = (
        "import os, signal, threading, tinyllm_chat.cli.chat\n"
        "from tinyllm_chat.cli.program import program\n"
        "threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        f"program([{str(tiny)!r}], prog_name='tinyllm-chat')\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="a closed pipe is another error there")
def test_a_reader_that_goes_away_ends_it_without_a_word(endless: Path) -> None:
    command = [sys.executable, "-m", "tinyllm_chat", str(endless), *ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_gets_no_control_characters_a_pipe_gets_the_text_as_it_is(tiny: Path) -> None:
    import pty

    flags = [str(tiny), "--raw", "-p", "Hi", "-n", "120", "--seed", "1", "--temp", "3", "--min-p", "0", "--top-p", "1"]
    piped = run_process(*flags)
    assert printable(piped.out) != piped.out  # else this would prove nothing
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "tinyllm_chat", *flags]
    with subprocess.Popen(command, stdout=terminal, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(master, 4096):
                shown += part
        assert process.wait(60) == 0
    os.close(master)
    assert shown.decode().replace("\r\n", "\n").rstrip("\n") == printable(piped.out).rstrip("\n")


def test_resume_of_a_chat_that_is_not_there(tiny: Path) -> None:
    result = run(tiny, "--resume", "../../etc/passwd", "-p", "Hi")
    assert result.exit_code == 1
    assert "no chat has that id" in the_line(result.stderr)
