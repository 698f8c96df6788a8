"""What stands in the input, kept on disk so that it outlives the program.

Each running instance has a place of its own, marked by a lock. A place whose instance is gone, well or not, is taken
over by the next one together with the draft in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tinyllm_chat.chat.files import keep_aside, make_private_folder, read_file, write_atomically
from tinyllm_chat.chat.locks import LockFile

if TYPE_CHECKING:
    from tinyllm_chat.chat.conversation import Attachment

PLACES = 16  # instances that keep drafts at a time
FILE_LIMIT = 64 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Draft:
    """The text as it is seen, and what is folded in it: each label with the text it stands for.

    `files`: those that it names and that have been read already; they may be gone by now.
    """

    text: str = ""
    folded: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Attachment, ...] = ()

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
        self._saved = Draft()
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
                    self._saved = self.found = self._read(path)
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
        if self._path is None or draft == self._saved:
            return
        with contextlib.suppress(OSError):
            if draft.text:
                data = json.dumps({"text": draft.text, "folded": dict(draft.folded)}).encode("ascii")
                # The program may crash, not the machine: that need not be waited for.
                write_atomically(self._path, data, sync=False)
            else:
                self._path.unlink(missing_ok=True)
            self._saved = draft

    def close(self) -> None:
        """Leaves the place to others, with what is in it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = self._path = None


def _parsed(data: bytes) -> Draft:
    """Raises ValueError, RecursionError."""
    record = json.loads(data)
    text, folded = (record.get("text"), record.get("folded")) if isinstance(record, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(folded, dict):
        raise ValueError("it is no draft")
    return Draft(text, {label: each for label, each in folded.items() if isinstance(each, str)})
