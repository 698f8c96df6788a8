"""The program is asked to end, put aside, or loses its terminal while an answer is being written."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

from support.pty_chat import PtyChat
from tinyllm_chat.chat.signals import ending_with


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Callable[..., PtyChat]]:
    started: list[PtyChat] = []

    def start(**options: Any) -> PtyChat:
        started.append(PtyChat(tmp_path, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


def is_kept(folder: Path, *, text: str) -> None:
    """The answer is whole, its end is noted, the draft is there, and nothing else is."""
    (path,) = (folder / "transcripts").iterdir()  # no lock, no temporary file
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["reason"] for record in records if record["type"] == "end"] == ["cancelled"]
    assert "".join(record["text"] for record in records if record["type"] == "delta").startswith("word word")
    (draft,) = (folder / "drafts").iterdir()
    assert json.loads(draft.read_text())["text"] == text


def test_a_request_to_end_closes_the_chat_and_gives_the_terminal_back(chat, tmp_path):
    one = chat()
    one.begin_answer()
    one.type("half a")
    one.sees("half a")
    one.kill(signal.SIGTERM)
    assert one.left() == 128 + signal.SIGTERM
    one.read()
    after = one.output[one.output.rindex(b"\x1b[?1049l") :]  # the alternate screen is left
    assert b"Traceback" not in after
    assert b"unexpected" not in after
    is_kept(tmp_path, text="half a")


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_is_closed_ends_the_chat(chat, tmp_path, ignored):
    """Under nohup as well: there is nobody to chat with."""
    one = chat(ignore_hangup=ignored)
    one.begin_answer()
    one.type("half a")
    one.sees("half a")
    one.hang_up()
    assert one.left() == 128 + signal.SIGHUP
    is_kept(tmp_path, text="half a")


def test_a_chat_that_is_put_aside_goes_on(chat, tmp_path):
    one = chat()
    one.begin_answer()
    for _ in range(3):
        one.kill(signal.SIGTSTP)
        one.until(lambda: Path(f"/proc/{one.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "the stop")
        drawn = len(one.output)
        one.kill(signal.SIGCONT)
        # Drawn, and not just begun: a stop in the middle of Textual's way back is lost.
        one.until(lambda before=drawn: b"tok/s" in one.output[before:], "the screen")
    one.type("half a")
    one.kill(signal.SIGTERM)
    assert one.left() == 128 + signal.SIGTERM


def test_a_storm_of_sizes_is_weathered(chat, tmp_path):
    one, draw = chat(), random.Random(1)
    one.begin_answer()
    for number in range(150):
        one.resize(*draw.choice(((1, 1), (2, 60), (300, 2), (40, 10), (draw.randint(1, 250), draw.randint(1, 80)))))
        if number % 10 == 0:
            one.read()
    one.resize(100, 30)
    one.type("after the storm")
    one.sees("after the storm")
    assert not (tmp_path / "log").exists() or "Error" not in (tmp_path / "log").read_text()
    one.kill(signal.SIGTERM)
    assert one.left() == 128 + signal.SIGTERM


def test_a_terminal_of_another_encoding_is_no_end(chat):
    """Letters in Latin-1, and a file that is no text."""
    one = chat()
    one.begin_answer()
    one.type(b"Gr\xfc\xdfe " + bytes(range(128, 256)) * 3)
    one.type(b"\x1b[200~" + bytes(range(128, 256)) + b"\xe2\x1b[201~")
    one.type("still here")
    one.sees("still here")
    one.kill(signal.SIGTERM)
    assert one.left() == 128 + signal.SIGTERM


def test_the_second_request_is_not_waited_for():
    codes: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    with ending_with(codes.append):
        os.kill(os.getpid(), signal.SIGTERM)
        assert codes == [128 + signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGTERM, before)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with ending_with(lambda code: None):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_plain_chat_ends_in_order(tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environ |= {f"TINYLLM_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "STATE")}
    program = subprocess.Popen(
        [sys.executable, "-m", "tinyllm_chat", "--plain"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    while "Plain chat" not in program.stdout.readline():
        assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    _, said = program.communicate(timeout=120)
    assert program.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
