"""How much of a processor core the screen takes while an answer streams in.

    python benchmarks/screen_duty.py [--rate 300] [--seconds 10] [--size 160x45] [--turns 10] [--json]

The real app draws on a pseudo-terminal of the given size, with a scripted backend that delivers Markdown at a steady
rate after some earlier turns. Printed are the processor time of the screen's thread and of the whole process (which
adds the thread that writes to the terminal), as shares of one core. POSIX only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import struct
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

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


def stream(rate: float, seconds: float, turns: int) -> dict[str, float]:
    """Runs the app on this process's terminal and returns the figures."""
    from tinyllm_chat.chat.events import CacheSegment, CacheState
    from tinyllm_chat.chat.scripted import ScriptedBackend, split_tokens
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.chat.settings import Settings
    from tinyllm_chat.tui.app import SWITCH_INTERVAL, TinyLLMChatApp

    class PacedBackend(ScriptedBackend):
        """Delivers tokens as they fall due."""

        started: float | None = None
        delivered = 0

        def _cache_state(self) -> CacheState:  # without counting every word again at every tick
            request = self._answer.request
            counts = [(message.id, message.role, 200) for message in request.messages]
            counts.append((request.message_id, "assistant", len(self._answer.written)))
            used = sum(tokens for _, _, tokens in counts)
            segments = tuple(CacheSegment(*parts) for parts in counts)
            return CacheState(used, 8192, used * 23040, 8192 * 23040, segments)

        def drain(self):  # type: ignore[no-untyped-def]
            if self.started is not None:
                due = int((time.monotonic() - self.started) * rate)
                self.step(due - self.delivered)
                self.delivered = due
            return super().drain()

    wanted = int(rate * seconds)
    section = split_tokens(SECTION)
    long_answer = (section * (wanted // len(section) + 1))[:wanted]
    backend = PacedBackend([SECTION] * turns + [long_answer], automatic=True)
    session = Session(backend, None, Settings())
    figures: dict[str, float] = {}

    class Measured(TinyLLMChatApp):
        async def on_ready(self) -> None:
            self.run_worker(self._measure())

        async def _measure(self) -> None:
            import asyncio

            while session.model is None:
                await asyncio.sleep(0.05)
            for turn in range(turns):
                session.send(f"Question {turn + 1}?")
                self.wake()
                while session.busy:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            backend.automatic = False
            session.send("And now at length?")
            backend.start()
            self.wake()
            wall, thread, process = time.monotonic(), time.thread_time(), time.process_time()
            backend.started = wall
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


def in_terminal(arguments: argparse.Namespace) -> dict[str, float]:
    """Runs `stream` in a child process on a pseudo-terminal, whose output is read and thrown away."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            figures = stream(arguments.rate, arguments.seconds, arguments.turns)
            Path(result.name).write_text(json.dumps(figures))
            os._exit(0)
        columns, rows = (int(number) for number in arguments.size.split("x"))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        written = 0

        def read_all() -> None:
            nonlocal written
            while True:
                try:
                    data = os.read(terminal, 65536)
                except OSError:
                    return
                if not data:
                    return
                written += len(data)

        reader = threading.Thread(target=read_all)
        reader.start()
        os.waitpid(pid, 0)
        reader.join()
        text = result.read()
    if not text:
        raise SystemExit("the app ended early")
    figures = json.loads(text)
    figures["terminal_bytes"] = written
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=300.0, help="tokens per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", default="160x45", help="COLUMNSxROWS")
    parser.add_argument("--turns", type=int, default=10, help="earlier turns in the chat")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = in_terminal(arguments)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(
        f"{arguments.size}, {arguments.turns} earlier turns, {arguments.rate:g} tokens/s for {figures['seconds']:.1f} s"
    )
    print(f"screen thread  {100 * figures['screen_thread']:5.1f} % of a core")
    print(f"whole process  {100 * figures['process']:5.1f} %")
    print(f"idle           {100 * figures['idle']:5.1f} %")
    print(f"to terminal    {figures['terminal_bytes'] / 1e6:5.2f} MB in all")


if __name__ == "__main__":
    main()
