"""Caches of chats on disk: written when a chat is left, found again, never more than allowed, never another chat's."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import tiny_model
from support.damages import (
    DAMAGES,
    LETTER,
    empty,
    huge,
    link_elsewhere,
    link_to_device,
    link_to_nothing,
    truncated,
    zeros,
)
from support.toy_engine import Toy
from tinyllm_chat.chat import leftovers
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.engine_api import load_engine
from tinyllm_chat.chat.events import AnswerFinished, AnswerStarted, ModelReady, Notice, TextDelta
from tinyllm_chat.chat.files import atomic_file
from tinyllm_chat.chat.kept_cache import cache_file, kept_bytes, sweep
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA, Settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_engine.saved_state import is_saved

SAMPLING = {name: SCHEMA[name].default for name in SAMPLING_NAMES}
LIMIT = 500_000_000
REPOSITORY = Path(__file__).parents[2]


class Program:
    """A backend with a toy engine; a toy's saved sequence counts a megabyte a token. With a model, the real engine."""

    def __init__(self, folder: Path, limit: int = LIMIT, model: Path | None = None) -> None:
        self.toy = Toy()
        load = self.toy.api if model is None else load_engine
        options = ModelOptions(kept_cache_bytes=limit)
        self.backend = LocalBackend(lambda: options, load=load, free=lambda: 1 << 30)
        if model is None:
            model = folder / "toy.gguf"
            model.write_bytes(b"GGUF" + bytes(100))
        self.backend.open(str(model))
        self.until(ModelReady)

    def until(self, kind: type[Any]) -> list[Any]:
        found: list[Any] = []
        end = time.monotonic() + 120  # kernels may be compiled
        while not any(isinstance(event, kind) for event in found):
            assert time.monotonic() < end, found
            found += self.backend.drain()
            time.sleep(0.001)
        return found

    def ask(self, text: str, path: Path | None) -> int:
        """Returns how many tokens were reused."""
        message = PromptMessage("u1", "user", text)
        self.backend.answer("a1", [message], sampling=SAMPLING | {"seed": 5}, max_tokens=12, cache_file=path)
        events = self.until(AnswerFinished)
        self.notes = [event.message for event in events if isinstance(event, Notice)]
        self.text = "".join(event.text for event in events if isinstance(event, TextDelta))
        return next(event.reused_tokens for event in events if isinstance(event, AnswerStarted))

    def leave(self, path: Path) -> str:
        self.backend.leave(path)
        (notice,) = [event for event in self.until(Notice) if isinstance(event, Notice)]
        return notice.message


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Any]:
    started: list[Program] = []

    def start(limit: int = LIMIT, model: Path | None = None) -> Program:
        started.append(Program(tmp_path, limit, model))
        return started[-1]

    yield start
    for program in started:
        program.backend.close()


@pytest.fixture
def chats(tmp_path: Path) -> list[Path]:
    """Where the caches of some chats may be."""
    transcripts = [tmp_path / f"chat{number}.jsonl" for number in range(3)]
    for path in transcripts:
        path.touch()
    return [cache_file(path) for path in transcripts]


def test_a_chat_that_was_left_is_not_read_again(programs: Any, chats: list[Path]) -> None:
    first = programs()
    assert first.ask("a long question", chats[0]) == 0
    assert first.leave(chats[0]) == "cache of the chat kept: 38 MB; 38 MB for all chats"
    assert stat.S_IMODE(chats[0].stat().st_mode) == 0o600
    first.backend.close()
    again = programs()
    prompt = len(first.toy.prompts[0])
    assert again.ask("a long question", chats[0]) == prompt - 1
    assert kept_bytes(chats[0].parent) == (1, chats[0].stat().st_size)


