"""What stands in the input, kept on disk so that it outlives the program.

Each running instance has a place of its own, marked by a lock. A place whose instance is gone, well or not, is taken
over by the next one together with the draft in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tinyllm_chat.chat.files import atomic_file, keep_aside, make_private_folder, read_file
from tinyllm_chat.chat.locks import LockFile

if TYPE_CHECKING:
    from tinyllm_chat.chat.conversation import Attachment

PLACES = 16  # instances that keep drafts at a time
FILE_LIMIT = 64 << 20  # bytes
PIECE = 1 << 15  # characters


@dataclass(frozen=True, slots=True)
class Draft:
    """The text as it is seen, and what is folded in it: each label with the text it stands for.

    `files`: those that it names and that have been read already; they may be gone by now. `edits`: the id of the
    message beside which it is to be put, where it was not accepted; None: it is a new one.
    """

    text: str = ""
    folded: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Attachment, ...] = ()
    edits: str | None = None

    @property
    def whole(self) -> str:
        """The text with everything unfolded."""
        if not self.folded:
            return self.text
        labels = "|".join(map(re.escape, sorted(self.folded, key=len, reverse=True)))
        return re.sub(labels, lambda match: self.folded[match.group()], self.text)

    def before(self, other: Draft) -> Draft:
        """This one, and on the line below it the other. A label that both have keeps its two meanings."""
        if not other.text:
            return self
        text, folded = other.text, dict(self.folded)
        for label, whole in other.folded.items():
            free, number = label, 2
            while folded.get(free, whole) != whole:
                free, number = f"{label.removesuffix(']')}, {number}]", number + 1
            text = text.replace(label, free)
            folded[free] = whole
        return Draft(f"{self.text}\n{text}", folded, (*self.files, *other.files))


class DraftKeeper:
    """The place of this instance. Where the disk does not play along nothing is kept, and nobody is bothered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._lock: LockFile | None = None
        self._saved = self._wanted = Draft()
        self._writing = threading.Lock()
        self.found = Draft()  # what an earlier instance left here
        self.warnings: list[str] = []  # one line each

    def open(self) -> Draft:
        """Takes a place, preferably one with a draft in it, which is returned."""
        with contextlib.suppress(OSError):
            make_private_folder(self._folder)
            places = [self._folder / f"draft-{number}.json" for number in range(PLACES)]
            for path in sorted(places, key=lambda path: not path.exists()):
                self._lock = LockFile.acquire(path.with_suffix(".lock"))
                if self._lock is not None:
                    self._path = path
                    self._saved = self._wanted = self.found = self._read(path)
                    break
        return self.found

    def _read(self, path: Path) -> Draft:
        """What the file holds; an empty draft where it holds none, and then it is kept aside."""
        if not os.path.lexists(path):
            return Draft()
        try:
            return _parsed(read_file(path, FILE_LIMIT))
        except (OSError, ValueError, RecursionError):
            aside = keep_aside(path)
            if aside is None:
                self._path = None  # nothing is written over it
            kept = "nothing is kept of what you write" if aside is None else f"kept as {aside.name}"
            self.warnings.append(f"{path}: the draft cannot be read; {kept}")
            return Draft()

    def save(self, draft: Draft) -> None:
        """Puts the draft in its place at once; an empty one leaves nothing behind."""
        self.want(draft)
        self.write()

    def want(self, draft: Draft) -> None:
        """Says what the next `write` shall put in place."""
        self._wanted = draft

    def write(self) -> None:
        """Puts the draft that was last wanted in its place. May be called on any thread."""
        with self._writing, contextlib.suppress(OSError):
            draft = self._wanted
            if self._path is None or draft == self._saved:
                return
            if draft.text:
                # The program may crash, not the machine: that need not be waited for.
                with atomic_file(self._path, sync=False) as file:
                    for piece in _pieces(draft):
                        file.write(piece)
            else:
                self._path.unlink(missing_ok=True)
            self._saved = draft

    def close(self) -> None:
        """Leaves the place to others, with what is in it."""
        with self._writing:
            if self._lock is not None:
                self._lock.release()
                self._lock = self._path = None


def _pieces(draft: Draft) -> Iterator[bytes]:
    """The draft as JSON, a little at a time: no other thread gets the interpreter while a piece is made."""
    yield b'{"text": '
    yield from _text_pieces(draft.text)
    yield b', "folded": {'
    for number, (label, whole) in enumerate(draft.folded.items()):
        yield (", " if number else "").encode() + json.dumps(label).encode("ascii") + b": "
        yield from _text_pieces(whole)
    yield b"}}"


def _text_pieces(text: str) -> Iterator[bytes]:
    yield b'"'
    for start in range(0, len(text), PIECE):
        yield json.dumps(text[start : start + PIECE])[1:-1].encode("ascii")
    yield b'"'


def _parsed(data: bytes) -> Draft:
    """Raises ValueError, RecursionError."""
    record = json.loads(data)
    text, folded = (record.get("text"), record.get("folded")) if isinstance(record, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(folded, dict):
        raise ValueError("it is no draft")
    return Draft(text, {label: each for label, each in folded.items() if isinstance(each, str)})
