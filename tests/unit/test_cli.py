"""The command line: flags, verbs, exit codes, and one clear line for everything that is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support import gguf_files, lora_files, tiny_model
from tinyllm_chat import __version__
from tinyllm_chat.chat.catalogue import CatalogueEntry
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.models import resolve_model
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli import answer as answer_command
from tinyllm_chat.cli import chat as chat_command
from tinyllm_chat.cli.failure import Failure
from tinyllm_chat.cli.program import program
from tinyllm_chat.cli.text import one_line, printable, size
from tinyllm_chat.cli.verbs import VERBS
from tinyllm_engine.model import Model

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Config, data and state below a fresh folder; the kernel cache stays where it is, compiling takes seconds."""
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"TINYLLM_{name}_DIR", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_model.write(tmp_path / "tiny.gguf")


def run(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(program, [str(argument) for argument in arguments], input=stdin, prog_name="tinyllm-chat")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def run_process(*arguments: str | Path, stdin: bytes = b"") -> Ran:
    """The real program in a process of its own."""
    command = [sys.executable, "-m", "tinyllm_chat", *(str(argument) for argument in arguments)]
    ran = subprocess.run(command, input=stdin, capture_output=True, timeout=240, check=False)
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def answered(*arguments: str | Path, stdin: bytes = b"") -> Ran:
    """The same in this process, where the engine is there already."""
    result = run(*arguments, stdin=stdin)
    return Ran(result.exit_code, result.stdout, result.stderr)


def the_line(text: str) -> str:
    """The one line that standard error holds."""
    assert "Traceback" not in text
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("tinyllm-chat: ")
    return lines[0]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs the program up to the point where it knows what is wanted; returns that, without what was not given."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(chat_command, "run", lambda **arguments: seen.append(arguments))

    def ask(*arguments: str) -> dict[str, Any]:
        result = run(*arguments)
        assert result.exit_code == 0, result.stderr
        return {name: value for name, value in seen.pop().items() if value is not None and value is not False}

    return ask


# Flags


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["m.gguf"], {"positional": "m.gguf"}),
        (["-m", "m.gguf"], {"model": "m.gguf"}),
        (["-s", "5", "-sys", "text"], {"seed": 5, "system_prompt": "text"}),
        (["-sys", "text", "-s", "5"], {"seed": 5, "system_prompt": "text"}),
        (["-s5", "-sys=text"], {"seed": 5, "system_prompt": "text"}),
        (["--system-prompt", "text", "--seed", "-1"], {"seed": -1, "system_prompt": "text"}),
        (["-c", "4096", "-n", "-1", "-t", "3"], {"context_length": 4096, "max_tokens": 0, "threads": 3}),
        (
            ["--ctx-size", "1", "--n-predict", "2", "--threads", "4"],
            {"context_length": 1, "max_tokens": 2, "threads": 4},
        ),
        (["--temp", "0.5", "--top-k", "7", "--top-p", ".9"], {"temperature": 0.5, "top_k": 7, "top_p": 0.9}),
        (
            ["--temperature", "1", "--min-p", "0.1", "--typical", "0.5"],
            {"temperature": 1.0, "min_p": 0.1, "typical_p": 0.5},
        ),
        (["--repeat-penalty", "1.1", "--repeat-last-n", "-1"], {"repeat_penalty": 1.1, "repeat_last_n": -1}),
        (
            ["--presence-penalty", "-1", "--frequency-penalty", "1"],
            {"presence_penalty": -1.0, "frequency_penalty": 1.0},
        ),
        (["-ctk", "q8_0", "--cache-type-v", "q4_0"], {"cache_type_k": "q8_0", "cache_type_v": "q4_0"}),
        (["-p", "Hi", "-f", "x.txt", "--raw"], {"prompt": "Hi", "file": "x.txt", "raw": True}),
        (["--continue"], {"continue_last": True}),
        (["--resume", "20260101-000000-abcdef"], {"resume": "20260101-000000-abcdef"}),
        (["--stop", "a\\nb", "--reverse-prompt", "c"], {"stop": ("a\nb", "c")}),
        (["--dry-sequence-breaker", "none"], {"dry_sequence_breakers": ()}),
        (["-l", "7+1", "--logit-bias", "9-inf", "--ignore-eos"], {"logit_bias": ("7+1", "9-inf"), "ignore_eos": True}),
        (["--samplers", "top_k;temp", "--mirostat", "2"], {"samplers": ("top_k;temp",), "mirostat": 2}),
        (["--lora", "a.gguf", "--lora", "C:\\new.gguf:0.5"], {"lora": ("a.gguf", "C:\\new.gguf:0.5")}),
        (["--lora", "none"], {"lora": ()}),
        (["-j", "{}"], {"json_schema": "{}"}),
        (["-jf", "a.json", "-p", "x"], {"json_schema_file": "a.json", "prompt": "x"}),
        (["--grammar-file", "a.gbnf"], {"grammar_file": "a.gbnf"}),
        (["./pull"], {"positional": "./pull"}),
    ],
)
def test_flags(asked: Callable[..., dict[str, Any]], arguments: list[str], expected: dict[str, Any]) -> None:
    assert asked(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--temp", "-1"], "'--temp'"),
        (["--temp", "nan"], "'--temp'"),
        (["--top-p", "1.5"], "expected a number from 0 to 1"),
        (["-c"], "--continue opens the last chat"),
        (["-c", "smollm2"], "--continue opens the last chat"),
        (["-s", "You are a pirate"], "-sys is the system prompt"),
        (["-t", "template"], "-t is the number of threads"),
        (["--samplers", "top_q"], "found 'top_q'"),
        (["--grammar", "x", "-j", "{}"], "two grammars"),
        (["--mirostat", "3"], "expected a whole number from 0 to 2"),
        (["-n", "x"], "-n is the most tokens"),
        (["-r", "some-chat"], "--resume ID"),
        (["--tmep", "1"], "--temp"),
        (["--cache-type-k", "q1"], "q8_0"),
        (["one.gguf", "two.gguf"], "two.gguf"),
        (["one.gguf", "-m", "two.gguf"], "two models"),
        (["--continue", "--resume", "x"], "two chats"),
        (["--raw"], "--raw needs a prompt"),
        (["-p", "  "], "empty"),
        (["-p", "Hi"], "no model is named"),
        (["-t", "2", "doctor"], "verb comes first"),
        (["pull"], "pull --list"),
        (["inspect"], "MODEL"),
        (["bench", "m.gguf", "-p", "0"], "-p"),
        (["bench", "m.gguf", "--context", "-d", "5"], "--context takes"),
    ],
)
def test_usage_errors(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in the_line(result.stderr)
    assert result.stdout == ""


def test_no_terminal_names_the_flag_that_needs_none() -> None:
    result = run("smollm2")
    assert result.exit_code == 2
    assert "standard output is no terminal" in the_line(result.stderr)
    assert "-p TEXT" in result.stderr


def test_version() -> None:
    assert run("--version").stdout == f"tinyllm-chat {__version__}\n"


def test_help_names_every_verb_and_flag() -> None:
    text = run("--help").stdout
    for word in [*VERBS, "-sys", "--top-p", "--typical", "--resume", "--paths", "--raw"]:
        assert word in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str) -> None:
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: tinyllm-chat {verb}")


