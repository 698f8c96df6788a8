"""A plugin of pytest: kernels are compiled for ARM and every call of one goes to an emulator.

Tests need not know: the emulator fetches the memory that a kernel touches from this process and brings back what the
kernel has changed. Threads run one after the other.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from support import cross

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
GUEST = Path(__file__).with_name("guest.c")
PAGE = 4096
WANTED, TOUCHED, READY, TAKEN = 1, 2, 3, 4


def missing_tools() -> str | None:
    """Why kernels cannot be emulated here; None where they can."""
    if not Path("/proc/self/mem").exists():
        return "the emulator needs /proc/self/mem"
    missing = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
    return f"ARM kernels cannot run here: no {' and no '.join(missing)}" if missing else None


class AddressTakenError(Exception):
    """The emulator itself lies where the kernel's memory is."""


class Guest:
    """A program for ARM that calls one kernel."""

    def __init__(self, path: Path):
        self._command = [EMULATOR, "-cpu", "max", str(path)]
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, threads: int, arguments: int) -> None:
        """Calls the kernel for each thread."""
        for _ in range(5):  # each start of the emulator lies elsewhere
            try:
                return self._call(threads, arguments)
            except AddressTakenError:
                self._process.wait()
                self._start()
        raise AddressTakenError

    def _call(self, threads: int, arguments: int) -> None:
        self._process.stdin.write(struct.pack("2q", threads, arguments))
        fetched: dict[int, bytes] = {}
        with open("/proc/self/mem", "r+b", buffering=0) as file:
            memory = file.fileno()
            while True:
                what, address = struct.unpack("2Q", self._take(16))
                if what == WANTED:
                    fetched[address] = os.pread(memory, PAGE, address)  # OSError: it is nobody's memory
                    self._process.stdin.write(fetched[address])
                elif what == TOUCHED:
                    write_changes(memory, address, fetched[address], self._take(PAGE))
                elif what == READY:
                    return
                else:
                    raise AddressTakenError

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self._process.stdout.read(size - len(data))):
            data += more
        if len(data) < size:
            raise RuntimeError(f"the emulator ended with exit code {self._process.wait()}")
        return data


def write_changes(memory: int, address: int, before: bytes, after: bytes) -> None:
    """Writes the bytes that differ: the rest of a page belongs to somebody else."""
    if before == after:
        return
    differ = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    for run in np.split(differ, np.flatnonzero(np.diff(differ) > 1) + 1):
        os.pwrite(memory, after[run[0] : run[-1] + 1], address + int(run[0]))


class Guests:
    """The guests of all kernels called so far, by the address that stands for the kernel."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tinyllm-guests-")
        self._guests: dict[int, Guest] = {}

    def __getitem__(self, kernel: int) -> Guest:
        if kernel not in self._guests:
            self._guests[kernel] = Guest(self._build(kernel))
        return self._guests[kernel]

    def _build(self, kernel: int) -> Path:
        import llvmlite.binding as llvm

        library, name = cross.compiled[kernel]
        module = library._final_module.clone()
        module.get_function(name).name = "kernel"
        processor = cross.PROCESSORS["neon"]
        machine = llvm.Target.from_triple(processor.triple).create_target_machine(
            processor.name, processor.feature_string, opt=3
        )
        code, program = Path(self._folder.name, f"{kernel}.o"), Path(self._folder.name, str(kernel))
        code.write_bytes(machine.emit_object(module))
        # What only raises exceptions stays unresolved.
        options = ["-static", "-O1", "-w", "-Wl,--unresolved-symbols=ignore-all", "-lm"]
        subprocess.run([COMPILER, str(GUEST), str(code), *options, "-o", str(program)], check=True)
        return program


def pytest_configure() -> None:
    """From now on kernels are compiled for ARM, and `Team.run` runs them in the emulator."""
    cross.set_compiler(cross.PROCESSORS["neon"].triple)
    from tinyllm_engine import simd, team

    assert simd.TARGET == "neon"
    guests = Guests()

    def run(self: team.Team, program: np.ndarray, cancel: Any = None, clocks: Any = None) -> bool:
        cancel = self.load(program, cancel)
        for kernel, arguments, _ in program.tolist():
            guests[kernel].call(self.threads, arguments)
        return not cancel.is_set()

    team.Team.run = run
    team.Team._start = lambda self: None
