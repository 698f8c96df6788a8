"""A chat's cache in a file next to its transcript: opened again, the chat is answered without being read again.

A file is written when its chat is left or the program ends, and looked at before the chat's first answer. It holds
nothing that the transcript does not lead to: what cannot be used is computed again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_chat.chat.errors import reason_of
from tinyllm_chat.chat.files import atomic_file, keep_aside

ENDING = ".kv"
KNOWN = 64  # files of which the tokens are remembered

log = logging.getLogger(__name__)


def cache_file(transcript: Path) -> Path:
    return transcript.with_suffix(ENDING)


class KeptCaches:
    """The files of chats, for one open model.

    most_bytes: what the files of a folder may take together; 0: none is written or read
    """

    def __init__(self, engine: EngineApi, branches: Any, fingerprint: str, most_bytes: int) -> None:
        self._engine, self._branches = engine, branches
        self._fingerprint, self._most_bytes = fingerprint, most_bytes
        self._answered: dict[Path, Any] = {}  # the sequence in which a chat was answered last
        self._on_disk: dict[Path, list[int]] = {}  # the tokens of a file, as far as they are known
        self._swept: set[Path] = set()

    def recall(self, path: Path, ids: list[int]) -> str | None:
        """Takes in what was kept of a chat, if a prompt has more of it than of what is here. Returns a line for the
        user if the file is damaged.
        """
        if path.parent not in self._swept:
            self._swept.add(path.parent)
            sweep(path.parent, self._engine.is_saved)
        if not self._most_bytes or path in self._answered or not os.path.lexists(path):
            return None
        started = time.monotonic()
        try:
            sequence = self._branches.recall(path, self._fingerprint, ids)
        except self._engine.OtherStateError as error:
            log.info("kept cache not used: %s", error)
            return None
        except (self._engine.EngineError, OSError) as error:
            return f"the kept cache is not used, the chat is read again: {error}"
        if sequence is not None:
            self._know(path, sequence)
            log.info("%s: %d tokens in %.2f s", path, sequence.position, time.monotonic() - started)
        return None

    def answered(self, path: Path, sequence: Any) -> None:
        """A chat is answered in this sequence, which now belongs to no other one."""
        self._answered = {other: used for other, used in self._answered.items() if used is not sequence}
        self._answered[path] = sequence

    def keep(self, path: Path) -> str | None:
        """Writes what is cached of a chat that is left. Returns a line for the user if there is something to say."""
        sequence = self._answered.pop(path, None)
        known = self._on_disk.get(path)
        if not self._most_bytes or sequence is None or not sequence.position or not _has_chat(path):
            return None
        if known is not None and known[: sequence.position] == sequence.tokens:
            return None  # the file has all of it
        size = self._engine.saved_bytes(sequence)
        if size > self._most_bytes:
            limit = self._most_bytes // 1_000_000
            return f"the cache of the chat is not kept: {_size(size)} are more than keep_kv_max_mb = {limit}"
        if os.path.lexists(path) and not path.is_symlink() and not self._engine.is_saved(path):
            keep_aside(path)  # it is not ours
        others = _make_room(path, self._most_bytes - size, self._engine.is_saved)
        try:
            # No sync: if the machine dies before all is on disk, the checksums say so.
            with atomic_file(path, sync=False) as file:
                self._engine.save_sequence(sequence, file.write, self._fingerprint)
        except OSError as error:
            return f"{path}: the cache of the chat is not kept: {reason_of(error)}"
        if not _has_chat(path):  # deleted meanwhile
            _remove(path)
            return None
        self._know(path, sequence)
        log.info("%s: kept %d tokens, %s", path, sequence.position, _size(size))
        return f"cache of the chat kept: {_size(size)}; {_size(size + others)} for all chats"

    def _know(self, path: Path, sequence: Any) -> None:
        self._on_disk.pop(path, None)
        while len(self._on_disk) >= KNOWN:
            del self._on_disk[next(iter(self._on_disk))]
        self._on_disk[path] = list(sequence.tokens)


def sweep(folder: Path, is_saved: Callable[[Path], bool]) -> None:
    """Removes kept caches whose chat is gone."""
    for path in folder.glob(f"*{ENDING}"):
        if not _has_chat(path) and is_saved(path):
            _remove(path)


def kept_bytes(folder: Path) -> tuple[int, int]:
    """(how many caches of chats a folder has, what they take)"""
    sizes = [size for _, size, _ in _listed(folder)]
    return len(sizes), sum(sizes)


def _has_chat(path: Path) -> bool:
    return path.with_suffix(".jsonl").exists()


def _make_room(path: Path, room: int, is_saved: Callable[[Path], bool]) -> int:
    """Removes the oldest caches beside `path` until the others take no more than that; returns what they take."""
    found = [entry for entry in _listed(path.parent) if entry[2] != path and is_saved(entry[2])]
    taken = sum(size for _, size, _ in found)
    for _, size, other in sorted(found):
        if taken <= room:
            break
        _remove(other)
        taken -= size
    return taken


def _listed(folder: Path) -> list[tuple[float, int, Path]]:
    """(when it was written, bytes, path) of each file."""
    found = []
    for path in folder.glob(f"*{ENDING}"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            found.append((status.st_mtime, status.st_size, path))
    return found


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.0f} MB"
