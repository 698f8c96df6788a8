"""The command line of the soak."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.soak import screened, toys
from tests.soak.chatting import Chatter
from tests.soak.figures import Sample, grown, risen, sample, screen_table, table
from tests.soak.screen import Typist


def soak(chatter: Chatter, turns: int, samples: int) -> list[Sample]:
    """So many turns, with a look at the process after each of `samples` equal parts."""
    found = []
    for part in range(1, samples + 1):
        while chatter.turns < turns * part // samples:
            chatter.turn()
        found.append(sample(chatter.turns, chatter.pages[0], *chatter.probe()))
        print(table(found).splitlines()[-1], flush=True)
    return found


def on_screen(arguments: argparse.Namespace) -> int:
    """The same of the whole program on a pseudo-terminal, key by key."""
    model = screened.SCRIPTED if arguments.model == "toy" else arguments.model
    found, started = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tinyllm-soak.") as name:
        typist = Typist(Path(name), model, tokens=arguments.tokens, seed=arguments.seed)
        with contextlib.closing(typist):
            middle = Counter[str]()
            for part in range(1, arguments.samples + 1):
                while typist.turns < arguments.turns * part // arguments.samples:
                    typist.turn()
                found.append(typist.sample())
                print(screen_table(found).splitlines()[-1], flush=True)
                if part == arguments.samples // 2:
                    middle = typist.census()
            more = typist.census() - middle
            typist.quit()
    print(f"\n{screen_table(found)}\n\n{arguments.turns} turns, {time.monotonic() - started:.0f} s")
    problems = [f"{count} x {text}" for text, count in Counter(typist.problems).most_common(10)]
    problems += risen(found, timed=not arguments.untimed)
    for problem in problems:
        print(f"NOT FLAT: {problem}")
    if problems:
        print("more in the second half:", ", ".join(f"{count} {name}" for name, count in more.most_common(30)))
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="A long scripted chat. Exit code 0: nothing failed, and nothing grew or slowed down.",
    )
    parser.add_argument("--turns", type=int, default=10_000, metavar="N", help="answers that are written")
    parser.add_argument("--model", default="toy", metavar="FILE", help="a GGUF file, toy, or toy:NAME of golden/archs")
    parser.add_argument("--tokens", type=int, default=24, metavar="N", help="the most tokens of an answer")
    parser.add_argument("--samples", type=int, default=20, metavar="N", help="rows of the table")
    parser.add_argument("--untimed", action="store_true", help="whatever the time that answers take")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--screen", action="store_true", help="on the screen; the model: FILE, or scripted answers")
    arguments = parser.parse_args()
    if arguments.screen:
        return on_screen(arguments)
    with tempfile.TemporaryDirectory(prefix="tinyllm-soak.") as name:
        folder = Path(name)
        kind, _, toy = arguments.model.partition(":")
        model = toys.write(folder, toy or "llama-dense") if kind == "toy" else Path(arguments.model)
        started = time.monotonic()
        chatter = Chatter(model, folder, answer_tokens=arguments.tokens, seed=arguments.seed)
        found = soak(chatter, arguments.turns, arguments.samples)
        most_pages = chatter.pages[1]
        chatter.close()
        chats = len(list((folder / "transcripts").glob("*.jsonl")))
    print(f"\n{table(found)}\n\n{arguments.turns} turns in {chats} chats, {time.monotonic() - started:.0f} s")
    problems = [f"{count} x {text}" for text, count in Counter(chatter.failures).most_common(10)]
    problems += grown(found, most_pages, timed=not arguments.untimed)
    for problem in problems:
        print(f"NOT FLAT: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
