"""Disks that are full, slow, read-only or shared, and clocks that go back: nothing is lost in silence."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faults.chatter import Program, places_in
from tinyllm_chat.chat import journal, transcript
from tinyllm_chat.chat.config_file import write_setting
from tinyllm_chat.chat.drafts import Draft, DraftKeeper
from tinyllm_chat.chat.errors import ChatError, TranscriptError
from tinyllm_chat.chat.events import Notice
from tinyllm_chat.chat.files import HOST, TEMPORARY, write_atomically
from tinyllm_chat.chat.leftovers import STALE_SECONDS, sweep
from tinyllm_chat.chat.locks import LockFile
from tinyllm_chat.chat.prompt_history import PromptHistory
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.transcript_reader import read_conversation


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(places_in(tmp_path))


class FullDisk:
    """os.write takes so many bytes more, and then as much as `left` is set to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: bytes) -> int:
        if self.left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, data[: self.left])
        self.left -= written
        return written


def ask(program: Program, text: str) -> list[Notice]:
    """The whole answer; returns what the user was told."""
    program.session.send(text)
    told = []
    while program.session.busy:
        program.backend.step(5)
        told += [event for event in program.session.drain() if isinstance(event, Notice)]
    return told + [event for event in program.session.drain() if isinstance(event, Notice)]


def texts(program: Program, path: Path) -> list[str]:
    conversation, warnings = read_conversation(path)
    assert warnings == []
    return [message.content for message in conversation.path()]


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_full_disk_is_told_once_and_what_was_written_meanwhile_is_saved_later(program, monkeypatch):
    ask(program, "before")
    disk = FullDisk(monkeypatch, 200)
    told = ask(program, "while it is full") + ask(program, "and again")
    assert [notice.severity for notice in told] == ["error"]
    assert "the chat could not be saved: No space left on device" in told[0].message
    disk.left = 1 << 30
    path = program.session.transcript_path
    program.session.close()
    assert texts(program, path)[::2] == ["before", "while it is full", "and again"]
    assert [message.state.name for message in read_conversation(path)[0].path()].count("INTERRUPTED") == 0


def test_what_never_found_room_is_told_at_the_end(program, monkeypatch):
    ask(program, "before")
    disk = FullDisk(monkeypatch, 300)
    ask(program, "while it is full")
    path = program.session.transcript_path
    with pytest.raises(TranscriptError, match="the end of the chat could not be saved: No space left on device"):
        program.session.close()
    assert not path.with_suffix(".lock").exists()
    assert path.read_bytes()[-1:] != b"\n"  # torn in the middle of a record
    disk.left = 1 << 30
    again = Session(program.backend, program.store, program.session.settings)
    again.open_chat(path.stem)
    again.close()
    assert texts(program, path)[0] == "before"


def test_a_copy_that_is_made_on_a_full_disk_is_whole_when_there_is_room(program, monkeypatch):
    for text in ("one", "two", "three"):
        ask(program, text)
    disk = FullDisk(monkeypatch, 0)
    copy = program.store.create(program.session.conversation, "a copy", None)
    for _ in range(3):
        with suppress(TranscriptError):
            copy.sync()
    disk.left = 1 << 30
    copy.close()
    assert not copy.path.with_suffix(".lock").exists()
    assert texts(program, copy.path) == [message.content for message in program.session.conversation.path()]


def test_a_chat_that_cannot_be_saved_can_be_left(program, monkeypatch):
    ask(program, "before")
    FullDisk(monkeypatch, 0)
    ask(program, "while it is full")
    program.session.new_chat()
    told = [event for event in program.session.drain() if isinstance(event, Notice)]
    assert [notice.severity for notice in told] == ["error"]
    assert program.session.conversation.path() == []
    assert not program.session.read_only


def test_an_answer_in_a_chat_that_was_left_ends_though_its_file_is_full(program, monkeypatch):
    program.session.send("question")
    program.backend.step(3)
    program.session.drain()
    program.session.new_chat()
    FullDisk(monkeypatch, 0)
    until(lambda: program.session.drain() is not None and not program.session.busy)
    ask(program, "in the new chat")
    assert len(program.session.conversation.path()) == 2


