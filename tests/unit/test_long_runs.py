"""The short forms of `python -m tests.faults` and `python -m tests.soak`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> str:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork and /proc")
@pytest.mark.parametrize("what", ["kill", "power"])
def test_programs_that_are_killed(what):
    """Seconds of lost text are for quiet machines: here it is what was asked that must be there, and all the rest."""
    assert "3 programs killed" in run("tests.faults", what, "--runs", "3", "--allowed", "60")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_chat_that_goes_on():
    said = run("tests.soak", "--turns", "20", "--samples", "2", "--tokens", "8", "--untimed")
    assert "20 turns in" in said


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_screen_that_goes_on():
    said = run("tests.soak", "--screen", "--turns", "6", "--samples", "2", "--untimed")
    assert "6 turns" in said
