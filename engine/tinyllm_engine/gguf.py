"""A GGUF file, or a set of split files, opened: its metadata, and its tensors where they lie in the mapped file."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import re
import stat
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tinyllm_engine.errors import GGUFError
from tinyllm_engine.gguf_header import Header, parse_header, printable, shown
from tinyllm_engine.tensor import TensorView
from tinyllm_engine.vanishing import Guard

_READ_AHEAD_BYTES = 16 << 20
_SAMPLE_BYTES = 2 << 20
_SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)

Progress = Callable[[int, int], None]


@dataclass
class _Part:
    """One file of a model: the whole of it mapped read-only.

    stamp: size and time of the last change, as they were when it was opened
    """

    path: Path
    file: io.BufferedReader
    map: mmap.mmap
    header: Header
    stamp: tuple[int, int]
    guard: Guard | None = None

    def views(self) -> dict[str, TensorView]:
        everything = np.frombuffer(self.map, np.uint8)
        return {
            t.name: TensorView(t.name, t.dims, t.type, everything[t.offset : t.offset + t.nbytes])
            for t in self.header.tensors
        }

    def close(self) -> None:
        self.file.close()
        if self.guard is not None:
            self.guard.close()
        with contextlib.suppress(BufferError):  # while views of it are in use: the last of them unmaps it
            self.map.close()


class GGUFFile:
    """What `open_gguf` returns. Usable as a context manager.

    path: the file that was opened (of a split model, part 1)
    version: 2 or 3
    metadata: int, float, bool, str (undecodable bytes as surrogates), list[str], or a read-only 1-D array of
        numbers or bools
    tensors: by name, in the order of the file
    nbytes: size on disk, all parts together
    """

    def __init__(self, parts: list[_Part]) -> None:
        self._parts = parts
        self.path = parts[0].path
        self.version = parts[0].header.version
        self.metadata: dict[str, Any] = parts[0].header.metadata
        self.tensors: dict[str, TensorView] = {}
        for part in parts:
            self.tensors.update(part.views())
            weakref.finalize(self, part.file.close)  # a forgotten file is no leak and no warning
        self.nbytes = sum(len(part.map) for part in parts)

    def read_ahead(self, progress: Progress | None = None) -> None:
        """Bring the whole file into the page cache in order, so that the first token does not wait for scattered reads.

        progress: called with (bytes done, bytes in all), first and last included; what it raises ends the reading.
        GGUFError if the file cannot be read or has shrunk since it was opened.
        """
        before = 0
        for part in self._parts:
            for done in _read_through(part):
                if progress:
                    progress(before + done, self.nbytes)
            before += len(part.map)

    def guard(self) -> None:
        """From now on reading what a file has lost gives zeros, and `check` an error, instead of ending the process."""
        for part in self._parts:
            part.guard = part.guard or Guard(np.frombuffer(part.map, np.uint8))

    def check(self) -> None:
        """GGUFError if something was read that is no longer there: what came of it means nothing."""
        for part in self._parts:
            if part.guard is not None and part.guard.lost:
                lost = "has become shorter or cannot be read any more"
                raise GGUFError(f"{printable(part.path)}: {lost}: open the model again")

    def check_unchanged(self) -> None:
        """GGUFError if a file was written to since it was opened, or has lost something."""
        self.check()
        for part in self._parts:
            if _stamp(part.file) != part.stamp:
                raise GGUFError(f"{printable(part.path)}: has changed since it was opened: open the model again")

    def close(self) -> None:
        """Let go of the file. Views that are still referenced stay valid; closing again does nothing."""
        self.tensors = {}
        for part in self._parts:
            part.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GGUFFile {str(self.path)!r}, {len(self.tensors)} tensors>"


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Map a GGUF file and check its header; of a split model, give any part and the others are found beside it.

    GGUFError, one line, if the path cannot be read, the file breaks a rule of the format, or a part is missing.
    """
    parts = [_first_part(_open_part(Path(path)))]
    try:
        parts += _other_parts(parts[0])
        return GGUFFile(parts)
    except BaseException:
        for part in parts:
            part.close()
        raise


def _open_part(path: Path) -> _Part:
    name = printable(path)
    try:
        # Asked before opening: to open a pipe would wait for its other end.
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise GGUFError(f"{name}: expected a GGUF file, found a directory")
        if not stat.S_ISREG(mode):
            raise GGUFError(f"{name}: expected a GGUF file, found something that is not a regular file")
        file = open(path, "rb")  # noqa: SIM115  (stays open as long as the part)
    except (OSError, ValueError) as error:
        raise GGUFError(f"{name}: cannot open: {_reason(error)}") from error
    try:
        stamp = _stamp(file)
        if not stamp[0]:
            raise GGUFError(f"{name}: expected a GGUF file, found an empty file")
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _Part(path, file, mapping, parse_header(mapping, name), stamp)
    except (OSError, ValueError) as error:
        file.close()
        raise GGUFError(f"{name}: cannot map: {_reason(error)}") from error
    except BaseException:
        file.close()
        raise


