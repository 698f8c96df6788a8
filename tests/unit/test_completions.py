"""`--completions`: the scripts, and what a real shell completes with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli.completion import SHELLS
from tinyllm_chat.cli.program import program
from tinyllm_chat.cli.verbs import VERBS

BASH = """
source <(tinyllm-chat --completions bash)
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
compopt() {{ echo "compopt $*"; }}
_tinyllm_chat_completion tinyllm-chat
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """In which `tinyllm-chat` is this tree's, with a model and a chat."""
    command = tmp_path / "bin" / "tinyllm-chat"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tinyllm_chat "$@"\n')
    command.chmod(0o755)
    folders = {f"TINYLLM_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
    paths = Paths.default(folders)
    paths.models.mkdir(parents=True)
    (paths.models / "small-model.gguf").write_bytes(b"")
    return {
        **os.environ,
        **folders,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def completed(environment: dict[str, str], words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH.format(words=words)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None or os.name != "posix", reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tinyllm-chat ins", ["inspect"]),
        ("tinyllm-chat small", ["small-model"]),
        ("tinyllm-chat --think ''", ["on", "off", "auto"]),
        ("tinyllm-chat --comp", ["--completions"]),
        ("tinyllm-chat inspect --js", ["--json"]),
        ("tinyllm-chat inspect small", ["small-model"]),
        ("tinyllm-chat -m ./", ["compopt", "-o", "default"]),
    ],
)
def test_bash_completes(environment: dict[str, str], words: str, expected: list[str]) -> None:
    assert completed(environment, words) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell: str) -> None:
    result = CliRunner().invoke(program, ["--completions", shell])
    assert result.exit_code == 0
    assert "_TINYLLM_CHAT_COMPLETE" in result.output
    assert "tinyllm-chat" in result.output


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_shell_itself_can_read_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(CliRunner().invoke(program, ["--completions", shell]).output)
    subprocess.run([shell, "-n", str(script)], check=True, timeout=60)


def test_first_words_are_verbs_and_models(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TINYLLM_DATA_DIR",):
        monkeypatch.setenv(name, environment[name])
    result = CliRunner().invoke(
        program,
        [],
        prog_name="tinyllm-chat",
        env={"_TINYLLM_CHAT_COMPLETE": "bash_complete", "COMP_WORDS": "tinyllm-chat ", "COMP_CWORD": "1"},
    )
    words = {line.split(",", 1)[1] for line in result.output.splitlines()}
    assert {*VERBS, "small-model", "smollm2"} <= words


def test_chats_are_completed_by_their_ids(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tinyllm_chat.chat.conversation import Conversation

    monkeypatch.setenv("TINYLLM_DATA_DIR", environment["TINYLLM_DATA_DIR"])
    transcript = TranscriptStore(Paths.default().transcripts).create(Conversation(), "A title", None)
    transcript.close()
    result = CliRunner().invoke(
        program,
        [],
        prog_name="tinyllm-chat",
        env={"_TINYLLM_CHAT_COMPLETE": "zsh_complete", "COMP_WORDS": "tinyllm-chat --resume ", "COMP_CWORD": "2"},
    )
    assert result.output.splitlines()[:3] == ["plain", transcript.id, "A title"]
