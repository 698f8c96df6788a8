"""Keeps what native code prints off the screen.

A library that writes to file descriptor 2 (LLVM, BLAS, the C runtime) would write into the middle of the chat. While
the guard is on, descriptor 2 is the log file, and the screen is drawn through a copy of the terminal's descriptor.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tinyllm_chat.chat.files import make_private_folder, open_private


class _Screen(io.TextIOWrapper):
    """Takes whatever is drawn, also when the terminal is gone: Textual waits for its writer for ever then."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def stderr_to_log(log_file: Path | None) -> Iterator[None]:
    """Sends file descriptor 2 to `log_file` (nowhere, if it cannot be written) and puts everything back at the end."""
    screen = sys.__stderr__
    try:
        if screen is None or screen.fileno() != 2:
            raise io.UnsupportedOperation
        terminal = os.dup(2)
    except (OSError, ValueError):  # no standard error, or one that is no file
        yield
        return
    log = _open_log(log_file)
    if log is None:
        os.close(terminal)
        yield
        return
    python_stderr = sys.stderr
    screen.flush()
    # Textual draws on `sys.__stderr__`, on Windows on standard output, which stays as it is.
    drawn = _Screen(open(terminal, "wb"), encoding="utf-8", errors="replace", newline="")  # noqa: SIM115
    os.dup2(log, 2)
    os.close(log)
    sys.__stderr__ = drawn  # type: ignore[misc]
    sys.stderr = screen
    try:
        yield
    finally:
        for stream in (drawn, screen):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os.dup2(terminal, 2)
        sys.__stderr__ = screen  # type: ignore[misc]
        sys.stderr = python_stderr
        with contextlib.suppress(OSError, ValueError):
            drawn.close()


def _open_log(path: Path | None) -> int | None:
    """The log, private to the user, or the null device where it cannot be had."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if path is not None:
        with contextlib.suppress(OSError):
            make_private_folder(path.parent)
            return open_private(path, flags)
    with contextlib.suppress(OSError):
        return os.open(os.devnull, os.O_WRONLY)
    return None
