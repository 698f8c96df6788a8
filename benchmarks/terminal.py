"""The real app in a child process, on a pseudo-terminal of its own, and whoever plays its user. POSIX only."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import tempfile
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class AppInTerminal:
    """Runs from the beginning on; `figures` waits for its end.

    size: COLUMNSxROWS
    run: what the child does; it returns its figures, and writes a byte to the descriptor that it is given when its user
        has something to do
    seen: is told what comes to the terminal, in a thread of its own
    """

    def __init__(
        self, size: str, run: Callable[[int], dict[str, Any]], seen: Callable[[bytes], None] = lambda data: None
    ) -> None:
        self._asked, ask = os.pipe()
        self._result = tempfile.NamedTemporaryFile("r", suffix=".json")  # noqa: SIM115  (until `figures`)
        self._child, self._terminal = pty.fork()
        if self._child == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            Path(self._result.name).write_text(json.dumps(run(ask)))
            os._exit(0)
        os.close(ask)
        columns, rows = map(int, size.split("x"))
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._reader = threading.Thread(target=self._read, args=(seen,))
        self._reader.start()

    def asks(self) -> bool:
        """Waits until the app asks its user for something; False if it ended without."""
        return bool(os.read(self._asked, 1))

    def type(self, data: bytes) -> None:
        """What the user types, or pastes."""
        while data:
            data = data[os.write(self._terminal, data[:65536]) :]

    def figures(self) -> dict[str, Any]:
        """What `run` returned; SystemExit if it did not."""
        os.waitpid(self._child, 0)
        self._reader.join()
        os.close(self._terminal)
        os.close(self._asked)
        with self._result:
            text = self._result.read()
        if not text:
            raise SystemExit("the app ended early")
        return json.loads(text)

    def _read(self, seen: Callable[[bytes], None]) -> None:
        while True:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # nobody has the other end any more
                return
            if not data:
                return
            seen(data)
