"""Flags, names of models, and how text and sizes are printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run, the_line, write_config
from tinyllm_chat import __version__
from tinyllm_chat.chat.safe_text import printable
from tinyllm_chat.cli import chat as chat_command
from tinyllm_chat.cli.text import one_line
from tinyllm_chat.cli.verbs import VERBS
from tinyllm_chat.tui.text import size


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
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (98_362_432, "98.4 MB"), (999_600, "1.0 MB"), (7.2e9, "7.2 GB")],
)
def test_size(nbytes: float, shown: str) -> None:
    assert size(nbytes) == shown
