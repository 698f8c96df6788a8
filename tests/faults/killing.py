"""kill -9, and power cuts, at random moments of a chat."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.transcript_reader import read_conversation

from tests.faults.chatter import Chatter, Program, Report, places_in

LONGEST = 1.2  # seconds until a program is killed
ALLOWED = 1.0  # seconds of text that may be lost


@dataclass
class Outcome:
    runs: int = 0
    chats: int = 0  # that were read again
    seen: int = 0  # reports of text
    most_lost: float = 0.0  # seconds between the first text that is lost and the end of the program
    problems: list[str] = field(default_factory=list)


def kill(runs: int, *, programs: int = 1, power: bool = False, seed: int = 1, allowed: float = ALLOWED) -> Outcome:
    """Kills so many programs, each of which goes on where the one before it ended.

    programs: that run at a time, in the same folders
    power: with the program, all is gone that was not synced to the disk
    allowed: seconds of text that may be lost
    """
    outcome, draw = Outcome(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tinyllm-faults.") as name:
        places = places_in(Path(name))
        for run in range(runs):
            if run % 50 == 0:  # else the chats get longer and longer
                places = places_in(Path(name) / str(run))
            lines, ended = _killed(places, seed * 1_000_000 + run * programs, draw.random() * LONGEST, programs)
            if power:
                _cut(places, lines)
            outcome.runs += programs
            before = len(outcome.problems)
            _check(places, lines, ended, outcome, allowed)
            if len(outcome.problems) > before:
                print(f"run {run}: {outcome.problems[before]}", flush=True)
    return outcome


def _killed(places: Paths, seed: int, seconds: float, programs: int) -> tuple[list[dict[str, Any]], float]:
    """What programs had reported when they were killed, and when that was."""
    reading, writing = os.pipe()
    started = [_start(places, seed + number, reading, writing) for number in range(programs)]
    os.close(writing)
    # From the first sign of life on: a start takes as long as it takes.
    data = os.read(reading, 1 << 16)
    os.set_blocking(reading, False)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.005))
        data += _available(reading)
    for pid in started:
        os.kill(pid, signal.SIGKILL)
    ended = time.monotonic()
    if not all(os.WIFSIGNALED(os.waitpid(pid, 0)[1]) for pid in started):
        raise RuntimeError("a chatter ended by itself")
    os.set_blocking(reading, True)
    while part := os.read(reading, 1 << 16):
        data += part
    os.close(reading)
    return [json.loads(line) for line in data.split(b"\n")[:-1]], ended


def _start(places: Paths, seed: int, reading: int, writing: int) -> int:
    started = os.fork()
    if started == 0:
        os.close(reading)
        try:
            Chatter(places, seed, Report(writing).seen).run()
        finally:
            os._exit(3)
    return started


def _available(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return b""


def _cut(places: Paths, lines: list[dict[str, Any]]) -> None:
    """Takes away what this program had not synced of the files that it wrote."""
    synced = {line["synced"]: line["size"] for line in lines if "synced" in line}
    for chat in {line["chat"] for line in lines if "chat" in line}:
        path = places.transcripts / f"{chat}.jsonl"
        if path.exists() and str(path) in synced:
            os.truncate(path, min(path.stat().st_size, synced[str(path)]))


def _check(places: Paths, lines: list[dict[str, Any]], ended: float, outcome: Outcome, allowed: float) -> None:
    problems = outcome.problems
    lost = {}
    for path in sorted(places.transcripts.rglob("*.jsonl")):
        *whole, _torn = path.read_bytes().split(b"\n")
        try:
            records = [json.loads(line) for line in whole]
        except ValueError as error:
            problems.append(f"{path.name}: {error}")
            continue
        conversation, warnings = read_conversation(path)
        problems += warnings
        outcome.chats += 1
        texts = {message.id: message.content for message in conversation}
        gone = {record["id"] for record in records if record["type"] == "delete"}
        for line in lines:
            if line.get("chat") != path.stem or (line["message"] not in texts and gone):
                continue
            outcome.seen += 1
            if len(texts.get(line["message"], "")) < line["length"]:
                lost.setdefault(path.stem, ended - line["time"])
    outcome.most_lost = max([outcome.most_lost, *lost.values()])
    problems += [f"{chat}: {seconds:.2f} s of text are lost" for chat, seconds in lost.items() if seconds > allowed]
    problems += _next_start(places)


def _next_start(places: Paths) -> list[str]:
    """What the next program that is started does not put right."""
    program = Program(places)
    program.library.update()
    files = list(places.transcripts.glob("*.jsonl"))
    problems = [] if program.library.count() == len(files) else ["the index does not have all chats"]
    for chat in program.library.chats():
        program.session.open_chat(chat.id)
        problems += [f"{chat.id}: {chat.problem}"] if chat.problem else []
        if program.session.read_only:
            problems.append(f"{chat.id}: it is locked by a program that is gone")
    program.close()
    left = [path for folder in (places.config, places.data, places.state) for path in folder.rglob("*")]
    unwanted = (".tmp", ".lock", ".stale", "-wal", "-shm", "-journal")
    problems += [f"{path.name} remains" for path in left if path.name.endswith(unwanted)]
    return problems