def test_paths_prints_every_folder_and_creates_none(folders: Path) -> None:
    result = run("--paths")
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["config"] == str(folders / "config" / "config.toml")
    assert lines["transcripts"] == str(folders / "data" / "transcripts")
    assert lines["log"] == str(folders / "state" / "tinyllm-chat.log")
    assert not (folders / "config").exists()


# What a name means


def test_names_that_mean_nothing_say_where_was_looked(folders: Path) -> None:
    result = run("smollm", "-p", "Hi")
    assert result.exit_code == 1
    line = the_line(result.stderr)
    assert str(folders / "data" / "models") in line
    assert "did you mean smollm2?" in line


def test_a_model_of_the_settings_that_is_gone_is_an_error_where_it_is_needed(folders: Path) -> None:
    write_config(folders, '[model]\nmodel = "gone.gguf"\n')
    result = run("-p", "Hi")
    assert result.exit_code == 1
    assert "gone.gguf" in the_line(result.stderr)


def test_pull_list(folders: Path) -> None:
    result = run("pull", "--list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["smollm2"]
    assert "98.4 MB" in result.stdout
    assert "Apache-2.0" in result.stdout


def test_pull_of_an_unknown_name() -> None:
    result = run("pull", "nothing")
    assert result.exit_code == 1
    assert "smollm2" in the_line(result.stderr)


# One answer


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


# Bad input: one clear line, exit code 1, no traceback


def bad_file(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / f"{kind}.gguf"
    whole = tiny_model.write(tmp_path / "whole.gguf").read_bytes()
    contents = {
        "empty": b"",
        "text": b"This is a letter, not a model.\n" * 40,
        "truncated-header": whole[:1000],
        "truncated-data": whole[:-4096],
        "magic": b"GGML" + whole[4:],
        "version-1": whole[:4] + b"\x01\0\0\0" + whole[8:],
        "version-9": whole[:4] + b"\x09\0\0\0" + whole[8:],
        "big-endian": whole[:4] + b"\0\0\0\x03" + whole[8:],
        "key-count": gguf_files.build({"general.architecture": "llama"}, key_count=1 << 60),
        "tensor-count": gguf_files.build({"general.architecture": "llama"}, tensor_count=1 << 60),
        "no-architecture": gguf_files.build({"general.name": "x"}),
    }
    path.write_bytes(contents[kind])
    return path


BAD_FILES = {
    "empty": "empty file",
    "text": "GGUF",
    "truncated-header": "",
    "truncated-data": "",
    "magic": "GGUF",
    "version-1": "1",
    "version-9": "9",
    "big-endian": "endian",
    "key-count": "",
    "tensor-count": "",
    "no-architecture": "general.architecture",
}


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize("use", [["-p", "Hi"], ["perplexity"]], ids=["answer", "verb"])
def test_bad_files(tmp_path: Path, kind: str, use: Sequence[str]) -> None:
    path = bad_file(tmp_path, kind)
    text = tmp_path / "text.txt"
    text.write_text("A text.")
    result = run("perplexity", path, text) if use == ["perplexity"] else run(path, *use)
    assert result.exit_code == 1
    line = the_line(result.stderr)
    assert path.name in line
    assert BAD_FILES[kind] in line
    assert result.stdout == ""


def test_directory(tmp_path: Path) -> None:
    for arguments in ([tmp_path, "-p", "Hi"], ["inspect", tmp_path]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert str(tmp_path) in the_line(result.stderr)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_no_permission(tiny: Path) -> None:
    tiny.chmod(0)
    for arguments in ([tiny, "-p", "Hi"], ["inspect", tiny]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "ermission" in the_line(result.stderr)


def test_denied_by_the_system(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root too: the system refuses to open the file."""
    real_open = open

    def refuse(file: Any, *arguments: Any, **named: Any) -> Any:
        if str(file) == str(tiny):
            raise PermissionError(13, "Permission denied", str(file))
        return real_open(file, *arguments, **named)

    monkeypatch.setattr("builtins.open", refuse)
    result = run("inspect", tiny)
    assert result.exit_code == 1
    assert "Permission denied" in the_line(result.stderr)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"extra": {"general.architecture": "mystery"}}, "mystery"),
        ({"without": ["blk.1.ffn_down.weight"]}, "blk.1.ffn_down.weight"),
        ({"embedding_length": None}, "llama.embedding_length"),
        ({"extra": {"tokenizer.ggml.model": "babel"}}, "babel"),
        ({"extra": {"tokenizer.ggml.pre": "no-such-split"}}, "no-such-split"),
    ],
    ids=["architecture", "tensor", "key", "tokenizer", "pre"],
)
def test_models_that_cannot_answer(tmp_path: Path, model: dict[str, Any], said: str) -> None:
    path = tiny_model.write(tmp_path / "bad.gguf", **model)
    result = run(path, "-p", "Hi")
    assert result.exit_code == 1
    assert said in the_line(result.stderr)
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "the file has no chat template"),
        ("{{ raise_exception('only for pirates') }}", "only for pirates"),
        ("{% for", "tokenizer.chat_template, line 1"),
        ("{% for x in range(10**9) %}x{% endfor %}", "Range too big"),
    ],
    ids=["none", "raises", "syntax", "endless"],
)
def test_a_template_that_is_of_no_use_gives_way_to_what_the_tokens_imply(
    tmp_path: Path, tiny: Path, template: str | None, said: str
) -> None:
    path = tiny_model.write(tmp_path / "other.gguf", template)
    flags = ["-n", "8", "--temp", "0", "-p", "Hi"]
    result = answered(path, *flags)
    assert result.code == 0
    note = result.err.splitlines()[0]
    assert said in note
    assert "chatml is used" in note
    assert result.out == answered(tiny, *flags).out != ""


def test_a_template_that_is_wanted(tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "my.jinja").write_text("{{ messages[0].content }} and")
    flags = ["-n", "8", "--temp", "0"]
    own = answered(tiny, *flags, "--chat-template", tmp_path / "my.jinja", "-p", "Hi")
    assert own.out == answered(tiny, *flags, "--raw", "-p", "Hi and").out != ""
    assert answered(tiny, *flags, "--chat-template", "none", "-p", "Hi and").out == own.out
    chatml = answered(tiny, *flags, "--chat-template", "chatml", "-p", "Hi")
    assert chatml.out == answered(tiny, *flags, "-p", "Hi").out
    result = run(tiny, "--chat-template", "no-such", "-p", "Hi")
    assert result.exit_code == 1
    assert "chat template 'no-such': expected a file or one of none, alpaca" in the_line(result.stderr)


def test_what_is_thought_is_no_part_of_the_answer(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "thinks.gguf", tiny_model.TEMPLATE + "<think>\n{# </think> #}")
    flags = ["-n", "8", "--temp", "0", "-p", "Hi"]
    result = answered(path, *flags)
    assert result.out == ""
    assert "the model was still thinking" in result.err
    off = answered(path, *flags, "--think", "off")
    assert off.out != ""
    assert "thinking" not in off.err


def write_config(folders: Path, text: str) -> None:
    (folders / "config").mkdir()
    (folders / "config" / "config.toml").write_text(text)


def test_config_typo_is_a_warning_that_names_file_key_and_near_match(folders: Path, tiny: Path) -> None:
    write_config(folders, "[sampling]\ntemprature = 0.5\n")
    ran = answered(tiny, "-p", "Hi", "-n", "4", "--temp", "0")
    assert ran.code == 0
    warning = ran.err.splitlines()[0]
    assert "config.toml" in warning
    assert "temprature" in warning
    assert "temperature" in warning


def test_config_that_is_no_toml_is_a_warning(folders: Path, tiny: Path) -> None:
    write_config(folders, "[sampling\n")
    ran = answered(tiny, "-p", "Hi", "-n", "4")
    assert ran.code == 0
    assert "config.toml" in ran.err.splitlines()[0]


def test_an_unforeseen_error_goes_to_the_log_with_its_traceback(
    folders: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("tinyllm_chat.cli.inspect.inspect", broken)
    result = run("inspect", tiny)
    assert result.exit_code == 1
    assert "ZeroDivisionError" in the_line(result.stderr)


# Verbs


def test_inspect_json(tiny: Path) -> None:
    report = json.loads(run("inspect", tiny, "--json", "-c", "128").stdout)
    assert report["runs"] is True
    assert report["problems"] == []
    assert report["architecture"] == "llama"
    assert report["metadata"]["tokenizer.ggml.tokens"]["length"] == 258
    assert report["tensors"][0] == {"name": "token_embd.weight", "type": "F32", "dims": [64, 258], "bytes": 258 * 256}
    assert report["types"] == {"F32": {"tensors": 20, "bytes": report["memory"]["weight_bytes"]}}
    # 2 layers, 2 heads of 16 for K and V each, 2 bytes
    assert report["memory"]["cache_bytes_per_token"] == 2 * 2 * (16 + 16) * 2
    assert report["memory"]["cache_bytes"] == 128 * 256


def test_inspect_says_whether_an_adapter_fits(tiny: Path, tmp_path: Path) -> None:
    values = lora_files.pairs(Model.open(tiny), ["blk.0.attn_q.weight"], 8)
    path = lora_files.write(tmp_path / "pirate.gguf", values, lora_files.metadata("llama", 16.0))
    report = json.loads(run("inspect", tiny, "--lora", f"{path}:0.5", "--json").stdout)
    (adapter,) = report["adapters"]
    assert report["runs"]
    assert (adapter["path"], adapter["scale"], adapter["alpha"]) == (str(path), 0.5, 16.0)
    assert (adapter["ranks"], adapter["adapted"]) == ([8], 1)
    text = run("inspect", tiny, "--lora", path).stdout
    assert "of 1 tensors, rank 8, alpha 16, scale 1" in text
    assert "Pirate" in text
    other = lora_files.write(tmp_path / "other.gguf", values, lora_files.metadata("qwen2", 16.0))
    report = json.loads(run("inspect", tiny, "--lora", other, "--json").stdout)
    assert not report["runs"]
    assert report["problems"][0].startswith(f"{other}: expected an adapter for 'llama' models")
    assert "Runs: no" in run("inspect", path).stdout


def test_inspect_says_when_a_full_cache_does_not_fit_into_memory(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tinyllm_chat.cli.inspect import command

    monkeypatch.setattr("tinyllm_chat.chat.memory.free_memory", lambda: 1 << 20)
    command([str(tiny), "-c", "8000"], standalone_mode=False)
    assert "a full cache of 8000 tokens takes 2 MB, 1 MB of memory are free: -c 4096 fits" in capsys.readouterr().out


def test_inspect_shows_everything_as_text(tiny: Path) -> None:
    text = run("inspect", tiny).stdout
    for part in ("general.name", "blk.0.attn_q.weight", "64 x 258", "F32", "KV cache", "Runs: yes"):
        assert part in text


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"extra": {"general.architecture": "mystery"}}, "mystery"),
        ({"without": ["blk.1.ffn_down.weight"]}, "blk.1.ffn_down.weight"),
    ],
)
def test_inspect_says_why_a_model_does_not_run(tmp_path: Path, model: dict[str, Any], said: str) -> None:
    result = run("inspect", tiny_model.write(tmp_path / "bad.gguf", **model), "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["runs"] is False
    assert any(said in problem for problem in report["problems"])


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"general.architecture": "clip"}, "this is a projector for images"),
        ({"general.architecture": "bert"}, "this is a model for embeddings"),
        ({"general.architecture": "llama", "general.type": "adapter"}, "this is a LoRA adapter for 'llama' models"),
    ],
)
def test_inspect_says_what_is_no_language_model(tmp_path: Path, metadata: dict[str, Any], said: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_files.build(metadata, [gguf_files.Tensor.of("x", np.ones(4, np.float32))]))
    report = json.loads(run("inspect", path, "--json").stdout)
    assert not report["runs"]
    (problem,) = report["problems"]
    assert problem.startswith(said)
    result = run(path, "-p", "Hi")
    assert result.exit_code == 1
    assert said in the_line(result.stderr)


def test_inspect_of_a_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(gguf_files.build(tiny_model.metadata()))
    report = json.loads(run("inspect", path, "--json").stdout)
    assert report["runs"] is False
    assert any("a vocabulary without weights" in problem for problem in report["problems"])


def test_inspect_prints_no_control_characters_and_valid_json(tmp_path: Path) -> None:
    extra = {
        "general.author": "evil\x1b]0;title\x07\nline",
        "general.license": b"bad \xff utf-8",
        "x.nan": float("nan"),
    }
    path = tiny_model.write(tmp_path / "evil.gguf", extra=extra)
    text = run("inspect", path).stdout
    assert "\x1b" not in text
    assert "evil]0;title line" in text
    report = json.loads(run("inspect", path, "--json").stdout)
    assert report["metadata"]["x.nan"] is None


def test_inspect_names_a_tensor_type_that_cannot_be_computed_with() -> None:
    report = json.loads(run("inspect", GOLDEN / "quants" / "llama-IQ1_S.gguf", "--json").stdout)
    assert any("IQ1_S" in problem for problem in report["problems"])
    assert report["types"]["IQ1_S"]["tensors"] > 0


def test_inspect_needs_no_compiler(tiny: Path) -> None:
    source = (
        "import sys\n"
        "sys.modules['numba'] = sys.modules['llvmlite'] = None\n"
        "from tinyllm_chat.cli.program import program\n"
        f"program(['inspect', {str(tiny)!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert "KV cache" in ran.stdout
    assert "the compiler is missing" in ran.stdout


def test_bench_json(tiny: Path) -> None:
    ran = run_process("bench", tiny, "-p", "16", "-n", "8", "-r", "2", "-t", "2", "--json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["prefill"]["tokens_per_second"] > 0
    assert report["decode"]["tokens_per_second"] > 0
    assert report["decode"]["gb_per_second"] > 0
    assert report["first_token_seconds"] > 0
    assert report["threads"] == 2
    assert report["model"]["path"] == str(tiny)
    assert report["simd"]
    assert report["cpu"]


def test_perplexity_json(tiny: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 12)
    ran = run_process("perplexity", tiny, text, "-c", "128", "--json")
    assert ran.code == 0, ran.err
    assert 1 < json.loads(ran.out)["perplexity"] < 1e6


def test_doctor_says_what_a_bug_report_needs(folders: Path) -> None:
    ran = run_process("doctor")
    assert ran.code == 0
    assert "failed" not in ran.out
    for part in ("numba", "processor", "simd", "threads", "kernel cache", str(folders / "config"), "smollm2"):
        assert part in ran.out


# Text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("over\rwrite\x08\x7f\x9b2J", "overwrite2J"),
        ("\u202egpj.exe", "gpj.exe"),
        ("👨‍👩‍👧 日本", "👨‍👩‍👧 日本"),
        ("\udcff", ""),
    ],
)
def test_printable(text: str, safe: str) -> None:
    assert printable(text) == safe


def test_one_line() -> None:
    assert one_line("a\n  b\tc\x1b") == "a b c"


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (98_362_432, "98.4 MB"), (999_600, "1 MB"), (7.2e9, "7.2 GB")],
)
def test_size(nbytes: float, shown: str) -> None:
    assert size(nbytes) == shown


# Chats


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
    assert light in run("chats", "--deleted").stdout
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
