"""What native code asks of the operating system: to sleep and to wake others, to give way, and what time it is."""

from __future__ import annotations

import platform
import sys
import time

import llvmlite.binding as llvm
import numpy as np
from numba import types

from tinyllm_engine.jit import native
from tinyllm_engine.simd import atomic_load

if sys.platform == "linux":
    FUTEX = {"x86_64": 202, "aarch64": 98, "arm64": 98}.get(platform.machine())
else:
    FUTEX = None
WAIT_PRIVATE, WAKE_PRIVATE = 128, 129

if sys.platform == "win32":
    import ctypes

    _kernel32 = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
    llvm.add_symbol("tinyllm_yield", ctypes.cast(_kernel32.SwitchToThread, ctypes.c_void_p).value)
    llvm.add_symbol("tinyllm_sleep", ctypes.cast(_kernel32.Sleep, ctypes.c_void_p).value)
    yield_to_others = types.ExternalFunction("tinyllm_yield", types.int32())
    _sleep = types.ExternalFunction("tinyllm_sleep", types.void(types.uint32))
    NAP = 1  # milliseconds
else:
    yield_to_others = types.ExternalFunction("sched_yield", types.int32())
    _sleep = types.ExternalFunction("usleep", types.int32(types.uint32))
    NAP = 200  # microseconds

if sys.platform == "win32":

    @native
    def nanoseconds():
        return np.int64(0)  # profiles are not taken here
else:
    _clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))

    @native
    def nanoseconds():
        """The monotonic clock."""
        moment = np.empty(2, np.int64)
        _clock_gettime(time.CLOCK_MONOTONIC, moment.ctypes.data)
        return moment[0] * 1_000_000_000 + moment[1]


if FUTEX is not None:
    _syscall = types.ExternalFunction("syscall", types.intp(*[types.intp] * 7))

    @native
    def sleep_while(address, value):
        """Sleeps until woken, unless the word has changed already."""
        _syscall(FUTEX, address, WAIT_PRIVATE, value & 0xFFFFFFFF, 0, 0, 0)

    @native
    def wake(address, count):
        _syscall(FUTEX, address, WAKE_PRIVATE, count, 0, 0, 0)
else:

    @native
    def sleep_while(address, value):
        if atomic_load(address) == value:
            _sleep(NAP)

    @native
    def wake(address, count):
        pass
