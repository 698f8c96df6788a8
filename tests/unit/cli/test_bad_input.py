"""Bad input: one clear line, exit code 1, no traceback."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import gguf_files, tiny_model
from support.command_line import answered, run, the_line, write_config


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
