"""The threads that run a program together.

Between the first and the last kernel of a pass there is no Python, no GIL and no allocation: every thread walks the
same list, calls each kernel by address with its own number, and waits at a barrier where the list asks for one. Idle
threads spin for a moment, then sleep in the operating system, and wake in microseconds whatever the GIL is doing.
"""

from __future__ import annotations

import threading
import weakref

import numpy as np
from numba import types

from tinyllm_engine.cancel import Cancel
from tinyllm_engine.jit import compiled, native
from tinyllm_engine.memory import aligned
from tinyllm_engine.simd import (
    atomic_add,
    atomic_load,
    atomic_load_i32,
    atomic_store,
    call_kernel,
    load_i64,
    pause,
    store_i64,
)
from tinyllm_engine.system_calls import nanoseconds, sleep_while, wake, yield_to_others

# The control block: int64 words, those that different threads write in cache lines of their own.
GENERATION, TICKETS, STOPS, PROGRAM, LENGTH, CANCEL, QUIT, SLEEPERS, CLOCKS = (64 * i for i in range(9))
CONTROL_WORDS = 8 * 9

SPINS_AT_BARRIER = 4000  # some tens of microseconds, then the core is offered to others
SPINS_WHEN_IDLE = 20000  # the next token of a running answer usually comes sooner


@native
def barrier(control, thread, threads):
    """Waits for all threads. Returns what thread 0 saw of the cancel flag, the same to everybody.

    Two slots take turns, so that thread 0 never overwrites one that a late thread has still to read.
    """
    if threads == 1:
        return atomic_load_i32(load_i64(control + CANCEL)) != 0
    if thread == 0:
        slot = atomic_load(control + TICKETS) // threads & 1
        atomic_store(control + STOPS + 8 * slot, np.int64(atomic_load_i32(load_i64(control + CANCEL))))
    ticket = atomic_add(control + TICKETS, 1)
    target = (ticket // threads + 1) * threads
    spins = 0
    while atomic_load(control + TICKETS) < target:
        if spins < SPINS_AT_BARRIER:
            spins += 1
            pause()
        else:
            yield_to_others()
    return atomic_load(control + STOPS + 8 * (ticket // threads & 1)) != 0


@native
def run_entries(control, thread, threads):
    """Walks the program: (kernel, arguments, barrier after) per entry."""
    program, length = atomic_load(control + PROGRAM), atomic_load(control + LENGTH)
    clocks = atomic_load(control + CLOCKS) if thread == 0 else 0
    if clocks != 0:
        run_timed(control, program, length, threads, clocks)
        return
    for entry in range(length):
        at = program + 24 * entry
        call_kernel(load_i64(at), thread, threads, load_i64(at + 8))
        if load_i64(at + 16) != 0 and barrier(control, thread, threads):
            return


@native
def run_timed(control, program, length, threads, clocks):
    """The same for thread 0, adding nanoseconds to int64 [entries, 2]: in the kernel, at the barrier."""
    last = nanoseconds()
    for entry in range(length):
        at = program + 24 * entry
        call_kernel(load_i64(at), 0, threads, load_i64(at + 8))
        now = nanoseconds()
        store_i64(clocks + 16 * entry, load_i64(clocks + 16 * entry) + now - last)
        last = now
        if load_i64(at + 16) != 0:
            stop = barrier(control, 0, threads)
            now = nanoseconds()
            store_i64(clocks + 16 * entry + 8, load_i64(clocks + 16 * entry + 8) + now - last)
            last = now
            if stop:
                return


@native
def run_together(control, threads):
    """Thread 0: wakes the others, runs, returns when all are through."""
    if threads > 1:
        atomic_add(control + GENERATION, 1)
        if atomic_load(control + SLEEPERS) > 0:
            wake(control + GENERATION, threads)
    run_entries(control, 0, threads)


@compiled(types.void(types.intp, types.intp))
def lead(control, threads):
    """`run_together`, called from Python."""
    run_together(control, threads)


@compiled(types.void(types.intp, types.intp, types.intp))
def follow(control, thread, threads):
    """The other threads: wait for a new generation, run it, again; until told to quit."""
    seen = np.int64(0)
    while True:
        spins = 0
        while atomic_load(control + GENERATION) == seen:
            if spins < SPINS_WHEN_IDLE:
                spins += 1
                pause()
            else:
                atomic_add(control + SLEEPERS, 1)
                sleep_while(control + GENERATION, seen)
                atomic_add(control + SLEEPERS, -1)
        seen += 1
        if atomic_load(control + QUIT) != 0:
            return
        run_entries(control, thread, threads)


class Team:
    """`threads` threads, the caller of `run` being the first of them."""

    def __init__(self, threads: int):
        self.threads = threads
        self._control = aligned(CONTROL_WORDS, np.int64)
        self._never = Cancel()
        self._followers: list[threading.Thread] = []
        self._control[CANCEL // 8] = self._never.address

    def address(self, word: int) -> int:
        """The address of a word of the control block; CANCEL holds the address of the cancel flag in force."""
        return self._control.ctypes.data + word

    def run(self, program: np.ndarray, cancel: Cancel | None = None, clocks: np.ndarray | None = None) -> bool:
        """Runs int64 [entries, 3] to its end; False when `cancel` was set meanwhile (then nothing it wrote counts).

        clocks: int64 [entries, 2], to which the nanoseconds of thread 0 are added: in each kernel, at its barrier
        """
        cancel = self.load(program, cancel, clocks)
        lead(self.address(0), self.threads)
        return not cancel.is_set()

    def load(self, program: np.ndarray, cancel: Cancel | None = None, clocks: np.ndarray | None = None) -> Cancel:
        """Prepares `run_together` of a program; returns the cancel flag in force."""
        cancel = cancel or self._never
        self._control[PROGRAM // 8] = program.ctypes.data
        self._control[LENGTH // 8] = len(program)
        self._control[CANCEL // 8] = cancel.address
        self._control[CLOCKS // 8] = 0 if clocks is None else clocks.ctypes.data
        if not self._followers and self.threads > 1:
            self._start()
        return cancel

    def _start(self) -> None:
        for thread in range(1, self.threads):
            follower = threading.Thread(
                target=follow, args=(self.address(0), thread, self.threads), daemon=True, name=f"tinyllm-{thread}"
            )
            follower.start()
            self._followers.append(follower)
        # A forgotten team must not leave threads behind that watch freed memory.
        self._end = weakref.finalize(self, _end, self._control, self.threads, self._followers)
        self._end.atexit = False

    def close(self) -> None:
        """Ends the other threads. A closed team can run again."""
        if self._followers:
            self._end()


def _end(control: np.ndarray, threads: int, followers: list[threading.Thread]) -> None:
    """Ends a team's followers and makes its control block new again."""
    control[QUIT // 8], control[LENGTH // 8] = 1, 0
    lead(control.ctypes.data, threads)
    for follower in followers:
        follower.join(timeout=5)
    followers.clear()
    control[QUIT // 8], control[GENERATION // 8] = 0, 0
