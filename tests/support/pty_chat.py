"""The full-screen chat with a scripted model on a pseudo-terminal: what signals and terminals do to it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from support.pty_chat import run
run(Path(sys.argv[1]))
"""
PATIENCE = 120.0  # seconds; only a failing test uses them


def run(folder: Path) -> None:
    """The program under test: its answers go on until they are stopped."""
    from tinyllm_chat.chat.drafts import DraftKeeper
    from tinyllm_chat.chat.scripted import ScriptedBackend
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.chat.settings import Settings
    from tinyllm_chat.chat.signals import ending_with, exit_at_once
    from tinyllm_chat.chat.transcript import TranscriptStore
    from tinyllm_chat.tui import app

    class Endless(ScriptedBackend):
        def drain(self):
            self.finish_opening()
            self.step()
            return super().drain()

    backend = Endless(["word " * 100_000], automatic=False)
    session = Session(backend, TranscriptStore(folder / "transcripts"), Settings())
    code = 1
    with ending_with(exit_at_once):
        try:
            code = app.run(session, model="x.gguf", drafts=DraftKeeper(folder / "drafts"), log_file=folder / "log")
        finally:
            session.close()
            (folder / "left").write_text(str(code))
    sys.exit(code)


class PtyChat:
    """One running program; `output` is everything that it has drawn so far."""

    patience = PATIENCE

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        program: str = PROGRAM,
        size: tuple[int, int] = (100, 30),
        ignore_hangup: bool = False,
    ) -> None:
        self.folder = folder
        self.output = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            if ignore_hangup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.environ.update(PYTHONPATH=os.pathsep.join(sys.path), TERM="xterm-256color")
            os.execv(sys.executable, [sys.executable, "-c", program, str(folder), *arguments])
        self.resize(*size)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Reads what is drawn until the condition holds."""
        deadline = time.monotonic() + self.patience
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self.output[-3000:]!r}"
            self.read()

    def read(self) -> None:
        if self.terminal >= 0 and select.select([self.terminal], [], [], 0.05)[0]:
            try:
                self.output += os.read(self.terminal, 1 << 16)
            except OSError:  # how the end of a pseudo-terminal reads on Linux
                time.sleep(0.01)
        elif self.terminal < 0:
            time.sleep(0.01)

    def sees(self, text: str) -> None:
        self.until(lambda: text.encode() in self.output, repr(text))

    def type(self, text: str | bytes) -> None:
        os.write(self.terminal, text if isinstance(text, bytes) else text.encode())

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def begin_answer(self) -> None:
        """Waits until an answer is being written."""
        self.sees("tokens of context")
        self.type("question\r")
        self.sees("word word")

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Closes the terminal."""
        os.close(self.terminal)
        self.terminal = -1

    def left(self) -> int:
        """Waits for the program's end and returns its exit code, or minus the signal that killed it."""
        found: list[int] = []

        def ended() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                found.append(os.waitstatus_to_exitcode(status))
            return bool(pid)

        self.until(ended, "the end of the program")
        self.pid = 0
        return found[0]

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.terminal >= 0:
            os.close(self.terminal)