def test_the_real_engine_goes_on_where_it_was(programs: Any, chats: list[Path], tmp_path: Path) -> None:
    model = tiny_model.write(tmp_path / "tiny.gguf")
    first = programs(model=model)
    assert first.ask("a long question", chats[0]) == 0
    first.leave(chats[0])
    assert first.ask("another one", chats[1]) < first.ask("a long question", chats[0])  # it was never gone
    again = programs(model=model)
    reused = again.ask("a long question", chats[0])
    assert reused > len("a long question")
    assert again.text == first.text
    damaged = bytearray(chats[0].read_bytes())
    damaged[-1000] ^= 1
    chats[0].write_bytes(damaged)
    fresh = programs(model=model)
    assert fresh.ask("a long question", chats[0]) == 0
    assert fresh.text == first.text


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_said_in_a_line_and_not_used(
    programs: Any, chats: list[Path], tmp_path: Path, damage: Callable[[Path, bytes], None]
) -> None:
    """What is not ours is kept; a cache that is ours is made again."""
    model = tiny_model.write(tmp_path / "tiny.gguf")
    first = programs(model=model)
    first.ask("a long question", chats[0])
    first.leave(chats[0])
    sound = chats[0].read_bytes()
    chats[0].unlink()
    damage(chats[0], sound)
    program = programs(model=model)
    assert program.ask("a long question", chats[0]) == 0
    assert program.text == first.text
    (line,) = program.notes
    assert str(chats[0]) in line
    assert line.isprintable()
    program.leave(chats[0])
    beside = [path for path in chats[0].parent.iterdir() if path.name.startswith(f"{chats[0].name}.damaged")]
    ours = damage in (truncated, empty, zeros, huge, link_to_device, link_to_nothing, link_elsewhere)
    assert len(beside) == (not ours)
    assert programs(model=model).ask("a long question", chats[0]) > len("a long question")
    if damage is link_elsewhere:
        assert (chats[0].parent / "other.txt").read_bytes() == LETTER


def test_the_end_of_the_program_writes_it_too(programs: Any, chats: list[Path]) -> None:
    program = programs()
    program.ask("question", chats[0])
    program.backend.leave(chats[0])
    program.backend.close()
    assert chats[0].exists()
    program.backend.leave(chats[1])  # too late: nothing happens
    assert not chats[1].exists()


def test_what_is_on_disk_is_not_written_again(programs: Any, chats: list[Path]) -> None:
    program = programs()
    program.ask("question", chats[0])
    program.leave(chats[0])
    before = chats[0].stat().st_mtime_ns, chats[0].stat().st_ino
    program.backend.leave(chats[0])
    program.ask("another chat", chats[1])
    program.leave(chats[1])
    assert (chats[0].stat().st_mtime_ns, chats[0].stat().st_ino) == before


def test_nothing_is_kept_or_read_unless_wanted(programs: Any, chats: list[Path]) -> None:
    one = programs()
    one.ask("question", chats[0])
    one.leave(chats[0])
    other = programs(0)
    assert other.ask("question", chats[0]) == 0
    other.ask("question", chats[1])
    other.backend.leave(chats[1])
    other.backend.close()
    assert not chats[1].exists()
    private = programs()
    private.ask("private", None)
    private.backend.close()
    assert kept_bytes(chats[0].parent)[0] == 1


def test_a_file_of_another_model_is_not_used(programs: Any, chats: list[Path]) -> None:
    chats[0].write_text("other 1 2 3")
    assert programs().ask("question", chats[0]) == 0


def test_a_chat_whose_sequence_went_to_another_one_is_not_kept_with_its_tokens(
    programs: Any, chats: list[Path]
) -> None:
    program = programs()
    program.toy.answer = []
    program.ask("question", chats[0])
    program.ask("question", chats[1])  # the same prompt: the same sequence
    program.backend.leave(chats[0])
    program.leave(chats[1])
    assert [path.exists() for path in chats[:2]] == [False, True]