def _stamp(file: io.BufferedReader) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _first_part(part: _Part) -> _Part:
    """Part 1 of the split model that this is a part of, which has the metadata; a whole one itself."""
    try:
        count = _split_key(part, "split.count", default=1)
        if count <= 1:
            return part
        number = _split_key(part, "split.no") + 1
        match = _SPLIT_NAME.fullmatch(part.path.name)
        if not match:
            ending = f"-{number:05d}-of-{count:05d}.gguf"
            raise GGUFError(f"{printable(part.path)}: is part of a split model, expected a name that ends in {ending}")
        if int(match["number"]) != number or int(match["count"]) != count:
            said = f"is part {number} of {count} by its contents, but its name says otherwise"
            raise GGUFError(f"{printable(part.path)}: {said}")
    except BaseException:
        part.close()
        raise
    if number == 1:
        return part
    part.close()
    return _open_part_of_split(_path_of_part(part.path, 1), 1, count)


def _path_of_part(path: Path, number: int) -> Path:
    """Of another part, by the name of one."""
    match = _SPLIT_NAME.fullmatch(path.name)
    assert match is not None
    return path.with_name(f"{match['stem']}-{number:05d}-of-{match['count']}.gguf")


def _other_parts(first: _Part) -> list[_Part]:
    """Parts 2 and on of a split model, in order; none for a whole one."""
    count = _split_key(first, "split.count", default=1)
    if count <= 1:
        return []
    expected = _split_key(first, "split.tensors.count")
    parts: list[_Part] = []
    try:
        for number in range(2, count + 1):
            parts.append(_open_part_of_split(_path_of_part(first.path, number), number, count))
        _check_together([first, *parts], expected)
    except BaseException:
        for part in parts:
            part.close()
        raise
    return parts


def _open_part_of_split(path: Path, number: int, count: int) -> _Part:
    name = printable(path)
    if not path.exists():
        raise GGUFError(f"{name}: part {number} of {count} of the model is missing")
    part = _open_part(path)
    try:
        found = _split_key(part, "split.no") + 1, _split_key(part, "split.count")
        if found != (number, count):
            raise GGUFError(f"{name}: expected part {number} of {count}, found part {found[0]} of {found[1]}")
    except BaseException:
        part.close()
        raise
    return part


def _check_together(parts: list[_Part], expected: int) -> None:
    names: set[str] = set()
    for part in parts:
        for tensor in part.header.tensors:
            if tensor.name in names:
                raise GGUFError(f"{printable(part.path)}: tensor {shown(tensor.name)} is in an earlier part too")
            names.add(tensor.name)
    if len(names) != expected:
        name = printable(parts[0].path)
        raise GGUFError(f"{name}: 'split.tensors.count': expected {expected} tensors in all parts, found {len(names)}")


def _split_key(part: _Part, key: str, default: int | None = None) -> int:
    value = part.header.metadata.get(key, default)
    if type(value) is not int or value < 0:
        found = "nothing" if value is None else shown(str(value))
        raise GGUFError(f"{printable(part.path)}: {key!r}: expected a number of 0 or more, found {found}")
    return value


def _read_through(part: _Part) -> Iterator[int]:
    """Read the file once from start to end; yields the number of bytes done so far, 0 and all included.

    Read, not touched through the mapping: a disk error is an exception here and would be a crash there.
    """
    yield 0
    buffer = memoryview(bytearray(_READ_AHEAD_BYTES))
    size = len(part.map)
    for start in range(0, size, len(buffer)):
        stop = min(start + len(buffer), size)
        try:
            if not _is_cached(part.file, start, stop):
                _announce(part.map, stop, _READ_AHEAD_BYTES)
                part.file.seek(start)
                if part.file.readinto(buffer[: stop - start]) < stop - start:
                    raise GGUFError(f"{printable(part.path)}: has shrunk since it was opened, expected {size} bytes")
        except OSError as error:
            raise GGUFError(f"{printable(part.path)}: cannot read: {_reason(error)}") from error
        yield stop


def _is_cached(file: io.BufferedReader, start: int, stop: int) -> bool:
    """Whether samples of this stretch lie in the page cache; False where the system cannot tell."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    byte = bytearray(1)
    try:
        for offset in range(start, stop, _SAMPLE_BYTES):
            os.preadv(file.fileno(), [byte], offset, os.RWF_NOWAIT)
        return os.preadv(file.fileno(), [byte], stop - 1, os.RWF_NOWAIT) == 1
    except OSError:  # EAGAIN: it would have to wait for the disk
        return False


def _announce(mapping: mmap.mmap, start: int, length: int) -> None:
    """Let the system fetch the next stretch while this one is read."""
    if hasattr(mmap, "MADV_WILLNEED") and start < len(mapping):
        mapping.madvise(mmap.MADV_WILLNEED, start, length)
