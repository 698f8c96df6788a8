"""What may have happened to a file: each of these puts one where a sound one, whose bytes it is given, should be."""

from __future__ import annotations

import os
from pathlib import Path

LETTER = b"a letter\nto a friend, without a newline at its end"


def truncated(path: Path, sound: bytes) -> None:
    path.write_bytes(sound[: len(sound) // 2])


def empty(path: Path, sound: bytes) -> None:
    path.write_bytes(b"")


def binary(path: Path, sound: bytes) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def zeros(path: Path, sound: bytes) -> None:
    """What a machine that lost power leaves."""
    path.write_bytes(bytes(len(sound)))


def wrong_types(path: Path, sound: bytes) -> None:
    path.write_bytes(b"sampling = 5\npresets = 7\n" if path.suffix == ".toml" else b"[1, null, {}]\n" * 5)


def newer(path: Path, sound: bytes) -> None:
    settings = b"[telepathy]\nrange = 3\n[presets.mine]\nrange = 3\n"
    path.write_bytes(settings if path.suffix == ".toml" else b'{"type": "header", "version": 99}\n' * 3)


def huge(path: Path, sound: bytes) -> None:
    """More than anybody reads, and no more on disk than nothing."""
    path.write_bytes(sound)
    os.truncate(path, 1 << 34)


def deep(path: Path, sound: bytes) -> None:
    path.write_bytes(b"a = " + b"[" * 50_000 if path.suffix == ".toml" else b"[" * 50_000)


def folder(path: Path, sound: bytes) -> None:
    path.mkdir()
    (path / "inside").write_bytes(b"precious")


def pipe(path: Path, sound: bytes) -> None:
    """That nobody writes to."""
    os.mkfifo(path)


def link_to_device(path: Path, sound: bytes) -> None:
    """Without an end."""
    path.symlink_to("/dev/zero")


def link_to_nothing(path: Path, sound: bytes) -> None:
    path.symlink_to(path.parent / "nowhere" / "at all")


def link_elsewhere(path: Path, sound: bytes) -> None:
    other = path.parent / "other.txt"
    other.write_bytes(LETTER)
    path.symlink_to(other)


DAMAGES = [truncated, empty, binary, zeros, wrong_types, newer, huge, deep, folder]
if hasattr(os, "mkfifo") and Path("/dev/zero").exists():
    DAMAGES += [pipe, link_to_device, link_to_nothing, link_elsewhere]
