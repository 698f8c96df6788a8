"""Private files: folders that only the user can enter, files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# What a file is called until it is whole: by the process that writes it, so that it can be told when that is gone.
TEMPORARY = ".tinyllm-{host}-{pid}-{random}.tmp"
HOST = hashlib.blake2b(socket.gethostname().encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
MOST_ASIDE = 20  # damaged files of one name that are kept


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
            path.chmod(0o700)  # whatever the umask left of that
    if not folder.is_dir():
        raise NotADirectoryError(20, "not a folder", str(folder))


def temporary(folder: Path) -> Path:
    """A name in `folder` that nobody has."""
    return folder / TEMPORARY.format(host=HOST, pid=os.getpid(), random=secrets.token_hex(4))


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a file that is 0600 if it is new, whatever the umask. Raises OSError."""
    flags |= getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    if flags & os.O_CREAT and not flags & os.O_EXCL:
        with contextlib.suppress(FileExistsError):
            return open_private(path, flags | os.O_EXCL)
        return os.open(path, flags & ~os.O_CREAT)
    descriptor = os.open(path, flags, 0o600)
    if flags & os.O_CREAT and hasattr(os, "fchmod"):
        os.fchmod(descriptor, 0o600)
    return descriptor


def read_file(path: Path, limit: int) -> bytes:
    """All of a regular file of at most `limit` bytes. Raises OSError: for anything else, too, and does not wait for it.

    What a name leads to may be a pipe that nobody writes to, or a device without an end.
    """
    with open_regular(path) as file:
        data = file.read(limit + 1)
    check_size(path, len(data), limit)
    return data


def check_size(path: Path, size: int, limit: int) -> None:
    """Raises OSError for a file of more than `limit` bytes."""
    if size > limit:
        largest = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise OSError(errno.EFBIG, f"larger than {largest}", str(path))


def open_regular(path: Path) -> BinaryIO:
    """A regular file, to be read. Raises OSError for anything else."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def keep_aside(path: Path) -> Path | None:
    """Gives a damaged file another name beside its own, so that a sound one can take its place. None: it cannot be."""
    for number in range(1, MOST_ASIDE + 1):
        aside = path.with_name(f"{path.name}.damaged" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(aside):
            with contextlib.suppress(OSError):
                os.rename(path, aside)
                return aside
            return None
    return None


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
    unfinished = temporary(path.parent)
    try:
        descriptor = open_private(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
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
