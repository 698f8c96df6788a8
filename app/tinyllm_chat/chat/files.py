"""Private files: folders that only the user can enter, files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def make_private_folder(folder: Path) -> None:
    """Creates `folder` and its parents; those that are new are 0700. Raises OSError."""
    missing = []
    current = folder
    while not current.exists() and current != current.parent:
        missing.append(current)
        current = current.parent
    for path in reversed(missing):
        # Another instance may have made it in the meantime.
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
    if not folder.is_dir():
        raise NotADirectoryError(20, "not a folder", str(folder))


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replaces `path` by `data` (0600): after a crash there is the old file or the new one. Raises OSError."""
    with atomic_file(path, sync) as file:
        file.write(data)


@contextlib.contextmanager
def atomic_file(path: Path, sync: bool = True) -> Iterator[BinaryIO]:
    """What is written takes the place of `path` (0600) once it is complete. Raises OSError.

    `sync`: it is on disk then. Without, a machine that dies may leave a file with holes, a program that dies does not.
    """
    make_private_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Puts the names in `folder` on disk, where the system can do that."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
