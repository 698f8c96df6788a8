"""What a process holds at a moment, and whether it stays the same over a long time."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SETTLED = 0.3  # of a run, after which nothing is expected to grow any more
MORE_MEMORY = 1.05  # of what there was then
MORE_BYTES = 4 << 20
SLOWER = 1.2  # than then


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


def sample(turns: int, pages: int, first_token: float, speed: float, work: float) -> Sample:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    handles = len(os.listdir("/proc/self/fd"))
    return Sample(turns, resident, handles, threading.active_count(), pages, first_token, speed, work)


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
