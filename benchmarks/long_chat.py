"""A long chat in the real app with a real model: how soon Esc stops it, and what the picture of the cache costs.

    python benchmarks/long_chat.py MODEL [--tokens 7000] [-r 10] [--pairs 10] [--folder FOLDER] [--json]

The app draws on a pseudo-terminal of 160x45. Esc is a byte written to it; the answer is stopped when the engine says
so. It is pressed while a prompt of 1,000 tokens is read behind the others, and while an answer is written behind them.

For the picture, seconds in which the panel is brought up to date, its map 20 times and its numbers four times, take
turns with seconds in which it is left alone. Printed is the processor time that it takes of the screen's threads, and
of the engine's where it says what is cached, as a share of one core. That much of its speed the engine loses at most:
where it needs all cores, what the screen takes of one of them holds up the others.

The chat is kept in the folder, if one is given: another run opens it. POSIX only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from terminal import AppInTerminal

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "engine")]

LONG = "The river carries sand from the hills to the plain, and the plain grows. "
TOKENS = 16  # of that sentence, in most vocabularies
READ = 1000  # tokens of the prompt that is stopped
LOOK = 0.005
READING, WRITING = "while reading", "while writing"


def measure(arguments: argparse.Namespace, keys: int, folder: Path) -> dict[str, Any]:
    """Runs the app on this process's terminal; a byte written to `keys` has Esc pressed there."""
    from tinyllm_chat.chat import answering
    from tinyllm_chat.chat.events import AnswerFailed, AnswerFinished, AnswerStarted, Event, ModelFailed
    from tinyllm_chat.chat.local_backend import LocalBackend
    from tinyllm_chat.chat.opening import ModelOptions
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.chat.settings import COMMAND_LINE, Settings
    from tinyllm_chat.chat.transcript import TranscriptStore
    from tinyllm_chat.tui.app import SWITCH_INTERVAL, TinyLLMChatApp

    class Watched(LocalBackend):
        """started, ended: when the engine began and ended the latest answer"""

        started = ended = 0.0
        failure = ""

        def _emit(self, event: Event) -> None:
            if isinstance(event, AnswerStarted):
                self.started, self.ended = time.monotonic(), 0.0
            elif isinstance(event, AnswerFinished | AnswerFailed):
                self.ended = time.monotonic()
            if isinstance(event, AnswerFailed | ModelFailed):
                self.failure = event.message
            super()._emit(event)

    backend = Watched(lambda: ModelOptions(kept_cache_bytes=10**10))
    settings = Settings().with_layer(COMMAND_LINE, {"max_tokens": 1, "seed": 1, "temperature": 0.0})
    session = Session(backend, TranscriptStore(folder), settings)
    report: dict[str, Any] = {READING: [], WRITING: [], "panel": []}
    said = answering._Writer.cache_state
    telling = 0.0  # seconds of processor time that the engine's thread says what is cached in

    def timed(writer: answering._Writer) -> None:
        nonlocal telling
        started = time.thread_time()
        said(writer)
        telling += time.thread_time() - started

    answering._Writer.cache_state = timed  # type: ignore[method-assign]

    class Measured(TinyLLMChatApp):
        async def on_ready(self) -> None:
            self.run_worker(self._measure())

        async def _measure(self) -> None:
            try:
                await self._measure_all()
            except RuntimeError as error:
                report["error"] = str(error)
            self.exit()

        async def _measure_all(self) -> None:
            await self._until(lambda: session.model is not None)
            backend._opened.model.tokenizer.eog_ids = frozenset()  # only Esc ends an answer
            if latest := TranscriptStore(folder).latest():
                session.open_chat(latest)
                self.start_over()
            else:
                session.send(LONG * (arguments.tokens // TOKENS))
            self.wake()
            await self._until(lambda: not session.busy)
            session.set_setting("max_tokens", 0)
            session.send("Say it again.")
            for number in range(arguments.r):
                if number:
                    session.regenerate()
                await self._stop_after(WRITING, 0.3 + 0.031 * number)
            session.regenerate()
            self.wake()
            await self._until(lambda: len(session.conversation.leaf.ids) > 1)
            await self._watch_panel()
            session.stop()
            await self._until(lambda: not session.busy)
            session.resend(session.conversation.path()[-2].id, LONG * (READ // TOKENS))
            for number in range(arguments.r):
                if number:
                    session.regenerate()
                await self._stop_after(READING, 0.2 + 0.053 * number)
            report["tokens"] = session.cache.used

        async def _stop_after(self, what: str, seconds: float) -> None:
            backend.started = 0.0
            self.wake()
            await self._until(lambda: backend.started)
            if what == WRITING:
                await self._until(lambda: session.conversation.leaf.ids)
            await asyncio.sleep(seconds)
            if backend.ended:
                raise RuntimeError(f"the answer ended before it was stopped, {what}")
            os.write(keys, b"e")
            await self._until(lambda: not session.busy)
            report[what].append(backend.ended)

        async def _watch_panel(self) -> None:
            """Seconds with the panel and without it, by turns."""
            panel = self.figures.panels.cache
            usual = panel.show, panel.follow
            for _ in range(arguments.pairs):
                pair = []
                for shown in (usual, 2 * (lambda figures: None,)):
                    panel.show, panel.follow = shown  # type: ignore[method-assign]
                    pair.append(await self._second())
                report["panel"].append(pair)
            panel.show, panel.follow = usual  # type: ignore[method-assign]

        async def _second(self) -> tuple[float, float, float]:
            """(share of a core that the screen's threads take, that the engine takes to tell, tokens a second)"""
            tokens = len(session.conversation.leaf.ids)
            started, used, told = time.monotonic(), screen_seconds(), telling
            await asyncio.sleep(1.0)
            wall = time.monotonic() - started
            written = len(session.conversation.leaf.ids) - tokens
            return (screen_seconds() - used) / wall, (telling - told) / wall, written / wall

        async def _until(self, condition: Any) -> None:
            while not condition():
                if backend.failure:
                    raise RuntimeError(backend.failure)
                await asyncio.sleep(LOOK)

    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        Measured(session, model=str(arguments.model)).run()
    finally:
        session.close()
    return report


def screen_seconds() -> float:
    """Processor time of all threads that are not the engine's."""
    threads = (thread for thread in threading.enumerate() if not thread.name.startswith(("engine", "tinyllm")))
    clocks = (time.pthread_getcpuclockid(thread.ident) for thread in threads if thread.ident is not None)
    return sum(map(time.clock_gettime, clocks))


def in_terminal(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs `measure` on a terminal where Esc is pressed when it asks for that; its report, with seconds per stop."""
    app = AppInTerminal("160x45", lambda keys: measure(arguments, keys, folder))
    pressed = []
    while app.asks():
        pressed.append(time.monotonic())
        app.type(b"\x1b")
    report = app.figures()
    if "error" in report:
        raise SystemExit(report["error"])
    for what in (WRITING, READING):
        ends = report[what]
        report[what] = [end - start for start, end in zip(pressed, ends, strict=False)]
        del pressed[: len(ends)]
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=7000, help="that the chat has before")
    parser.add_argument("-r", type=int, default=10, help="how often Esc is pressed, each")
    parser.add_argument("--pairs", type=int, default=10, help="seconds with and without the panel")
    parser.add_argument("--folder", type=Path, help="where the chat is, or will be")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        report = in_terminal(arguments, arguments.folder or Path(temporary))
    if arguments.json:
        print(json.dumps(report))
        return
    print(f"behind {report['tokens']} tokens")
    for what in (READING, WRITING):
        waits = report[what]
        print(f"Esc {what}: {1e3 * statistics.median(waits):.0f} ms, {1e3 * max(waits):.0f} at most, of {len(waits)}")
    screen = statistics.median(on[0] - off[0] for on, off in report["panel"])
    telling = statistics.median(second[1] for pair in report["panel"] for second in pair)
    speeds = [statistics.median(pair[which][2] for pair in report["panel"]) for which in (0, 1)]
    print(
        f"the picture of the cache: {100 * (screen + telling):.2f} % of a core, {100 * telling:.2f} of it to"
        f" tell what is cached ({speeds[0]:.1f} tokens/s with it, {speeds[1]:.1f} without)"
    )


if __name__ == "__main__":
    main()