def test_a_chat_without_a_file_gets_one_when_there_is_room_again(program, monkeypatch):
    with monkeypatch.context() as full:

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

        full.setattr(transcript, "Journal", refuse)
        told = ask(program, "first")
        assert "the chat cannot be saved: Disk quota exceeded" in told[0].message
        assert not list(program.store.folder.iterdir())  # no lock of a chat that is not there
    ask(program, "second")
    path = program.session.transcript_path
    program.session.close()
    assert texts(program, path)[::2] == ["first", "second"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of the system")
def test_a_file_that_must_not_grow_any_more(tmp_path):
    """The system's own refusal: of the transcript, the settings, the drafts, the prompts, the index and the log."""
    script = (
        "import resource, sys, pathlib\n"
        "from faults import chatter\n"
        "from tinyllm_chat.chat.logs import start_logging\n"
        "chatter.TOKEN_SECONDS = 0\n"
        "places = chatter.places_in(pathlib.Path(sys.argv[1]))\n"
        "start_logging(places.log_file)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "chatter.Chatter(places, 7, lambda *_: None).run(10)\n"
        "print('usable')\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=environ, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "usable\n"
    for path in places_in(tmp_path).transcripts.glob("*.jsonl"):
        read_conversation(path)


def test_a_full_disk_elsewhere_is_one_line_or_nothing(tmp_path, monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    config = tmp_path / "config.toml"
    config.write_text("[sampling]\ntemperature = 0.5\n")
    drafts = DraftKeeper(tmp_path / "drafts")
    drafts.open()
    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(ChatError, match=r"config.toml: cannot be written \(No space left on device\)"):
        write_setting(config, "temperature", 0.7, 0.5)
    assert config.read_text() == "[sampling]\ntemperature = 0.5\n"
    drafts.save(Draft("text"))
    PromptHistory(tmp_path / "prompts").add("text")
    drafts.close()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_a_disk_that_takes_its_time_does_not_stop_the_screen(program, monkeypatch):
    """What is on its way to the disk is waited for a moment, told once, and not waited for again and again."""
    answers = threading.Event()
    monkeypatch.setattr(journal, "SYNC_PATIENCE", 0.01)
    monkeypatch.setattr(journal, "CLOSE_PATIENCE", 0.01)
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (answers.wait(60), sync(descriptor)))
    told = ask(program, "a question") + ask(program, "another one")
    assert [notice.message.rpartition(": ")[2] for notice in told] == [
        "what is new in the chat is not safe on it yet",
    ]
    path = program.session.transcript_path
    program.session.new_chat()
    assert "the disk does not answer" in program.session.drain()[0].message
    answers.set()
    until(lambda: len(texts(program, path)) == 4)


def test_a_clock_that_goes_back_overwrites_no_chat(program, monkeypatch):
    ask(program, "first")
    path = program.session.transcript_path
    before = path.read_bytes()
    monkeypatch.setattr(transcript, "secrets", SimpleNamespace(token_hex=lambda length: path.stem[-2 * length :]))
    monkeypatch.setattr(transcript.time, "strftime", lambda form: path.stem[:15])
    program.session.new_chat()
    told = ask(program, "second")
    assert "the chat cannot be saved" in told[0].message
    assert path.read_bytes()[: len(before)] == before
    assert texts(program, path)[0] == "first"


def test_a_clock_that_jumps_confuses_nobody(program, monkeypatch):
    clock = [2e9]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "strftime", lambda form: "20330518-033320")
    ask(program, "from the future")
    program.session.new_chat()
    clock[0] = -1e9
    ask(program, "from the past")
    program.session.close()
    program.library.update()
    assert {chat.title for chat in program.library.chats()} == {"from the future", "from the past"}
    assert all(chat.problem is None for chat in program.library.chats())


def test_leftovers_of_killed_programs_are_swept_and_those_of_living_ones_are_not(tmp_path):
    other = TEMPORARY.format(host="0123abcd", pid=2**31 - 1, random="00")
    gone = TEMPORARY.format(host=HOST, pid=2**31 - 1, random="00")
    mine = TEMPORARY.format(host=HOST, pid=os.getpid(), random="00")
    strange = ".tinyllm-notes.tmp"
    for name in (gone, other, mine, strange):
        (tmp_path / name).touch()
    held = LockFile.acquire(tmp_path / "held.lock")
    (tmp_path / "dead.lock").write_text(json.dumps({"pid": 2**31 - 1, "started": "1", "host": socket.gethostname()}))
    sweep([tmp_path, tmp_path / "nowhere"])
    assert {path.name for path in tmp_path.iterdir()} >= {other, mine, strange, "held.lock"}
    assert not (tmp_path / gone).exists()
    assert not (tmp_path / "dead.lock").exists()
    os.utime(tmp_path / other, (time.time() + 2 * STALE_SECONDS,) * 2)  # by a clock that was wrong
    sweep([tmp_path])
    assert not (tmp_path / other).exists()
    assert held is not None
    held.release()


def test_a_name_of_any_length_can_be_written(tmp_path):
    path = tmp_path / ("n" * 255)
    write_atomically(path, b"data")
    assert path.read_bytes() == b"data"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="has no umask")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_everything_is_private_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        program = Program(places_in(tmp_path / "home"))
        ask(program, "question")
        program.prompts.add("question")
        program.drafts.save(Draft("text"))
        program.session.export()
        program.session.save_setting("temperature", 0.5)
        program.library.update()
        found = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "home").rglob("*")}
        program.session.close()
        program.drafts.close()
    finally:
        os.umask(before)
    assert len(found) > 10
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
