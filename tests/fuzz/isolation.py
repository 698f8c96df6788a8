"""Cases run one after the other in a child process, which may crash, hang or ask for too much memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

PATIENCE = 200.0  # seconds for a case on a machine that has no time for it
STEP = 0.25
CASES_PER_CHILD = 250  # what one leaves behind is not held against too many others


@dataclass(frozen=True)
class Outcome:
    """How a case ended. fault: empty if it ended well; said: a word for the statistics, or where it went wrong."""

    number: int
    fault: str
    said: str


def run_isolated(
    make: Callable[[int], object], examine: Callable[[int], str], numbers: Iterable[int], seconds: float, megabytes: int
) -> Iterator[Outcome]:
    """`make` and then `examine` of each number, in a child forked from here; only the second is limited.

    What it returns is the word for the statistics; whatever it raises is a fault, and so is it to take more than
    `seconds` of a processor, and to die. It cannot have more than `megabytes` above what it has at the start of a case.
    """
    context = multiprocessing.get_context("fork")
    waiting = list(numbers)[::-1]
    while waiting:
        here, there = context.Pipe()
        child = context.Process(target=_serve, args=(there, here, make, examine, megabytes), daemon=True)
        child.start()
        there.close()
        for _ in range(min(CASES_PER_CHILD, len(waiting))):
            number = waiting.pop()
            here.send(number)
            try:
                here.recv()  # it is made
                if not _answers(here, child.pid or 0, seconds):
                    os.kill(child.pid or 0, signal.SIGKILL)
                    yield Outcome(number, "hang", f"more than {seconds:.0f} seconds")
                    break
                yield here.recv()
            except EOFError:
                child.join()
                yield Outcome(number, "crash", f"exit code {child.exitcode}")
                break
        here.close()
        child.join()


def _answers(child: Connection, pid: int, seconds: float) -> bool:
    """Within its time; a child that died answers at once, too."""
    start, before = time.monotonic(), _processor_seconds(pid)
    while not child.poll(STEP):
        used = _processor_seconds(pid) - before
        if used > seconds or time.monotonic() - start > PATIENCE:
            return False
    return True


def _processor_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(
    parent: Connection,
    other_end: Connection,
    make: Callable[[int], object],
    examine: Callable[[int], str],
    megabytes: int,
) -> None:
    other_end.close()  # else this process would keep it open, and never see its end
    while True:
        try:
            number = parent.recv()
        except EOFError:
            return
        make(number)
        parent.send(None)
        _limit_memory(megabytes)
        try:
            outcome = Outcome(number, "", examine(number))
        except BaseException as error:
            outcome = Outcome(number, type(error).__name__, _place(error))
        _limit_memory(None)
        parent.send(outcome)


def _limit_memory(megabytes: int | None) -> None:
    """So much more than now; None: as much as there is."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if megabytes is None else size + (megabytes << 20), most))


def _place(error: BaseException) -> str:
    """Where and what, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = " < ".join(f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in reversed(frames[-3:]))
    return f"{place}: {ascii(str(error))[:200]}"