def test_the_oldest_give_way_to_what_is_new(programs: Any, chats: list[Path]) -> None:
    program = programs(45_000_000)
    for number, path in enumerate(chats[:2]):
        path.write_bytes(bytes(10_000_000))
        os.utime(path, (1000 + number, 1000 + number))
    letter = chats[0].with_name("letter.kv")
    letter.write_bytes(LETTER)
    os.utime(letter, (1, 1))
    program.toy.foreign.add(letter)
    program.ask("question", chats[2])
    assert program.leave(chats[2]) == "cache of the chat kept: 31 MB; 41 MB for all chats"
    assert [path.exists() for path in chats] == [False, True, True]
    assert letter.read_bytes() == LETTER


def test_one_that_is_too_large_is_said(programs: Any, chats: list[Path]) -> None:
    program = programs(30_000_000)
    program.ask("question", chats[0])
    assert program.leave(chats[0]) == "the cache of the chat is not kept: 31 MB are more than keep_kv_max_mb = 30"
    assert kept_bytes(chats[0].parent) == (0, 0)


def test_a_file_that_cannot_be_written_is_said(programs: Any, chats: list[Path]) -> None:
    program = programs()
    chats[0].mkdir()
    program.ask("question", chats[0])
    assert "the cache of the chat is not kept" in program.leave(chats[0])
    assert not list(chats[0].parent.glob(".*"))


def test_nothing_is_kept_of_a_chat_that_was_deleted(programs: Any, chats: list[Path]) -> None:
    program = programs()
    program.ask("question", chats[0])
    chats[0].with_suffix(".jsonl").unlink()
    program.backend.leave(chats[0])
    program.backend.close()
    assert kept_bytes(chats[0].parent) == (0, 0)


def test_what_belongs_to_no_chat_is_swept(tmp_path: Path) -> None:
    (tmp_path / "here.jsonl").touch()
    kept, gone = tmp_path / "here.kv", tmp_path / "gone.kv"
    for path in (kept, gone):
        path.touch()
    letter = tmp_path / "letter.kv"
    letter.write_bytes(LETTER)
    sweep(tmp_path, is_saved)
    assert [path.exists() for path in (kept, gone)] == [True, False]
    assert letter.read_bytes() == LETTER


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("earlier", [False, True])
def test_a_program_killed_while_it_writes_leaves_the_old_file(tmp_path: Path, earlier: bool) -> None:
    path = tmp_path / "chat.kv"
    (tmp_path / "chat.jsonl").touch()
    if earlier:
        path.write_bytes(b"old")
    script = (
        "import sys; from pathlib import Path; from tinyllm_chat.chat.files import atomic_file\n"
        "with atomic_file(Path(sys.argv[1]), sync=False) as file:\n"
        "    file.write(bytes(1 << 20)); file.flush(); print('writing', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.kill()
    process.communicate()
    assert path.exists() == earlier
    assert not earlier or path.read_bytes() == b"old"
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    leftovers.sweep([tmp_path])
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_programs_killed_at_random_points_of_writing_leave_the_old_file_or_the_new_one() -> None:
    command = [sys.executable, "-m", "tests.faults", "save", "--runs", "25"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_file(tmp_path / "chat.kv") as file:
            file.write(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write()
    assert list(tmp_path.iterdir()) == []


# The session says when


def test_a_session_names_the_file_and_leaves_it(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    session = Session(backend, TranscriptStore(tmp_path / "chats"), Settings())
    session.open_model("m.gguf")
    session.drain()
    session.send("hello")
    session.drain()
    path = session.transcript_path
    assert path is not None
    assert backend.requests[-1].cache_file == cache_file(path)
    session.new_chat()
    assert backend.left == [cache_file(path)]
    session.close()
    assert backend.left == [cache_file(path)]  # an empty chat has no file


def test_a_chat_in_memory_has_no_file() -> None:
    backend = ScriptedBackend()
    session = Session(backend, None, Settings())
    session.open_model("m.gguf")
    session.drain()
    session.send("hello")
    session.drain()
    session.close()
    assert backend.requests[-1].cache_file is None
    assert backend.left == []
