"""The file under a transcript and its lock: full disks, crashed owners."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tinyllm_chat.chat.journal import Journal, JournalError
from tinyllm_chat.chat.locks import LockFile


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b'{"pid": 0}',
        b'{"pid": true, "started": "1"}',
        b'{"pid": "1"}',
        b'{"pid": OWN, "started": "long ago", "host": "HERE", "nonce": "x"}',
        b'{"pid": 2147483647, "started": "1", "host": "HERE", "nonce": "x"}',
    ],
)
def test_the_lock_of_nobody_is_taken_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "chat.lock"
    path.write_bytes(content.replace(b"HERE", socket.gethostname().encode()).replace(b"OWN", str(os.getpid()).encode()))
    lock = LockFile.acquire(path)
    assert lock is not None
    assert json.loads(path.read_bytes())["pid"] == os.getpid()
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_another_machine_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "chat.lock"
    path.write_text(json.dumps({"pid": 1, "started": "1", "host": "elsewhere.example", "nonce": "x"}))
    assert LockFile.acquire(path) is None


def test_releasing_does_not_take_away_the_lock_of_another(tmp_path: Path) -> None:
    path = tmp_path / "chat.lock"
    first = LockFile.acquire(path)
    assert first is not None
    path.unlink()
    second = LockFile.acquire(path)
    assert second is not None
    first.release()
    assert path.exists()


def test_locks_work_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("tinyllm_chat.chat.locks.os.link", refuse)
    path = tmp_path / "chat.lock"
    lock = LockFile.acquire(path)
    assert lock is not None
    assert LockFile.acquire(path) is None
    lock.release()
    assert list(tmp_path.iterdir()) == []


# The disk


class FullDisk:
    """Stands for os.write and lets through only so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.write = os.write

    def __call__(self, descriptor: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        written = self.write(descriptor, data[: self.room])
        self.room -= written
        return written


def test_a_full_disk_is_told_once_and_nothing_is_lost_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(10)
    monkeypatch.setattr("tinyllm_chat.chat.journal.os.write", disk)
    journal = Journal(tmp_path / "chat.jsonl", sync_interval=0.01)
    journal.append({"number": 0})
    with pytest.raises(JournalError, match="No space left"):
        journal.sync()
    journal.append({"number": "later"})
    journal.sync()
    disk.room = 10**6
    journal.append({"number": "last"})
    journal.close()
    lines = (tmp_path / "chat.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [0, "later", "last"]


def test_streaming_is_synced_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    sync = os.fsync
    monkeypatch.setattr("tinyllm_chat.chat.journal.os.fsync", lambda fd: (synced.append(fd), sync(fd)))
    journal = Journal(tmp_path / "chat.jsonl", sync_interval=0.05)
    journal.append({"a": 1})
    wait_until(lambda: bool(synced))
    journal.close()


def test_sync_returns_when_the_text_is_in_the_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "chat.jsonl")
    for number in range(100):
        journal.append({"number": number})
        journal.sync()
        assert (tmp_path / "chat.jsonl").read_bytes().count(b"\n") == number + 1
    journal.close()


def test_a_file_of_holes_is_not_searched_for_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_bytes(b'{"type": "header"}\n')
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="larger than 1024 MiB"):
        Journal(path)
    assert path.stat().st_size == 1 << 40


@pytest.mark.skipif(os.name != "posix", reason="open files cannot be removed")
def test_a_file_that_is_removed_meanwhile_is_missed_once(tmp_path: Path) -> None:
    path = tmp_path / "chats" / "chat.jsonl"
    journal = Journal(path)
    journal.append({"type": "header"})
    journal.sync()
    path.unlink()
    journal.append({"type": "message"})
    with pytest.raises(JournalError, match="was removed"):
        journal.sync()
    journal.append({"type": "message"})
    journal.sync()
    journal.close()
