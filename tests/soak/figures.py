"""What a process holds at a moment, and whether it stays the same over a long time."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

SETTLED = 0.3  # of a run, after which nothing is expected to grow any more
MORE_MEMORY = 1.05  # of what there was then
MORE_BYTES = 4 << 20
SLOWER = 1.2  # than then
ALLOWED = {"memory": 0.05, "handles": 0.0, "threads": 0.0, "objects": 0.05}  # rises over the second half of a run
FILLED = 500  # turns after which what Textual remembers of looks and places has nearly filled its bounds
ALLOWED_TIMES = {"key": 0.1, "work": 0.1}  # of the processor


@dataclass(frozen=True, slots=True)
class Sample:
    turns: int
    memory: int  # bytes that are resident
    handles: int  # open files
    threads: int
    pages: int  # of the cache, in use
    first_token: float  # seconds, of the same question in an empty chat
    speed: float  # tokens per second of its answer
    work: float  # seconds of the processor that the question and its answer take


@dataclass(frozen=True, slots=True)
class ScreenSample:
    """The same of a program with its screen."""

    turns: int
    memory: int  # bytes that are resident, without the model's cache
    cache: int  # bytes of that
    handles: int  # open files
    threads: int
    objects: int  # of Python, that refer to others
    first_token: float  # seconds from the question to the first text, in a new chat
    key: float  # seconds of the processor that a letter in the input takes
    work: float  # seconds of the processor that the question and its answer take


def held(pid: int) -> tuple[int, int, int]:
    """(bytes resident, open files, threads) of a process"""
    process = Path(f"/proc/{pid}")
    resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident, len(os.listdir(process / "fd")), len(os.listdir(process / "task"))


def sample(turns: int, pages: int, first_token: float, speed: float, work: float) -> Sample:
    memory, handles, _ = held(os.getpid())
    return Sample(turns, memory, handles, threading.active_count(), pages, first_token, speed, work)


def screen_table(samples: Sequence[ScreenSample]) -> str:
    """In Markdown."""
    lines = [
        "| turns | memory, MB | cache, MB | open files | threads | objects "
        "| first token, ms | a key, ms | processor, ms |",
        "|------:|-----------:|----------:|-----------:|--------:|--------:"
        "|----------------:|----------:|--------------:|",
    ]
    lines += [
        f"| {each.turns:,} | {each.memory / 1e6:.1f} | {each.cache / 1e6:.1f} | {each.handles} | {each.threads} "
        f"| {each.objects:,} | {each.first_token * 1e3:.1f} | {each.key * 1e3:.2f} | {each.work * 1e3:.1f} |"
        for each in samples
    ]
    return "\n".join(lines)


def rise(samples: Sequence[ScreenSample], name: str) -> float:
    """By what share a figure rose over the second half of a run: the median slope between any two of its samples."""
    half = samples[len(samples) // 2 :]
    slopes = [
        (getattr(late, name) - getattr(early, name)) / (late.turns - early.turns)
        for early, late in combinations(half, 2)
        if late.turns > early.turns
    ]
    if not slopes:
        return 0.0
    return median(slopes) * (half[-1].turns - half[0].turns) / median(getattr(each, name) for each in half)


def risen(samples: Sequence[ScreenSample], *, timed: bool = True) -> list[str]:
    """What did not stay flat over the second half of a run, one line for each."""
    allowed = ALLOWED | (ALLOWED_TIMES if timed else {})
    if samples[len(samples) // 2].turns < FILLED:
        del allowed["objects"]
    found = {name: rise(samples, name) for name in allowed}
    return [f"{name}: {found[name]:+.1%} in the second half" for name in allowed if found[name] > allowed[name]]


def table(samples: Sequence[Sample]) -> str:
    """In Markdown."""
    lines = [
        "| turns | memory, MB | open files | threads | cache pages | first token, ms | tokens/s | processor, ms |",
        "|------:|-----------:|-----------:|--------:|------------:|----------------:|---------:|--------------:|",
    ]
    lines += [
        f"| {each.turns:,} | {each.memory / 1e6:.1f} | {each.handles} | {each.threads} | {each.pages} "
        f"| {each.first_token * 1e3:.1f} | {each.speed:.0f} | {each.work * 1e3:.1f} |"
        for each in samples
    ]
    return "\n".join(lines)


def grown(samples: Sequence[Sample], most_pages: int, *, timed: bool = True) -> list[str]:
    """What did not stay flat once the run had settled, one line for each."""
    settled = [each for each in samples if each.turns >= SETTLED * samples[-1].turns]
    begin, end = settled[: len(settled) // 2] or settled, settled[-(len(settled) // 2) :]
    found = []
    for name in ("handles", "threads"):
        first, last = (max(getattr(each, name) for each in part) for part in (begin, end))
        if last > first:
            found.append(f"{name}: {first} became {last}")
    first, last = (max(each.memory for each in part) for part in (begin, end))
    if last > first * MORE_MEMORY + MORE_BYTES:
        found.append(f"memory: {first / 1e6:.1f} MB became {last / 1e6:.1f}")
    if (pages := max(each.pages for each in samples)) > most_pages:
        found.append(f"cache pages: {pages} of {most_pages}")
    if timed:  # of the processor: what else the machine does is not this program's
        first, last = (median(each.work for each in part) for part in (begin, end))
        if last > first * SLOWER:
            found.append(f"a question and its answer: {first * 1e3:.1f} ms of the processor became {last * 1e3:.1f}")
    return found
