"""The team: every thread runs every entry, barriers hold, cancelling and closing leave nothing behind."""

import gc
import os
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from support.waiting import wait_until
from tinyllm_engine.cancel import Cancel
from tinyllm_engine.jit import kernel, layout, record
from tinyllm_engine.memory import array_at
from tinyllm_engine.program import Op, Program
from tinyllm_engine.simd import atomic_add, atomic_load, store_i32, store_i64
from tinyllm_engine.system_calls import FUTEX
from tinyllm_engine.team import SLEEPERS, Team

# counts int64 [threads, 8]: one cache line each; total int64 [1]: all together; seen int64 [threads, 8]
COUNT = layout("counts", "total")
LOOK = layout("total", "seen")
PULL = layout("thread", "flag")  # that thread sets the int32 at `flag`


@kernel(COUNT)
def count_for_tests(thread, threads, pointer):
    a = record(pointer)
    atomic_add(a.counts + 64 * thread, 1)
    atomic_add(a.total, 1)


@kernel(LOOK)
def look_for_tests(thread, threads, pointer):
    a = record(pointer)
    store_i64(a.seen + 64 * thread, atomic_load(a.total))


@kernel(PULL)
def pull_for_tests(thread, threads, pointer):
    a = record(pointer)
    if thread == a.thread:
        store_i32(a.flag, 1)


@pytest.fixture(params=[1, 2, 3, 4])
def team(request):
    made = Team(request.param)
    yield made
    made.close()


class Counters:
    """Memory of the test kernels, and ops on it."""

    def __init__(self):
        self.counts, self.seen = np.zeros((4, 8), np.int64), np.zeros((4, 8), np.int64)
        self.total = np.zeros(1, np.int64)

    def count(self, barrier=True):
        fields = {"counts": self.counts.ctypes.data, "total": self.total.ctypes.data}
        return Op("count", count_for_tests, fields, barrier=barrier)

    def look(self):
        return Op("look", look_for_tests, {"total": self.total.ctypes.data, "seen": self.seen.ctypes.data})


def pull(cancel, thread=0):
    return Op("pull", pull_for_tests, {"thread": thread, "flag": cancel.address})


def run(team, *ops, cancel=None, clocks=None):
    program = Program(ops)  # its memory is what the threads read
    return team.run(program.freeze(), cancel, clocks)


@pytest.fixture
def followers():
    """Gives the threads that teams have started since the test began."""
    before = threading.enumerate()
    return lambda: [t for t in threading.enumerate() if t.name.startswith("tinyllm-") and t not in before]


# --- running ----------------------------------------------------------------------------------------------------------


def test_every_thread_runs_every_entry_of_many_short_runs(team):
    c = Counters()
    program = Program([c.count(barrier=False), c.count(), c.count()])
    for _ in range(300):
        assert team.run(program.freeze())
    assert c.counts[:, 0].tolist() == [900] * team.threads + [0] * (4 - team.threads)


def test_nobody_passes_a_barrier_before_everybody_is_there(team):
    c = Counters()
    rounds = 50
    program = Program([op for _ in range(rounds) for op in (c.count(), c.look())])
    team.run(program.freeze())
    assert c.total[0] == rounds * team.threads
    program = Program([c.count(), c.look()])
    for done in range(1, rounds + 1):
        team.run(program.freeze())
        assert (c.seen[: team.threads, 0] == (rounds + done) * team.threads).all()


def test_programs_take_turns(team):
    c, d = Counters(), Counters()
    first, second = Program([c.count()]), Program([d.count(), d.count()])
    for _ in range(20):
        team.run(first.freeze())
        team.run(second.freeze())
    assert (c.total[0], d.total[0]) == (20 * team.threads, 40 * team.threads)


def test_a_profiled_run_is_the_same_run(team):
    c = Counters()
    program = Program([c.count(), c.count(barrier=False), c.count()])
    clocks = np.zeros((3, 2), np.int64)
    for _ in range(10):
        assert team.run(program.freeze(), clocks=clocks)
    assert c.total[0] == 30 * team.threads
    assert clocks[1, 1] == 0  # no barrier, no waiting
    if sys.platform != "win32":
        assert (clocks[:, 0] > 0).all()


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_all_threads_leave_at_the_same_barrier(team):
    """Whichever thread sets the flag, and whatever the others do meanwhile."""
    for puller in range(team.threads):
        for _ in range(30):
            c, cancel = Counters(), Cancel()
            ops = c.count(), c.count(), pull(cancel, puller), c.count(), c.count(), c.count()
            assert not run(team, *ops, cancel=cancel)
            # at the flag's own barrier: thread 0 looks before it waits, so the others may be one entry late
            per_thread = set(c.counts[: team.threads, 0].tolist())
            assert per_thread in ({2}, {3})


def test_a_flag_set_before_stops_at_the_first_barrier(team):
    c, cancel = Counters(), Cancel()
    cancel.set()
    assert not run(team, c.count(False), c.count(), c.count(), cancel=cancel)
    assert c.total[0] == 2 * team.threads


def test_a_team_runs_again_after_it_was_cancelled(team):
    c, cancel = Counters(), Cancel()
    run(team, c.count(), pull(cancel), c.count(), cancel=cancel)
    before = c.total[0]
    assert run(team, c.count(), c.count())
    cancel.clear()
    assert run(team, c.count(), c.count(), cancel=cancel)
    assert c.total[0] == before + 4 * team.threads


def test_a_profiled_run_is_cancelled_too(team):
    c, cancel = Counters(), Cancel()
    cancel.set()
    assert not run(team, c.count(), c.count(), cancel=cancel, clocks=np.zeros((2, 2), np.int64))
    assert c.total[0] == team.threads


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_start_with_the_first_run_and_end_with_close(team, followers):
    c = Counters()
    for _ in range(3):
        assert followers() == []
        run(team, c.count())
        assert len(followers()) == team.threads - 1
        team.close()
    assert c.total[0] == 3 * team.threads
    team.close()


def test_a_forgotten_team_takes_its_threads_along(followers):
    c = Counters()
    team = Team(3)
    run(team, c.count())
    gone = weakref.ref(team)
    del team
    gc.collect()
    assert gone() is None
    assert followers() == []


def sleeping(thread):
    """Whether the system has put the thread to sleep: what it does then costs nothing."""
    text = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return text.rpartition(")")[2].split()[0] == "S"


def test_idle_threads_sleep_and_wake_up(followers):
    c, team = Counters(), Team(4)
    sleepers = array_at(team.address(SLEEPERS), np.int64, 1)
    try:
        for done in range(1, 6):
            run(team, c.count())
            wait_until(lambda: sleepers[0] == 3)
            if FUTEX is not None:
                wait_until(lambda: all(sleeping(thread) for thread in followers()))
            assert c.total[0] == 4 * done
    finally:
        team.close()


def test_threads_that_share_a_processor_pass_barriers():
    """A thread that waits gives way to the one it waits for."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("threads cannot be tied to a processor here")
    allowed = os.sched_getaffinity(0)
    c, team = Counters(), Team(4)
    os.sched_setaffinity(0, {min(allowed)})  # of this thread, and of those it starts
    try:
        run(team, *(c.count() for _ in range(20)))
        assert c.total[0] == 80
    finally:
        os.sched_setaffinity(0, allowed)
        team.close()
