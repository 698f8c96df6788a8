"""The command line of the long forms."""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from pathlib import Path

from support.all_kernels import all_kernels, compile_all_kernels

from tests.fuzz import models
from tests.fuzz.isolation import run_isolated
from tests.fuzz.reading import read_model

SECONDS, MEGABYTES = 5.0, 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("what", choices=["models"])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first file")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after so many; it says how far it came"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one file, here, with its traceback")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        if arguments.only is not None:
            said, data = models.case(arguments.seed, arguments.only)
            print(said, len(data), "bytes")
            path.write_bytes(data)
            print(read_model(path, context(arguments.only)))
            return 0
        return run(arguments, path)


def context(number: int) -> int | None:
    """Every third file is run with the context that it asks for itself, as it would be in a chat."""
    return None if number % 3 == 0 else 64


def run(arguments: argparse.Namespace, path: Path) -> int:
    compile_all_kernels()
    for kernel in all_kernels():
        kernel.prepare()  # before the processes part: to load them is no part of reading a file

    for name in models.toy_names():
        models.toy(name)  # nor is to make what they are changed from

    path.write_bytes(models.toy("tiny").bytes())
    assert read_model(path, 64) == "answered"  # whatever is imported at first use is there now

    def make(number: int) -> None:
        path.write_bytes(models.case(arguments.seed, number)[1])

    def examine(number: int) -> str:
        return read_model(path, context(number))

    started, ends, faults = time.monotonic(), collections.Counter[str](), collections.Counter[str]()
    numbers = range(arguments.first, arguments.first + arguments.files)
    for outcome in run_isolated(make, examine, numbers, SECONDS, MEGABYTES):
        ends[outcome.fault or outcome.said] += 1
        if outcome.fault:
            faults[f"{outcome.fault} {outcome.said}"] += 1
            if faults[f"{outcome.fault} {outcome.said}"] <= 2:
                what = models.case(arguments.seed, outcome.number)[0]
                print(f"{outcome.number}: {outcome.fault}: {outcome.said} ({what})", flush=True)
        if time.monotonic() - started > arguments.seconds:
            break
    total, last = sum(ends.values()), arguments.first + sum(ends.values()) - 1
    print(f"{total} files to number {last} in {time.monotonic() - started:.0f} s: {dict(ends)}")
    for fault, count in faults.most_common(40):
        print(f"{count:6}  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
