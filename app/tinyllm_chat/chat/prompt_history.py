"""What the user has sent, in all chats, for Up and Down to bring back."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from tinyllm_chat.chat.errors import reason_of
from tinyllm_chat.chat.files import keep_aside, make_private_folder, open_private, read_file, write_atomically

KEPT = 1000  # texts
LONGEST = 20_000  # characters of a text that is kept
TORN = 2  # damaged lines that a killed program or two may have left
FILE_LIMIT = 64 << 20  # bytes; a larger file is not ours


class PromptHistory:
    """A file of JSON strings, one a line, private to the user. Instances append; the next to start cuts it back.

    A file that cannot be written is no reason to bother anybody: then the texts of this session are all there is.
    `path=None`: the same by choice. One that holds something else is kept aside.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.texts: list[str] = []  # oldest first, no text twice in a row
        self.warnings: list[str] = []  # one line each
        if path is not None and os.path.lexists(path):
            try:
                self._load(path)
            except OSError as error:
                self._put_aside(path, reason_of(error))

    def add(self, text: str) -> None:
        if not text.strip() or len(text) > LONGEST or self.texts[-1:] == [text]:
            return
        self.texts = [*self.texts[1 - KEPT :], text]
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._append(self._path, text)

    def _load(self, path: Path) -> None:
        lines = read_file(path, FILE_LIMIT).splitlines()
        damaged = 0
        for line in lines[-KEPT:]:
            try:
                text = json.loads(line)
            except (ValueError, RecursionError):
                text = None
            damaged += not isinstance(text, str)
            if isinstance(text, str) and text.strip() and len(text) <= LONGEST and self.texts[-1:] != [text]:
                self.texts.append(text)
        if damaged > TORN or (damaged and not self.texts):
            self._put_aside(path, f"{damaged} damaged lines")
        elif len(lines) > 2 * KEPT:
            write_atomically(path, b"".join(map(_line, self.texts)))

    def _put_aside(self, path: Path, reason: str) -> None:
        """What was read goes on in a new file."""
        aside = keep_aside(path)
        if aside is None:
            self._path = None  # nothing is written into it
        kept = "nothing is kept of what you send" if aside is None else f"kept as {aside.name}"
        self.warnings.append(f"{path}: the prompts of earlier are not all read: {reason}; {kept}")
        if aside is not None and self.texts:
            with contextlib.suppress(OSError):
                write_atomically(path, b"".join(map(_line, self.texts)))

    @staticmethod
    def _append(path: Path, text: str) -> None:
        make_private_folder(path.parent)
        descriptor = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, _line(text))  # one write: lines of two instances do not mix
        finally:
            os.close(descriptor)


def _line(text: str) -> bytes:
    return json.dumps(text).encode("ascii") + b"\n"
