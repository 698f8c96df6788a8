"""A sequence in a file: its tokens, their keys and values, and the states of recurrent layers.

    16 bytes    magic, version of the format, length of the description, its CRC-32
    description JSON: what the rows belong to (model, cache, rotation), how many there are, and which are held
    tokens      int32 for each
    pages       in order; of each the K of layers that see everything, then the V; then, if held, what layers with a
                window have of it
    exact parts if the cache's types have them: of the first page, and where a checkpoint or the sequence is within one
    states      one for each checkpoint, the last one at the end of the sequence

Behind the tokens and each page, part and state stands the CRC-32 of it. Numbers are little-endian. A file is used only
if it says exactly what the runner would write, is exactly as long as it says, and every checksum is right; all of that
is known before any memory is taken for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from zlib import crc32

import numpy as np

from tinyllm_engine.cached_types import PAGE
from tinyllm_engine.errors import OtherStateError, SavedStateError
from tinyllm_engine.runner import Runner, Sequence
from tinyllm_engine.windows import MOST_PLACES, runs

MAGIC, VERSION = b"TLKV", 3
HEAD, CHECKSUM = struct.Struct("<4sIII"), struct.Struct("<I")
MOST_DESCRIPTION = 1 << 20  # bytes
CHECKPOINTS = 4  # that are kept, the last ones: where the last answer began is among them
PIECE = 1 << 20  # bytes read at a time where nothing is kept of them


def saved_bytes(sequence: Sequence) -> int:
    """What `save` would write, its description aside."""
    cache = sequence.runner.cache
    places = sorted({*sequence.recurrent.positions, sequence.position})[-CHECKPOINTS:]
    pages = sum(cache.bytes_of_page(bool(held)) for held in sequence.pages.held[: sequence.pages.count])
    pages += len(open_pages(places)) * cache.exact.page_bytes
    return 4 * sequence.position + pages + len(places) * cache.states.block_bytes


def open_pages(places: Iterable[int]) -> list[int]:
    """Of which pages a sequence that goes back to `places` needs the exact parts."""
    return sorted({0, *(place // PAGE for place in places if place % PAGE)})


def save(sequence: Sequence, write: Callable[[Any], object], model: str) -> None:
    """Writes the sequence, piece by piece. `model` says which weights made it: no other ones will take it up."""
    runner = sequence.runner
    sequence.recurrent.keep(sequence.position)
    checkpoints = sequence.recurrent.checkpoints[-CHECKPOINTS:]
    positions = [checkpoint.position for checkpoint in checkpoints]
    counts = {
        "tokens": sequence.position,
        "exact": sequence.exact,
        "checkpoints": positions,
        "held": runs(sequence.pages.held[: sequence.pages.count]),
        "places": sequence.places.positions,
    }
    description = json.dumps(_description(runner, model) | counts).encode()
    write(HEAD.pack(MAGIC, VERSION, len(description), crc32(description)))
    write(description)
    _write_checked(write, [np.array(sequence.tokens, "<i4").view(np.uint8)])
    pages = sequence.pages
    for page, held in zip(pages.table[: pages.count], pages.held, strict=False):
        _write_checked(write, runner.cache.page_bytes(int(page), bool(held)))
    if runner.cache.exact.page_bytes:
        for index in open_pages([*positions, sequence.position]):
            _write_checked(write, runner.cache.exact.bytes_of(int(pages.table[index])))
    for checkpoint in checkpoints:
        _write_checked(write, [checkpoint.block])


def load(
    runner: Runner, path: Path, model: str, wanted: Callable[[list[int]], bool] = lambda ids: True
) -> Sequence | None:
    """The sequence that `save` wrote; None if it is not wanted, which is asked once its token ids are known.

    SavedStateError says in one line why it cannot be used, ContextFullError that its pages cannot be had.
    """
    with _opened(path) as file:
        saved = _Saved(file, runner, path, model)
        ids = saved.token_ids()
        if not wanted(ids):
            return None
        saved.check()
        return saved.read(ids)


def is_saved(path: Path) -> bool:
    """Whether a file was begun by `save`, whatever became of it; nothing and zeros are what a crash leaves of one."""
    try:
        with _opened(path) as file:
            return file.read(len(MAGIC)) in (MAGIC, bytes(len(MAGIC)), b"")
    except (SavedStateError, OSError):
        return False


def _description(runner: Runner, model: str) -> dict[str, Any]:
    """What has to be the same for the bytes of a page to mean the same."""
    cache = runner.cache
    turning = hashlib.blake2b(digest_size=16)
    for rope in runner.model.weights.ropes:
        frequencies, magnitude = rope.frequencies(runner.context_length)
        turning.update(frequencies.tobytes() + struct.pack("<d?", magnitude, rope.interleaved))
    return {
        "model": model,
        "cache": "/".join(dict.fromkeys((cache.k_type.name, cache.v_type.name))),
        "layers": [[shape.heads, shape.k_size, shape.v_size, shape.window] for shape in cache.layers],
        "rotation": turning.hexdigest(),
        "state": cache.states.block_bytes,
    }


def _write_checked(write: Callable[[Any], object], parts: Iterable[np.ndarray]) -> None:
    checksum = 0
    for part in parts:
        write(part.data)
        checksum = crc32(part.data, checksum)
    write(CHECKSUM.pack(checksum))


def _opened(path: Path) -> BinaryIO:
    """The file, if it is one of this user's own and no link."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        if path.is_symlink():
            raise SavedStateError(f"{path}: expected a file, found a link")
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise SavedStateError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or (hasattr(os, "geteuid") and found.st_uid != os.geteuid()):
        os.close(descriptor)
        raise SavedStateError(f"{path}: expected a file of this user's own")
    return os.fdopen(descriptor, "rb", buffering=0)


