"""An append-only file of JSON lines, written and synced by a thread of its own."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from tinyllm_chat.chat.files import check_size, make_private_folder, open_private, sync_folder

RECORD = b'"type"'  # what is in every record: a file without it holds something else
LARGEST = 1 << 30  # bytes of a transcript
SYNC_INTERVAL = 0.5  # seconds that a written line may wait for the disk
SYNC_PATIENCE = 1.0  # seconds that anybody waits for a disk that does not answer
CLOSE_PATIENCE = 10.0


class JournalError(Exception):
    """The file could not be written; the message is one line."""


class Journal:
    """Appends records to a file. `append` never waits for the disk, `sync` does.

    What could not be written (disk full) is kept and tried again. An error is raised once, by the first of `check`,
    `sync` and `close` after it happened, and once more by `close` if there is still something that is not in the file.
    """

    def __init__(self, path: Path, *, new: bool = False, sync_interval: float = SYNC_INTERVAL) -> None:
        """Opens or creates (0600) the file; a torn last line is cut off. `new`: it must not exist. Raises OSError."""
        make_private_folder(path.parent)
        self.path = path
        self._interval = sync_interval
        self._descriptor = _open_for_append(path, new)
        self._is_in_folder = False  # on disk
        self._wake = threading.Condition()
        self._pending = bytearray()
        self._unsynced = False
        self._sync_wanted = False
        self._closing = False
        self._closed = False
        self._error: str | None = None
        self._failing = False
        self._reason = ""  # of the last failure
        self._slow = False  # that was said
        self._gone = False  # the same
        self._thread = threading.Thread(target=self._run, name=f"journal {path.name}", daemon=True)
        self._thread.start()

    def append(self, record: dict[str, Any]) -> None:
        """Queues one record."""
        # ASCII only: a line holds any text, lone surrogates and NUL too, and ends nowhere but at its end.
        line = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
        with self._wake:
            self._pending += line
            self._wake.notify_all()

    def check(self) -> None:
        """Raises JournalError if something could not be written meanwhile."""
        with self._wake:
            error, self._error = self._error, None
        if error is not None:
            raise JournalError(error)

    def sync(self) -> None:
        """Returns when everything appended is on disk, or when that takes too long. Raises JournalError."""
        with self._wake:
            self._sync_wanted = True
            self._wake.notify_all()
            done = self._wake.wait_for(lambda: not self._sync_wanted or self._closed, SYNC_PATIENCE)
            if not done and not self._slow and self._error is None:
                self._slow = True
                self._error = f"{self.path}: the disk is slow: what is new in the chat is not safe on it yet"
        self.check()

    def close(self) -> None:
        """Syncs and closes. Raises JournalError if something could not be written."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(CLOSE_PATIENCE)
        with self._wake:
            if self._thread.is_alive():
                self._error = f"{self.path}: the disk does not answer: the end of the chat may be missing"
            elif self._pending and self._error is None:
                self._error = f"{self.path}: the end of the chat could not be saved: {self._reason}"
        self.check()

    def _run(self) -> None:
        try:
            self._write_on()
        except Exception as error:  # no memory, most likely
            self._report(error)
        finally:
            with self._wake:
                self._closed = True
                self._wake.notify_all()
            os.close(self._descriptor)

    def _write_on(self) -> None:
        last_sync = time.monotonic()
        while True:
            with self._wake:
                timeout = max(0.0, last_sync + self._interval - time.monotonic()) if self._unsynced else None
                self._wake.wait_for(lambda: self._pending or self._sync_wanted or self._closing, timeout)
                data, self._pending = bytes(self._pending), bytearray()
                wanted, closing = self._sync_wanted, self._closing
            rest = self._write(data)
            due = wanted or closing or time.monotonic() >= last_sync + self._interval
            if self._unsynced and due:
                self._sync_file()
                last_sync = time.monotonic()
            with self._wake:
                if rest:
                    # Before what was appended meanwhile; tried again when something wakes this thread.
                    self._pending = bytearray(rest) + self._pending
                if wanted:
                    self._sync_wanted = False
                self._wake.notify_all()
                if closing:
                    break
                if rest:
                    self._wake.wait(self._interval)

    def _write(self, data: bytes) -> bytes:
        """Writes what it can and returns the rest."""
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
                self._unsynced = True
            self._failing = False
        except OSError as error:
            self._report(error)
        return data

    def _sync_file(self) -> None:
        try:
            os.fsync(self._descriptor)
            if not self._is_in_folder:
                sync_folder(self.path.parent)
                self._is_in_folder = True
            self._unsynced = False
            self._look_for_file()
        except OSError as error:
            self._unsynced = False
            self._report(error)

    def _look_for_file(self) -> None:
        """Tells once that a file was removed: what is written goes nowhere then."""
        if not self._gone and not os.fstat(self._descriptor).st_nlink:
            self._gone = True
            with self._wake:
                self._error = f"{self.path}: the file was removed, the chat is no longer saved; /save writes a copy"

    def _report(self, error: Exception) -> None:
        self._reason = str(getattr(error, "strerror", None) or error or type(error).__name__)
        if not self._failing:
            with self._wake:
                self._error = f"{self.path}: the chat could not be saved: {self._reason}"
        self._failing = True


def _open_for_append(path: Path, new: bool) -> int:
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | (os.O_EXCL if new else 0))
    try:
        with open(path, "rb") as file:
            if (start := file.read(65536)) and RECORD not in start:
                raise OSError(errno.EINVAL, "there is no record in it")
            end = file.seek(0, os.SEEK_END)
            check_size(path, end, LARGEST)  # its end may be anywhere
            keep = _end_of_last_line(file, end)
            whole = keep < end and _is_record(file, keep)
        if whole:
            os.write(descriptor, b"\n")  # which an editor took away
        elif keep != end:
            os.ftruncate(descriptor, keep)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_record(file: Any, start: int) -> bool:
    file.seek(start)
    try:
        return isinstance(json.loads(file.read()), dict)
    except (ValueError, RecursionError):
        return False


def _end_of_last_line(file: BinaryIO, end: int) -> int:
    """Offset behind the last newline before `end`."""
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
