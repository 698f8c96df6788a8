"""The command line of the faults."""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.anything import type_anything
from tests.faults.killing import ALLOWED, kill
from tests.faults.saving import kill_saves


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Exit code 0: nothing was lost that must not be."
    )
    parser.add_argument(
        "what",
        choices=("kill", "two", "power", "save", "keys"),
        help="kill -9; of two programs at a time; and all that was not synced gone; while a chat's cache is written; "
        "any keys, clicks and bytes on the screen",
    )
    parser.add_argument("--runs", type=int, default=100, metavar="N")
    parser.add_argument("--allowed", type=float, default=ALLOWED, metavar="SECONDS", help="of text that may be lost")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    arguments = parser.parse_args()
    started = time.monotonic()
    if arguments.what == "save":
        return _save(arguments.runs, arguments.seed)
    if arguments.what == "keys":
        problems = type_anything(arguments.runs, arguments.seed)
        print("\n".join([*problems, f"{arguments.runs} runs of any keys, {len(problems)} problems"]))
        return 1 if problems else 0
    outcome = kill(
        arguments.runs,
        programs=2 if arguments.what == "two" else 1,
        power=arguments.what == "power",
        seed=arguments.seed,
        allowed=arguments.allowed,
    )
    print(
        f"{outcome.runs} programs killed, {outcome.chats} transcripts read, {outcome.seen} texts compared, "
        f"at most {outcome.most_lost:.2f} s of text lost, {len(outcome.problems)} problems, "
        f"{time.monotonic() - started:.0f} s"
    )
    return 1 if outcome.problems else 0


def _save(runs: int, seed: int) -> int:
    outcome = kill_saves(runs, seed)
    for problem in outcome.problems:
        print(problem)
    found = ", ".join(f"{count} times {name}" for name, count in outcome.found.items())
    print(f"{outcome.runs} programs killed while writing; then found: {found}; {len(outcome.problems)} problems")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
