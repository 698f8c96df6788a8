"""A user at the screen who never tires, by a seed: everything goes over the keyboard of a pseudo-terminal."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from support.pty_chat import PtyChat

from tests.soak.chatting import WORDS
from tests.soak.figures import ScreenSample, held
from tests.soak.screened import PROBE, PROGRAM, SCRIPTED

SIZE = (160, 45)
SIZES = ((80, 24), (40, 10), (200, 60), (100, 30), (3, 3))
TURNS_OF_A_CHAT = 40
PEACE = 0.03  # seconds without anything drawn, and a screen that sleeps: it has done what it was told
NOTHING_SHOWN = 1.0  # seconds after which a key is taken for one that changes nothing that is seen
KEPT = 1 << 16  # bytes of what was drawn last, for when something goes wrong
KEYS_TIMED = 20

ENTER, TAB = "\r", "\t"
ESCAPE = "\x1b[27u"  # as terminals send it that can tell it from the beginning of another key
UP, PAGE_UP, PAGE_DOWN, TO_START, TO_END = "\x1b[A", "\x1b[5~", "\x1b[6~", "\x1b[1;5H", "\x1b[1;5F"
NEW_CHAT, AGAIN, WRITE_ON, PALETTE, PANELS, CHATS, QUIT = "\x0e", "\x12", "\x14", "\x10", "\x02", "\x0c", "\x11"
EDIT, BEFORE, AFTER, LAST_CHAT, TREE, TOKENS, DETAILS, SETTINGS, HEAT, VALUES, UNDO = (
    f"\x1b{letter}" for letter in "epnltidshvz"
)
SELECT, HELP, THOUGHTS = "\x1b[Z", "\x1bOP", "\x0f"

# What is opened or pressed in passing, key by key; Escape leaves it.
PASSING: tuple[tuple[str, ...], ...] = (
    (PAGE_UP, PAGE_UP, PAGE_UP, PAGE_DOWN, TO_END),
    (TO_START, PAGE_DOWN, TO_END),
    (PALETTE, "temp", ESCAPE),
    (HELP, PAGE_DOWN, ESCAPE),
    (SETTINGS, "seed", ESCAPE, ESCAPE),  # the first leaves the search
    (TREE, UP, UP, ESCAPE),
    (TOKENS, "\x1b[C", "\x1b[C", ESCAPE),
    (DETAILS, ESCAPE),
    (CHATS, "house", ESCAPE),
    (SELECT, UP, UP, ESCAPE),
    (BEFORE,),
    (AFTER,),
    (UNDO, "x", "\x03"),
    (PANELS, PANELS),
    (HEAT, HEAT),
    (VALUES, UP, "\x1b[C", "\x1b[D", ESCAPE),
    ("/te", TAB, TAB, "\x03"),
    (UP, UP, "x", "\x03"),
    ("a first line\na second one" * 20, "\x03"),
)


class Typist(PtyChat):
    """`turn` has one answer written. `problems`: what the program told of that should not be."""

    patience = 600.0  # a soak runs beside other things

    def __init__(self, folder: Path, model: str = SCRIPTED, *, tokens: int = 16, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.turns = 0
        self.problems: list[str] = []
        self._answers: list[float] = []  # seconds to the first text of each
        self._objects: dict[str, int] | None = None
        self._cache = 0  # bytes
        self._reports, inside = os.pipe()
        os.set_inheritable(inside, True)
        self._torn = b""  # a report of which the end is still to come
        super().__init__(folder, model, str(tokens), str(inside), program=PROGRAM, size=SIZE)
        os.close(inside)
        self.sees("tokens of context")
        self._rest()

    def turn(self) -> None:
        """Something in passing, and something that ends with an answer."""
        if self.turns % TURNS_OF_A_CHAT == 0:
            self.press(NEW_CHAT)
        while self.random.random() < 0.3:
            self._pass()
        kinds = [self._send] if self.turns % TURNS_OF_A_CHAT == 0 else [self._send] * 7 + [self._again, self._edit]
        before = len(self._answers)
        self.random.choice(kinds)()
        self.until(lambda: len(self._answers) > before, f"the answer of turn {self.turns + 1}")
        self._rest()
        self.turns += 1

    def sample(self) -> ScreenSample:
        """What the program holds and takes, in a chat with one question."""
        work, first = [], []
        for _ in range(3):
            self.press(NEW_CHAT)
            before = self._processor()
            self._ask(PROBE)
            work.append(self._processor() - before)
            first.append(self._answers[-1])
        key = self._key_time()
        objects = self.census()["all"]
        memory, handles, threads = held(self.pid)
        return ScreenSample(
            self.turns, memory - self._cache, self._cache, handles, threads, objects, min(first), key, min(work)
        )

    def census(self) -> Counter[str]:
        """How many objects the program has of each type, and of `all`."""
        self._objects = None
        self.kill(signal.SIGUSR1)
        self.until(lambda: self._objects is not None, "the number of objects")
        return Counter(self._objects)

    def quit(self) -> None:
        self.type(QUIT)
        if (code := self.left()) != 0:
            self.problems.append(f"exit code {code}")
        log = self.folder / "log"
        said = log.read_text(errors="replace") if log.exists() else ""
        self.problems += [line for line in said.splitlines() if "Error" in line or "WARNING" in line][:10]

    def close(self) -> None:
        super().close()
        os.close(self._reports)

    # What the user does

    def _send(self) -> None:
        self.type(" ".join(self.random.choices(WORDS, k=self.random.randint(2, 8))))
        self.press(ENTER)

    def _again(self) -> None:
        self.press(AGAIN)

    def _edit(self) -> None:
        self.press(EDIT)
        self.type(f" and {self.random.choice(WORDS)}")
        self.press(ENTER)

    def _ask(self, text: str) -> None:
        before = len(self._answers)
        self.type(text)
        self.press(ENTER)
        self.until(lambda: len(self._answers) > before, "an answer")
        self._rest()

    def _pass(self) -> None:
        choice = self.random.random()
        if choice < 0.1:
            self.resize(*self.random.choice(SIZES))
            self._rest()
            self.resize(*SIZE)
            self._rest()
        elif choice < 0.2 and self.turns > TURNS_OF_A_CHAT:
            self.press(LAST_CHAT)
        else:
            for keys in self.random.choice(PASSING):
                self.press(keys)

    def press(self, keys: str) -> None:
        """Types, and waits until the screen has done what that means, if it shows."""
        self.type(keys)
        shown = time.monotonic() + NOTHING_SHOWN
        while time.monotonic() < shown and not select.select([self.terminal], [], [], PEACE)[0]:
            pass
        self._rest()

    # What it takes

    def _key_time(self) -> float:
        """Seconds of the processor that a letter in the input takes: the median of some."""
        times = []
        for _ in range(KEYS_TIMED):
            before = self._processor()
            self.press("x")
            times.append(self._processor() - before)
        self.press("\x03")
        return median(times)

    def _processor(self) -> float:
        """Seconds of the processor that the program had so far."""
        tasks = Path(f"/proc/{self.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    # What comes back

    def read(self) -> None:
        super().read()
        self.output = self.output[-KEPT:]
        while select.select([self._reports], [], [], 0)[0] and (told := os.read(self._reports, 1 << 16)):
            *lines, self._torn = (self._torn + told).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, report: dict[str, Any]) -> None:
        if "answered" in report:
            self._answers.append(report["answered"])
        elif "objects" in report:
            self._objects, self._cache = report["objects"], report["cache"]
        else:
            self.problems.append(str(report["failed"]))
            self._answers.append(0.0)

    def _rest(self) -> None:
        """Waits until the screen has come to rest."""
        quiet = time.monotonic() + PEACE
        while time.monotonic() < quiet:
            if select.select([self.terminal], [], [], PEACE / 2)[0] or self._works():
                self.read()
                quiet = time.monotonic() + PEACE

    def _works(self) -> bool:
        """Whether any thread runs, or would if the machine had time for it."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                if (task / "stat").read_text().rsplit(")", 1)[1].split()[0] != "S":
                    return True
        return False
