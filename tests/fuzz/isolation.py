"""Cases run one after the other in a child process, which may crash, hang or ask for too much memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

CASES_PER_CHILD = 250  # what one leaves behind is not held against too many others


@dataclass(frozen=True)
class Outcome:
    """How a case ended. fault: empty if it ended well; said: a word for the statistics, or where it went wrong."""

    number: int
    fault: str
    said: str


def run_isolated(
    examine: Callable[[int], str], numbers: Iterable[int], seconds: float, megabytes: int
) -> Iterator[Outcome]:
    """`examine` of each number, in a child forked from here.

    What it returns is the word for the statistics; whatever it raises is a fault, and so is it to take longer than
    `seconds`, and to die. It cannot have more than `megabytes` above what it has at the start of a case.
    """
    context = multiprocessing.get_context("fork")
    waiting = list(numbers)[::-1]
    while waiting:
        here, there = context.Pipe()
        child = context.Process(target=_serve, args=(there, here, examine, megabytes), daemon=True)
        child.start()
        there.close()
        for _ in range(min(CASES_PER_CHILD, len(waiting))):
            number = waiting.pop()
            here.send(number)
            if not here.poll(seconds):
                os.kill(child.pid or 0, signal.SIGKILL)
                yield Outcome(number, "hang", f"more than {seconds:.0f} seconds")
                break
            try:
                yield here.recv()
            except EOFError:
                child.join()
                yield Outcome(number, "crash", f"exit code {child.exitcode}")
                break
        here.close()
        child.join()


def _serve(parent: Connection, other_end: Connection, examine: Callable[[int], str], megabytes: int) -> None:
    other_end.close()  # else this process would keep it open, and never see its end
    while True:
        try:
            number = parent.recv()
        except EOFError:
            return
        _limit_memory(megabytes)
        try:
            outcome = Outcome(number, "", examine(number))
        except BaseException as error:
            outcome = Outcome(number, type(error).__name__, _place(error))
        parent.send(outcome)


def _limit_memory(megabytes: int) -> None:
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + (megabytes << 20), most))


def _place(error: BaseException) -> str:
    """Where and what, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = " < ".join(f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in reversed(frames[-3:]))
    return f"{place}: {ascii(str(error))[:200]}"