class _Saved:
    """A file that is being looked at."""

    def __init__(self, file: BinaryIO, runner: Runner, path: Path, model: str):
        self.file, self.runner, self.path = file, runner, path
        found = self._describe()
        for name, expected in _description(runner, model).items():
            if found.get(name) != expected:
                raise OtherStateError(f"{path}: {name}: expected {expected!r:.80}, found {found.get(name)!r:.80}")
        self.tokens = self._number(found, "tokens", 1, runner.context_length)
        self.exact = self._number(found, "exact", 0, self.tokens)
        self.positions = self._checkpoints(found.get("checkpoints"))
        self.held = self._held(found.get("held"))
        self.places = self._places(found.get("places"))
        has_parts = runner.cache.exact.page_bytes > 0
        self.open_pages = open_pages([*self.positions, self.tokens]) if has_parts else []
        self.start = file.tell()
        expected = self.start + sum(size + CHECKSUM.size for size in self._sizes())
        if (size := os.fstat(file.fileno()).st_size) != expected:
            self._fail(f"expected {expected} bytes, found {size}")

    def check(self) -> None:
        """Reads everything once and keeps nothing."""
        memory = np.empty(PIECE, np.uint8)
        self.file.seek(self.start)
        for size in self._sizes():
            self._read_checked(memory[: min(PIECE, size - at)] for at in range(0, size, PIECE))

    def token_ids(self) -> list[int]:
        self.file.seek(self.start)
        ids = np.empty(self.tokens, "<i4")
        self._read_checked([ids.view(np.uint8)])
        if ids.min() < 0 or ids.max() >= self.runner.vocab_size:
            self._fail(f"token ids: expected 0 to {self.runner.vocab_size - 1}, found {ids.min()} to {ids.max()}")
        return ids.tolist()

    def read(self, ids: list[int]) -> Sequence:
        """Takes pages and fills them."""
        self.file.seek(self.start + 4 * self.tokens + CHECKSUM.size)
        sequence = self.runner.new_sequence()
        try:
            sequence.pages.grow(self.tokens)
            sequence.pages.hold(np.flatnonzero(self.held))
            pages = sequence.pages.table.tolist()
            for page, held in zip(pages, self.held, strict=False):
                self.runner.cache.exact.drop(page)
                self._read_checked(self.runner.cache.page_bytes(page, bool(held)))
            for index in self.open_pages:
                self.runner.cache.exact.take(pages[index])
                self._read_checked(self.runner.cache.exact.bytes_of(pages[index]))
            for position in self.positions:
                self._read_checked([sequence.recurrent.restored(position)])
        except BaseException:
            sequence.close()
            raise
        sequence.restored(ids, self.exact, self.places)
        return sequence

    def _sizes(self) -> Iterator[int]:
        """Bytes of what stands between two checksums."""
        cache = self.runner.cache
        yield 4 * self.tokens
        yield from (cache.bytes_of_page(bool(held)) for held in self.held)
        yield from [cache.exact.page_bytes] * len(self.open_pages)
        yield from [cache.states.block_bytes] * len(self.positions)

    def _describe(self) -> dict[str, Any]:
        head = self.file.read(HEAD.size)
        if len(head) < HEAD.size or head[:4] != MAGIC:
            self._fail("this is no saved state")
        _, version, length, checksum = HEAD.unpack(head)
        if version != VERSION:
            self._fail(f"version: expected {VERSION}, found {version}")
        if length > MOST_DESCRIPTION:
            self._fail(f"description: expected at most {MOST_DESCRIPTION} bytes, found {length}")
        text = self.file.read(length)
        try:
            found = json.loads(text) if crc32(text) == checksum else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._fail("its description is damaged")
        return found

    def _number(self, found: dict[str, Any], name: str, low: int, high: int) -> int:
        value = found.get(name)
        if type(value) is not int or not low <= value <= high:
            self._fail(f"{name}: expected {low} to {high}, found {value!r:.80}")
        return value

    def _checkpoints(self, found: Any) -> list[int]:
        """Where they are: rising, the last at the end."""
        valid = isinstance(found, list) and all(type(position) is int for position in found)
        if self.runner.cache.states.block_bytes:
            valid = valid and 0 < len(found) <= CHECKPOINTS and found[0] > 0 and found[-1] == self.tokens
            valid = valid and all(a < b for a, b in pairwise(found))
        else:
            valid = valid and not found
        if not valid:
            self._fail(f"checkpoints: expected places up to {self.tokens}, found {found!r:.80}")
        return list(found)

    def _held(self, found: Any) -> np.ndarray:
        """bool [pages]: of which there is all; what layers with a window see next is among them."""
        held, end = np.zeros(-(-self.tokens // PAGE), np.bool_), 0
        for run in found if isinstance(found, list) else ():
            valid = isinstance(run, list) and len(run) == 2 and all(type(page) is int for page in run)
            if not valid or not end <= run[0] < run[1] <= len(held):
                self._fail(f"held: expected pages within {end} to {len(held)}, found {run!r:.80}")
            held[run[0] : run[1]], end = True, run[1]
        needed = self.runner.cache.windows.needed(self.tokens)
        if not held[needed.start : needed.stop].all():
            self._fail(f"held: expected the pages {needed.start} to {needed.stop}, found {found!r:.80}")
        return held

    def _places(self, found: Any) -> list[int]:
        valid = isinstance(found, list) and len(found) <= MOST_PLACES
        if not valid or not all(type(place) is int and 0 < place <= self.runner.context_length for place in found):
            self._fail(f"places: expected at most {MOST_PLACES} places, found {found!r:.80}")
        return list(found)

    def _read_checked(self, parts: Iterable[np.ndarray]) -> None:
        checksum = 0
        for part in parts:
            memory, done = part.data, 0
            while done < len(memory):
                count = self.file.readinto(memory[done:])  # type: ignore[attr-defined]
                if not count:
                    self._fail("it ends too early")
                done += count
            checksum = crc32(memory, checksum)
        if self.file.read(CHECKSUM.size) != CHECKSUM.pack(checksum):
            self._fail("a checksum is wrong")

    def _fail(self, what: str) -> NoReturn:
        raise SavedStateError(f"{self.path}: {what}")
