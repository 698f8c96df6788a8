"""The real program with a real model in a real terminal: keys, resizing, pasting, the transcript, leaving."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.models import WITHOUT_SMOLLM2, smollm2_path

TMUX = shutil.which("tmux")
MODEL = smollm2_path()
PATIENCE = 240.0  # seconds: the first start on a machine compiles; only a failing test waits for long otherwise

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed"),
]
needs_model = pytest.mark.skipif(MODEL is None, reason=WITHOUT_SMOLLM2)

# At low temperatures the answer goes on until it is stopped.
ENDLESS = "Write the letter a one thousand times."


class Terminal:
    """A tmux session of its own with one shell command in it."""

    def __init__(self, folder: Path, width: int, height: int) -> None:
        self.folder = folder
        self._tmux = [str(TMUX), "-S", str(folder / "tmux.sock"), "-f", os.devnull]
        self._size = ["-x", str(width), "-y", str(height)]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
            **{f"TINYLLM_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "STATE")},
        }
        for name in ("TMUX", "COLUMNS", "LINES"):  # a size in the environment would be taken for the terminal's
            self._environment.pop(name, None)

    def start(self, model: Path | None, *arguments: str) -> None:
        program = [sys.executable, "-m", "tinyllm_chat", str(model), *arguments]
        # The terminal's state afterwards is part of what is tested.
        command = f"{shlex.join(program)}; echo left with $?; stty -a; sleep 600"
        self.tmux("new-session", "-d", "-s", "chat", "-c", str(self.folder), *self._size, command)
        self.tmux("set-option", "-g", "escape-time", "10")

    def start_shell(self) -> None:
        """A shell to type into, with job control."""
        self.tmux("new-session", "-d", "-s", "chat", *self._size, "bash --norc -i")
        self.tmux("set-option", "-g", "escape-time", "10")

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], env=self._environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "chat", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", "chat", "-l", text)

    def paste(self, text: str) -> None:
        file = self.folder / "paste"
        file.write_text(text)
        self.tmux("load-buffer", str(file))
        self.tmux("paste-buffer", "-p", "-t", "chat")

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "chat")

    @property
    def modes(self) -> str:
        """Alternate screen, mouse, cursor: 001 where no program has the terminal."""
        return self.tmux(
            "display-message", "-p", "-t", "chat", "#{alternate_on}#{mouse_any_flag}#{cursor_flag}"
        ).strip()

    def until(self, condition: Callable[[str], Any], what: str) -> str:
        """Waits until the screen is as wanted, and returns it."""
        deadline = time.monotonic() + PATIENCE
        while not condition(screen := self.screen):
            if time.monotonic() > deadline:
                log = self.folder / "state" / "tinyllm-chat.log"
                said = log.read_text()[-2000:] if log.exists() else "no log"
                pytest.fail(f"waited in vain for {what}\n{screen}\n{said}")
            time.sleep(0.02)
        return screen

    def sees(self, text: str) -> str:
        return self.until(lambda screen: text in screen, repr(text))

    def moves_on(self, times: int) -> None:
        """Waits until the screen has changed that many times: what is written has gone on."""
        for _ in range(times):
            before = self.screen
            self.until(lambda screen, before=before: screen != before, "the screen to change")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], env=self._environment, capture_output=True, timeout=60)


@pytest.fixture
def terminal(tmp_path) -> Iterator[Callable[[int, int], Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(width: int, height: int) -> Terminal:
        opened.append(Terminal(tmp_path, width, height))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


def records(folder: Path) -> list[dict[str, Any]]:
    """Everything on disk of the one chat."""
    (file,) = (folder / "data" / "transcripts").rglob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def left(chat: Terminal) -> None:
    """The program is gone and the terminal is as it was."""
    screen = chat.until(lambda screen: "left with" in screen and "icanon" in screen, "the shell")
    assert "left with 0" in screen
    words = screen.replace(";", " ").split()
    assert "icanon" in words
    assert "echo" in words
    assert "isig" in words
    assert chat.modes == "001"


@needs_model
@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 45)])
def test_a_question_is_answered_turned_stopped_and_kept(terminal, tmp_path, width, height):
    chat = terminal(width, height)
    chat.start(MODEL, "--temp", "0")
    chat.sees("Enter send")  # the first screen stands before the model does
    chat.type(ENDLESS)  # and can be typed into
    chat.sees("tokens of context")
    chat.keys("Enter")
    chat.sees("t 0.00 · p 0.95")  # the heading, from the first token on
    chat.keys("M-Up")
    chat.sees("t 0.05" if width < 100 else "0.05  session")
    if height > 24:
        chat.sees("→ t 0.05 from")
    else:  # the answer may have pushed its heading off the screen by now
        chat.moves_on(5)
    chat.keys("C-Down", "F8")
    chat.sees("p 0.96")
    chat.keys("Escape")
    screen = chat.sees("stopped")
    assert all(len(line) <= width for line in screen.splitlines())
    assert len(screen.splitlines()) <= height
    assert ("KV cache" in screen) is (width >= 100)
    assert "saved" in screen

    kept = records(tmp_path)
    text = json.dumps(kept, ensure_ascii=False)
    assert ENDLESS in text
    assert "cancelled" in text
    assert '"temperature": 0.05' in text

    chat.type("/quit")
    chat.keys("Enter")
    left(chat)


@needs_model
def test_typing_pasting_resizing_and_the_ways_out(terminal, tmp_path):
    chat = terminal(100, 30)
    chat.start(MODEL, "--temp", "0", "-n", "600")
    chat.sees("tokens of context")
    chat.paste("one\ntwo\nthree\n")
    chat.until(lambda screen: all(word in screen for word in ("one", "two", "three")), "the pasted lines")
    assert not list((tmp_path / "data").rglob("*.jsonl"))  # a paste sends nothing
    chat.keys("C-c")
    chat.until(lambda screen: "three" not in screen, "an empty input")
    chat.type("first")
    chat.keys("C-j")
    chat.type("second")
    chat.until(lambda screen: "first" in screen and "second" in screen, "two lines")
    chat.keys("C-c")

    chat.type(ENDLESS)
    chat.keys("Enter")
    chat.sees("t 0.00 · p 0.95")
    for width, height in [(60, 20), (160, 45), (40, 10), (100, 30)]:
        chat.tmux("resize-window", "-t", "chat", "-x", str(width), "-y", str(height))
        chat.until(lambda screen, height=height: len(screen.rstrip("\n").splitlines()) == height, "the new size")
        chat.sees("Enter send")
    chat.keys("F1")
    chat.sees("Keys and commands")
    chat.keys("Escape")
    chat.until(lambda screen: "Keys and commands" not in screen, "the chat again")

    chat.keys("C-c")  # stops the answer, or, where that has ended by itself, asks
    chat.until(lambda screen: "stopped" in screen or "again quits" in screen, "the stop")
    chat.until(lambda screen: "again quits" not in screen, "a fresh ladder")
    chat.keys("C-c")
    chat.sees("Ctrl+C again quits")
    chat.keys("C-c")
    left(chat)


def test_a_file_that_is_no_model_shows_why_and_the_program_lives_on(terminal, tmp_path):
    (tmp_path / "broken.gguf").write_text("this is no model")
    chat = terminal(80, 24)
    chat.start(Path("broken.gguf"))  # a longer path would be broken over two lines
    chat.sees("broken.gguf")
    chat.sees("expected a GGUF file")
    chat.type("still here")
    chat.sees("still here")
    chat.keys("C-q")
    left(chat)


def test_it_is_put_aside_and_comes_back_with_its_screen(terminal):
    chat = terminal(80, 24)
    chat.start_shell()
    chat.type(shlex.join([sys.executable, "-m", "tinyllm_chat"]))
    chat.keys("Enter")
    chat.sees("Choose a model")
    chat.keys("Escape")
    chat.sees("No model is open")
    chat.type("a draft")
    chat.sees("a draft")
    chat.keys("C-z")
    chat.sees("Stopped")
    chat.type("stty -a")
    chat.keys("Enter")
    words = chat.sees("icanon").replace(";", " ").split()
    assert {"icanon", "echo", "isig"} <= set(words)
    assert chat.modes == "001"
    chat.type("fg")
    chat.keys("Enter")
    screen = chat.sees("Enter send")
    assert "a draft" in screen
    assert "tinyllm-chat" in screen.splitlines()[0]
    chat.type(", more")
    chat.sees("a draft, more")
    chat.keys("C-q")
    chat.until(lambda screen: "Enter send" not in screen, "the shell")
    assert "--resume" not in chat.screen  # nothing was said
