"""Somebody who types anything: keys, commands, clicks, pastes, bytes that are no text, and sizes, by a seed.

The program has to be there afterwards, to listen, and to have nothing in its log.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

from tests.soak.screen import ESCAPE, SIZE, Typist

STEPS = 350  # of one run
PATIENCE = 30.0  # seconds
# Ctrl+C, D, Q and \\ end the program, Ctrl+Z puts it aside; an Escape before these begins something longer.
_CONTROLS = [bytes([code]) for code in range(1, 32) if code not in (3, 4, 17, 26, 27, 28)]
_ALT = [b"\x1b" + bytes([code]) for code in range(33, 127) if code not in b"[O]PX^_"]
_MOVES = [f"\x1b[{key}".encode() for key in (*"ABCDHFZ", *(f"1;{m}{key}" for m in "2356" for key in "ABCDHF"))]
_FUNCTIONS = [f"\x1b[{code}~".encode() for code in (2, 3, 5, 6, *range(11, 16), *range(17, 22), 23, 24)]
_KEYS = _CONTROLS + _ALT + _MOVES + _FUNCTIONS + [b"\x1b[27u"] * 8 + [b"\r"] * 12
_COMMANDS = (
    "/te",
    "/set top_k 9\r",
    "/theme ",
    "/context-full drop-oldest\r",
    "/system be brief\r",
    "/summary\r",
    "@",
    "house",
    "//x\r",
    "/drop\r",
    "/import /nonexistent\r",
    "/save /dev/full\r",
    "/preset precise\r",
    "/think on\r",
    "/summarize\r",
    "/profile\r",
    "/code 3\r",
    "/samplers x\r",
    "/history house\r",
    "hello there\r",
    "/delete\r",
)
_ODD = [chr(code) for code in (0x301, 0x200D, 0x202E, 0x1F642, 0x6570, 0xE000, 0xFFFD)]
_BUTTONS = (0, 0, 0, 2, 32, 64, 65)  # presses, a drag, turns of the wheel


def type_anything(runs: int, seed: int) -> list[str]:
    """What went wrong, one line or traceback each."""
    problems = []
    for run in range(seed, seed + runs):
        with tempfile.TemporaryDirectory(prefix="tinyllm-keys.") as name:
            problems += [f"seed {run}: {problem}" for problem in _run(Path(name), run)]
    return problems


def _run(folder: Path, seed: int) -> list[str]:
    os.environ.update(EDITOR="true", VISUAL="true")
    draw, typist = random.Random(seed), Typist(folder, seed=seed)
    typist.patience = PATIENCE
    problems = []
    try:
        for number in range(STEPS):
            if draw.random() < 0.03:
                typist.resize(draw.randint(1, 220), draw.randint(1, 70))
            else:
                typist.type(_anything(draw))
            if number % 5 == 0:
                _read_for(typist, 0.05)
        typist.resize(*SIZE)
        for _ in range(4):
            typist.press(ESCAPE)
        typist.type("still here")
        typist.sees("still here")
    except (AssertionError, OSError) as error:
        problems.append(f"it ended, or does not listen any more: {str(error)[:60]}")
    finally:
        typist.close()
    log = folder / "log"
    said = log.read_text(errors="replace") if log.exists() else ""
    return problems + typist.problems + ([said[said.index("Traceback") :][-3000:]] if "Traceback" in said else [])


def _anything(draw: random.Random) -> bytes:
    match draw.choices(("key", "command", "mouse", "bytes", "paste", "letters"), (55, 15, 10, 7, 3, 7))[0]:
        case "key":
            return draw.choice(_KEYS)
        case "command":
            return draw.choice(_COMMANDS).encode()
        case "mouse":
            report = f"\x1b[<{draw.choice(_BUTTONS)};{draw.randint(1, SIZE[0])};{draw.randint(1, SIZE[1])}"
            return f"{report}M{report}m".encode()
        case "bytes":
            return bytes(draw.choices(range(128, 256), k=draw.randint(1, 6)))
        case "paste":
            pasted = bytes(draw.choices(range(1, 256), k=draw.randint(1, 4000)))
            return b"\x1b[200~" + pasted.replace(b"\x1b[201~", b"") + b"\x1b[201~"
        case _:
            return (draw.choice(_ODD) * draw.randint(1, 20)).encode()


def _read_for(typist: Typist, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        typist.read()
