"""kill -9 at random points of writing a chat's cache to its file."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from tinyllm_chat.chat import leftovers
from tinyllm_chat.chat.engine_api import load_engine
from tinyllm_chat.chat.kept_cache import KeptCaches, cache_file
from tinyllm_engine.branches import Branches
from tinyllm_engine.kv_cache import KVCache, LayerShape
from tinyllm_engine.runner import Sequence

CONTEXT, VOCABULARY = 512, 128
OLD, NEW = 100, 200  # tokens; they have the first SHARED of them in common
SHARED = 70


@dataclass
class Outcome:
    runs: int = 0
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("none", "old", "new"), 0))
    problems: list[str] = field(default_factory=list)


class Shell:
    """What keeping a cache needs of a runner: one without a model, whose pages are filled by hand."""

    def __init__(self) -> None:
        self.cache = KVCache([LayerShape(2, 32, 32)] * 3, CONTEXT)
        self.context_length, self.vocab_size = CONTEXT, VOCABULARY
        self.model = SimpleNamespace(weights=SimpleNamespace(ropes=()))

    def new_sequence(self) -> Sequence:
        return Sequence(self)  # type: ignore[arg-type]

    sequence = new_sequence


class Program:
    """A chat whose cache is kept. `wrapped` makes another function of its file's `write`."""

    def __init__(self, wrapped: Callable[[Callable], Callable] = lambda write: write) -> None:
        engine = load_engine()
        self.branches = Branches(Shell())  # type: ignore[arg-type]
        save = engine.save_sequence
        engine = replace(engine, save_sequence=lambda sequence, write, model: save(sequence, wrapped(write), model))
        self.kept = KeptCaches(engine, self.branches, "a model", 1 << 30)

    def write(self, path: Path, count: int) -> None:
        """Keeps a cache of so many tokens."""
        sequence = self.branches.runner.new_sequence()
        sequence.pages.grow(count)
        sequence.pages.hold(range(sequence.pages.count))
        sequence.restored(ids_of(count), count)
        for memory, expected in zip(_memory(sequence), rows_of(count), strict=True):
            memory[:] = expected
        self.kept.answered(path, sequence)
        self.kept.keep(path)

    def found(self, path: Path) -> int:
        """Of how many tokens what it finds in the file is, 0: it finds none. ValueError if it is not what was kept."""
        self.kept.recall(path, [*ids_of(NEW), 0])
        sequence = self.branches.current
        assert sequence is not None
        if not sequence.position:
            return 0
        count = sequence.position
        if count not in (OLD, NEW) or sequence.tokens != ids_of(count):
            raise ValueError(f"{count} tokens that nobody kept")
        if not all(map(np.array_equal, _memory(sequence), rows_of(count))):
            raise ValueError(f"{count} tokens with other rows")
        return count


def ids_of(count: int) -> list[int]:
    first = np.random.default_rng(0).integers(0, VOCABULARY, SHARED).tolist()
    return first + np.random.default_rng(count).integers(0, VOCABULARY, count - SHARED).tolist()


def rows_of(count: int) -> list[np.ndarray]:
    """The bytes of all pages, part by part."""
    draw = np.random.default_rng(count)
    sequence = Shell().new_sequence()
    sequence.pages.grow(count)
    return [draw.integers(0, 256, len(memory), np.uint8) for memory in _memory(sequence)]


def _memory(sequence: Sequence) -> list[np.ndarray]:
    pages = sequence.pages.table[: sequence.pages.count].tolist()
    return [part for page in pages for part in sequence.runner.cache.page_bytes(page)]


def kill_saves(runs: int, seed: int = 1) -> Outcome:
    """Kills so many programs that replace a chat's cache, or write its first one, and starts the next one."""
    outcome, draw = Outcome(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tinyllm-faults.") as name:
        folder = Path(name)
        transcript = folder / "chat.jsonl"
        transcript.touch()
        path = cache_file(transcript)
        Program().write(path, NEW)
        size = path.stat().st_size
        for run in range(runs):
            path.unlink(missing_ok=True)
            if earlier := draw.random() < 0.7:
                Program().write(path, OLD)
            # the last two points: all is written but not in its place, and all is done
            point = draw.choice((draw.randrange(size), draw.randrange(size), size, size + 1))
            _killed(path, point, draw.random() < 0.5)
            leftovers.sweep([folder])
            _check(path, earlier, point > size, outcome, run)
            left = sorted(file.name for file in folder.iterdir() if file not in (transcript, path))
            outcome.problems += [f"run {run}: {file} remains" for file in left]
            outcome.runs += 1
    return outcome


def _check(path: Path, earlier: bool, done: bool, outcome: Outcome, run: int) -> None:
    expected = NEW if done else OLD if earlier else 0
    try:
        count = Program().found(path)
    except ValueError as error:
        outcome.problems.append(f"run {run}: {error}")
        return
    outcome.found[{0: "none", OLD: "old", NEW: "new"}[count]] += 1
    if count != expected:
        outcome.problems.append(f"run {run}: expected {expected} tokens, found {count}")


def _killed(path: Path, point: int, flush: bool) -> None:
    started = os.fork()
    if started == 0:
        try:
            _die_writing(path, point, flush)
        finally:
            os._exit(3)
    _, status = os.waitpid(started, 0)
    if not os.WIFSIGNALED(status):
        raise RuntimeError("the program that was to be killed ended by itself")


def _die_writing(path: Path, point: int, flush: bool) -> None:
    """Writes a file and dies after `point` bytes of it; flush: the system has got all of them."""
    move, written = os.replace, 0

    def wrapped(write: Callable[[Any], object]) -> Callable[[Any], None]:
        def counted(data: Any) -> None:
            nonlocal written
            view = memoryview(data).cast("B")
            if (room := point - written) < len(view):
                write(view[:room])
                if flush:
                    write.__self__.flush()  # type: ignore[attr-defined]
                _die()
            write(view)
            written += len(view)

        return counted

    def moved(source: Path, target: Path) -> None:
        if written < point:
            move(source, target)
        _die()

    os.replace = moved  # type: ignore[assignment]
    Program(wrapped).write(path, NEW)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
