"""How much of a processor core the screen takes while an answer streams in, and how long a key takes to be seen.

    python benchmarks/screen_duty.py [--rate 300] [--seconds 10] [--size 160x45] [--lines 10000] [--json]

The real app draws on a pseudo-terminal of the given size, with a scripted backend that delivers Markdown at a steady
rate below earlier answers of so many lines. Printed are the processor time of the screen's thread and of the whole
process (which adds the thread that writes to the terminal), as shares of one core; then, in a second run, the time from
a key to its character on the terminal while the answer streams. POSIX only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path

from terminal import AppInTerminal

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "engine")]

PARAGRAPH = (
    "Gravity is the curvature of spacetime caused by **mass and energy**. It acts between all masses, it is always "
    "attractive, and near the surface of the Earth it gives everything the same acceleration, `g = 9.81 m/s²`, which "
    "does not depend on the mass of the falling body. "
)
SECTION = f"""## What it does

{PARAGRAPH}Nobody has seen a graviton yet.

- it acts between *all* masses, however far apart they may be
- it is always attractive
- it falls off with the square of the distance, as light does

Newton wrote it as a short formula, which reads in Python:

```python
G = 6.674e-11  # m³ kg⁻¹ s⁻²

def force(m1: float, m2: float, r: float) -> float:
    return G * m1 * m2 / r**2
```

| body  | g in m/s² |
|-------|-----------|
| Earth | 9.81      |
| Moon  | 1.62      |

1. Drop a stone.
2. Measure the time.
3. Solve for *g*.

{PARAGRAPH}{PARAGRAPH}

