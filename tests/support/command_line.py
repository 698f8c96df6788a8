"""Runs the command line: here, where the engine is there already, or as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner, Result
from tinyllm_chat.cli.program import program


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


def write_config(folders: Path, text: str) -> None:
    (folders / "config").mkdir()
    (folders / "config" / "config.toml").write_text(text)
