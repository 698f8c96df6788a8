"""What the user has sent, in all chats, for Up and Down to bring back."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from tinyllm_chat.chat.files import make_private_folder, open_private, write_atomically

KEPT = 1000  # texts
LONGEST = 20_000  # characters of a text that is kept
FILE_LIMIT = 64 << 20  # bytes; a larger file is not ours


class PromptHistory:
    """A file of JSON strings, one a line, private to the user. Instances append; the next to start cuts it back.

    A file that cannot be read or written is no reason to bother anybody: then the texts of this session are all there
    is. `path=None`: the same by choice.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.texts: list[str] = []  # oldest first, no text twice in a row
        if path is not None:
            with contextlib.suppress(OSError):
                self._load(path)

    def add(self, text: str) -> None:
        if not text.strip() or len(text) > LONGEST or self.texts[-1:] == [text]:
            return
        self.texts = [*self.texts[1 - KEPT :], text]
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._append(self._path, text)

    def _load(self, path: Path) -> None:
        if not path.is_file() or path.stat().st_size > FILE_LIMIT:
            return
        lines = path.read_bytes().splitlines()
        for line in lines[-KEPT:]:
            with contextlib.suppress(ValueError, RecursionError):
                text = json.loads(line)
                if isinstance(text, str) and text.strip() and len(text) <= LONGEST and self.texts[-1:] != [text]:
                    self.texts.append(text)
        if len(lines) > 2 * KEPT:
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