"""


TURNS = 20  # in which the earlier lines are: as many messages as the chat lays out at once
KEYS = [chr(code) for code in range(ord("가"), ord("가") + 60)]  # none of them is in the answer, and none comes twice
KEY_PAUSE = 0.1  # seconds between a key that was seen and the next one
CONTEXT = 1 << 20  # tokens; nothing has to be left out


def stream(rate: float, seconds: float, lines: int, started: int) -> dict[str, float]:
    """Runs the app on this process's terminal and returns the figures; writes to `started` when the answer begins."""
    from tinyllm_chat.chat.events import CacheSegment, CacheState
    from tinyllm_chat.chat.scripted import ScriptedBackend, split_tokens
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.chat.settings import Settings
    from tinyllm_chat.tui.app import SWITCH_INTERVAL, TinyLLMChatApp

    class PacedBackend(ScriptedBackend):
        """Delivers tokens as they fall due."""

        started: float | None = None
        delivered = 0

        _counted: tuple[str, tuple[CacheSegment, ...]] = ("", ())  # the messages before an answer

        def _cache_state(self) -> CacheState:  # without counting every word again for every token
            request, written = self._answer.request, len(self._answer.written)
            if self._counted[0] != request.message_id:
                before = tuple(CacheSegment(message.id, message.role, 200) for message in request.messages)
                self._counted = (request.message_id, before)
            used = 200 * len(self._counted[1]) + written
            segments = (*self._counted[1], CacheSegment(request.message_id, "assistant", written))
            return CacheState(used, CONTEXT, used * 23040, CONTEXT * 23040, segments)

        def drain(self):  # type: ignore[no-untyped-def]
            if self.started is not None:
                due = int((time.monotonic() - self.started) * rate)
                self.step(due - self.delivered)
                self.delivered = due
            return super().drain()

    wanted = int(rate * seconds)
    section = split_tokens(SECTION)
    long_answer = (section * (wanted // len(section) + 1))[:wanted]
    sections = max(1, round(lines / TURNS / SECTION.count("\n")))
    backend = PacedBackend([SECTION * sections] * TURNS + [long_answer], automatic=True, context_length=CONTEXT)
    session = Session(backend, None, Settings())
    figures: dict[str, float] = {}

    class Measured(TinyLLMChatApp):
        async def on_ready(self) -> None:
            self.run_worker(self._measure())

        async def _measure(self) -> None:
            import asyncio

            while session.model is None:
                await asyncio.sleep(0.05)
            for turn in range(TURNS):
                session.send(f"Question {turn + 1}?")
                self.wake()
                while session.busy:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            figures["lines"] = self.pane.virtual_size.height
            backend.automatic = False
            session.send("And now at length?")
            backend.start()
            self.wake()
            wall, thread, process = time.monotonic(), time.thread_time(), time.process_time()
            backend.started = wall
            os.write(started, b"!")
            while session.busy:
                await asyncio.sleep(0.1)
            wall = time.monotonic() - wall
            figures.update(
                tokens=len(long_answer),
                seconds=wall,
                screen_thread=(time.thread_time() - thread) / wall,
                process=(time.process_time() - process) / wall,
            )
            await asyncio.sleep(0.5)
            idle, idle_cpu = time.monotonic(), time.process_time()
            await asyncio.sleep(3.0)
            figures["idle"] = (time.process_time() - idle_cpu) / (time.monotonic() - idle)
            self.exit()

    sys.setswitchinterval(SWITCH_INTERVAL)
    Measured(session, model="scripted.gguf").run()
    return figures


def in_terminal(arguments: argparse.Namespace, *, typing: bool) -> dict[str, float]:
    """Runs `stream` on a pseudo-terminal whose output is read; `typing`: types while it streams."""
    screen = Seen()
    app = AppInTerminal(
        arguments.size,
        lambda started: stream(arguments.rate, arguments.seconds, arguments.lines, started),
        screen.feed,
    )
    waits = []
    app.asks()
    for key in KEYS if typing else ():
        pressed = screen.expect(key)
        app.type(key.encode())
        if not screen.seen.wait(5.0) or screen.at is None:
            break
        waits.append(screen.at - pressed)
        time.sleep(KEY_PAUSE)
    figures = app.figures()
    figures["terminal_bytes"] = screen.bytes
    if typing:
        figures["keys"] = len(waits)
        figures["key_median"], figures["key_p95"] = statistics.median(waits), statistics.quantiles(waits, n=20)[-1]
    return figures


class Seen:
    """When a character that is waited for comes to the terminal; `bytes`: how many came in all."""

    def __init__(self) -> None:
        self.bytes = 0
        self.seen = threading.Event()
        self.at: float | None = None
        self._wanted = b""
        self._rest = b""

    def expect(self, character: str) -> float:
        """From now on this character is waited for; the time."""
        self.seen.clear()
        self.at = None
        self._wanted = character.encode()
        return time.monotonic()

    def feed(self, data: bytes) -> None:
        """What has come."""
        self.bytes += len(data)
        if self._wanted and self._wanted in self._rest + data and not self.seen.is_set():
            self.at = time.monotonic()
            self.seen.set()
        self._rest = data[-8:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=300.0, help="tokens per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", default="160x45", help="COLUMNSxROWS")
    parser.add_argument("--lines", type=int, default=10_000, help="lines of earlier answers")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = in_terminal(arguments, typing=False)
    typed = in_terminal(arguments, typing=True)
    figures |= {name: typed[name] for name in ("keys", "key_median", "key_p95")}
    if arguments.json:
        print(json.dumps(figures))
        return
    print(
        f"{arguments.size}, {figures['lines']:.0f} earlier lines, {arguments.rate:g} tokens/s for "
        f"{figures['seconds']:.1f} s"
    )
    print(f"screen thread  {100 * figures['screen_thread']:5.1f} % of a core")
    print(f"whole process  {100 * figures['process']:5.1f} %")
    print(f"idle           {100 * figures['idle']:5.1f} %")
    print(f"a key is seen  {1e3 * figures['key_median']:5.1f} ms median, {1e3 * figures['key_p95']:.1f} ms p95")
    print(f"to terminal    {figures['terminal_bytes'] / 1e6:5.2f} MB in all")


if __name__ == "__main__":
    main()
