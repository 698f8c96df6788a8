"""How fast products with a matrix of each weight type are: decode in GB/s, prefill in GOP/s.

    python benchmarks/products.py [TYPE...] [--rows 5632] [--columns 2048] [--batch 128] [-t THREADS] [--rounds 9]

Several copies of the matrix, more than any cache holds, are multiplied in turn. The types take turns too, so that a
noisy neighbour hits all of them; figures are medians. Ratios are to Q4_K: of weights a second, whatever their bytes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "engine"), str(ROOT / "app"), str(ROOT / "tests"), str(ROOT / "benchmarks")]

from machine import Machine  # noqa: E402
from support.recording import TYPES, random_tensor, recording  # noqa: E402
from tinyllm_engine.parts.base import Linear  # noqa: E402
from tinyllm_engine.tensor import TensorView  # noqa: E402

BASE = "Q4_K"
COLD_BYTES = 32 << 20  # of matrices multiplied in turn
NAMES = [name for name, kind in TYPES.items() if kind.weight]


class Measured:
    """One type: programs that multiply with all copies of its matrix, by one row and by a batch."""

    def __init__(self, name: str, rows: int, columns: int, batch: int, threads: int):
        matrix = random_tensor(TYPES[name], columns, rows)
        self.nbytes, self.weights = matrix.nbytes, rows * columns
        self.copies = max(1, COLD_BYTES // matrix.nbytes)
        matrices = [TensorView(f"copy {i}", matrix.dims, matrix.type, matrix.data.copy()) for i in range(self.copies)]
        self.decode = self._program(matrices, 1, threads)
        self.prefill = self._program(matrices[:1], batch, threads)

    def _program(self, matrices: list[TensorView], rows: int, threads: int) -> Callable[[], float]:
        """A function that runs it once, and says how many seconds it took."""
        columns, outputs = matrices[0].dims
        manager = recording(rows, threads)
        made = manager.__enter__()
        x, out = made.filled("x", columns), made.recorder.buffer("out", outputs)
        for matrix in matrices:
            made.recorder.matmul(out, Linear(matrix), x)
        program = made.program()
        frozen = program.freeze()

        def run() -> float:
            started = time.perf_counter()
            made.team.run(frozen)
            return time.perf_counter() - started

        self._keep = [*getattr(self, "_keep", []), manager, program, matrices]
        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--rows", type=int, default=5632)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=128, help="rows of activations in prefill")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    names = [name.upper() for name in arguments.types] or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"unknown types: {', '.join(sorted(unknown))}")
    names = [BASE, *(name for name in names if name != BASE)]
    machine = Machine(arguments.threads)
    measured = {
        name: Measured(name, arguments.rows, arguments.columns, arguments.batch, arguments.threads) for name in names
    }
    reads: list[float] = []
    seconds: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    for round_number in range(arguments.rounds + 1):  # the first one warms up
        reads.append(machine.read())
        for name, kind in measured.items():
            found = kind.decode() / kind.copies, kind.prefill()
            if round_number:
                for list_, value in zip(seconds[name], found, strict=True):
                    list_.append(value)
    print_table(measured, seconds, arguments.batch, median(reads[1:]))


def print_table(
    measured: dict[str, Measured],
    seconds: dict[str, tuple[list[float], list[float]]],
    batch: int,
    read: float,
) -> None:
    print(f"plain reading {read:.1f} GB/s\n")
    print("| type | bits | decode GB/s | of reading | to Q4_K | prefill GOP/s | to Q4_K |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    base = [median(values) for values in seconds[BASE]]
    for name, kind in measured.items():
        decode, prefill = (median(values) for values in seconds[name])
        bits, rate = 8 * kind.nbytes / kind.weights, kind.nbytes / decode / 1e9
        operations = 2 * kind.weights * batch / prefill / 1e9
        print(
            f"| {name} | {bits:.2f} | {rate:.1f} | {rate / read:.0%} | {base[0] / decode:.2f} "
            f"| {operations:.0f} | {base[1] / prefill:.2f} |"
        )


if __name__ == "__main__":
    main()
