"""What the machine itself can do, with all threads of a measurement: reading memory, and multiplying floats."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "engine"), str(ROOT / "app")]

from tinyllm_chat.cli.doctor import processor_name  # noqa: E402
from tinyllm_engine import simd  # noqa: E402
from tinyllm_engine.jit import kernel, layout, record  # noqa: E402
from tinyllm_engine.program import Op, Program  # noqa: E402
from tinyllm_engine.simd import LANES, add, fma, load_f32w, prefetch, splat_f32w, store, zero_f32w  # noqa: E402
from tinyllm_engine.team import Team  # noqa: E402

READ_BYTES = 1 << 30  # more than any cache holds
AHEAD = 4096  # bytes, as the engine prefetches
VECTOR = 4 * LANES  # bytes
CHAINS = 12  # sums that run side by side, so that no addition waits for the one before
FMA_ROUNDS = 20_000_000
SIZE = 2048  # of the matrices of sgemm
REPEATS = 3  # of each measurement, the best of which counts: neighbours only ever take away

ARGUMENTS = layout("data", "bytes", "rounds", "out")


@kernel(ARGUMENTS)
def read_memory(thread, threads, pointer):
    """Adds up all of the data: each thread a stretch of it, four vectors at a time."""
    a = record(pointer)
    stretch = a.bytes // threads // (4 * VECTOR) * (4 * VECTOR)
    start = a.data + thread * stretch
    s0, s1, s2, s3 = zero_f32w(), zero_f32w(), zero_f32w(), zero_f32w()
    for at in range(start, start + stretch, 4 * VECTOR):
        for line in range(0, 4 * VECTOR, 64):
            prefetch(at + AHEAD + line)
        s0 = add(s0, load_f32w(at))
        s1 = add(s1, load_f32w(at + VECTOR))
        s2 = add(s2, load_f32w(at + 2 * VECTOR))
        s3 = add(s3, load_f32w(at + 3 * VECTOR))
    store(a.out + 64 * thread, add(add(s0, s1), add(s2, s3)))


@kernel(ARGUMENTS)
def multiply_add(thread, threads, pointer):
    """x = x / 2 + 1/2 in twelve vectors, `rounds` times."""
    a = record(pointer)
    half, x = splat_f32w(np.float32(0.5)), zero_f32w()
    x0, x1, x2, x3, x4, x5 = x, x, x, x, x, x
    x6, x7, x8, x9, x10, x11 = x, x, x, x, x, x
    for _ in range(a.rounds):
        x0, x1, x2, x3 = fma(x0, half, half), fma(x1, half, half), fma(x2, half, half), fma(x3, half, half)
        x4, x5, x6, x7 = fma(x4, half, half), fma(x5, half, half), fma(x6, half, half), fma(x7, half, half)
        x8, x9, x10, x11 = fma(x8, half, half), fma(x9, half, half), fma(x10, half, half), fma(x11, half, half)
    low = add(add(add(x0, x1), add(x2, x3)), add(x4, x5))
    store(a.out + 64 * thread, add(low, add(add(x6, x7), add(add(x8, x9), add(x10, x11)))))


class Machine:
    """facts: names and versions; orders: measurements by name, each returning GB/s or GFLOP/s."""

    def __init__(self, threads: int) -> None:
        self._threads, self._team = threads, Team(threads)
        self._data = np.ones(READ_BYTES // 4, np.float32)
        self._out = np.zeros(16 * threads, np.float32)
        self._a, self._b = (np.random.default_rng(i).random((SIZE, SIZE), np.float32) for i in range(2))
        self.orders: dict[str, Callable[..., float]] = {"read": self.read, "fma": self.fma, "sgemm": self.sgemm}
        self.facts: dict[str, Any] = {
            "version": ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "llvmlite")),
            "cpu": processor_name(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "simd": simd.TARGET,
            "blas": blas_kernel(),
        }

    def read(self) -> float:
        return READ_BYTES / 1e9 / self._best(self._program(read_memory))

    def fma(self) -> float:
        operations = 2 * CHAINS * LANES * FMA_ROUNDS * self._threads
        return operations / 1e9 / self._best(self._program(multiply_add))

    def sgemm(self) -> float:
        return 2 * SIZE**3 / 1e9 / self._best(lambda: np.matmul(self._a, self._b))

    def _program(self, measured: Any) -> Callable[[], object]:
        fields = {
            "data": self._data.ctypes.data,
            "bytes": self._data.nbytes,
            "rounds": FMA_ROUNDS,
            "out": self._out.ctypes.data,
        }
        program = Program([Op(measured.name, measured, fields)])
        frozen = program.freeze()
        return lambda: (self._team.run(frozen), program)

    def _best(self, work: Callable[[], object]) -> float:
        seconds = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - started)
        return min(seconds)


def blas_kernel() -> str:
    """The name of the processor whose kernels NumPy's OpenBLAS has chosen, "unknown" for another library."""
    folder = Path(np.__file__).parent
    for library in [*folder.parent.glob("numpy.libs/*openblas*"), *folder.glob(".dylibs/*openblas*")]:
        loaded = ctypes.CDLL(str(library))
        for name in ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename"):
            function = getattr(loaded, name, None)
            if function is not None:
                function.restype = ctypes.c_char_p
                return f"OpenBLAS {function().decode()}"
    return "unknown"
