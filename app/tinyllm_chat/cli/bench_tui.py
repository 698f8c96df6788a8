"""`bench --tui`: how fast the chat writes on its own screen, and what the same tokens take without the screen.

The real app runs in a child process on a pseudo-terminal whose output is read and thrown away. It answers a question;
then, with the screen at rest, the same process writes the same tokens again: drawn as the chat drew them, and known
beforehand as in `bench`. So neighbours, clocks and caches are the same for all three. POSIX only.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tinyllm_chat.chat.engine_api import EngineApi, load_engine
from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.chat.events import AnswerFailed, Event, ModelFailed
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import COMMAND_LINE, Settings
from tinyllm_chat.chat.transcript import TranscriptStore

COLUMNS, ROWS = 160, 45
QUESTION = "Write a long story about a lighthouse keeper, a storm and a ship, in seven chapters with a title each."
LEAST_TOKENS = 16  # an answer that ended earlier measures nothing
LOOK = 0.05  # seconds between two looks at whether the answer is there


@dataclass(frozen=True, slots=True)
class Request:
    """What the child is to measure."""

    model: str
    tokens: int
    threads: int  # 0: the engine's choice
    rounds: int
    k_type: str
    v_type: str


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens per second of one answer, and of the same tokens without the screen."""

    tokens: int
    chat: float
    sampled: float
    decode: float
    screen_duty: float  # of a core, the screen's thread alone


def measured(model: str, tokens: int, threads: int, rounds: int, types: tuple[str, str]) -> dict[str, Any]:
    """Runs the app in a child process; `tui` and `threads` of the report. Raises ChatError."""
    answer = run_in_terminal(Request(model, tokens, threads, rounds, *types))
    if "error" in answer:
        raise ChatError(answer["error"])
    return {"tui": summary([Round(**one) for one in answer["rounds"]]), "threads": answer["threads"]}


def summary(rounds: list[Round]) -> dict[str, Any]:
    """Medians. The shares are medians of what each round gave, whose parts ran one right after the other."""
    return {
        "size": f"{COLUMNS}x{ROWS}",
        "tokens": round(median(one.tokens for one in rounds)),
        "tokens_per_second": median(one.chat for one in rounds),
        "sampled_tokens_per_second": median(one.sampled for one in rounds),
        "decode_tokens_per_second": median(one.decode for one in rounds),
        "of_sampled": median(one.chat / one.sampled for one in rounds),
        "of_decode": median(one.chat / one.decode for one in rounds),
        "screen_duty": median(one.screen_duty for one in rounds),
        "rounds": [asdict(one) for one in rounds],
    }


def run_in_terminal(request: Request) -> dict[str, Any]:
    """What the child wrote, or its error."""
    environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryDirectory(prefix="tinyllm-bench-") as folder, _terminal() as (terminal, inside):
        result = Path(folder) / "result.json"
        child = subprocess.Popen(
            [sys.executable, "-m", "tinyllm_chat.cli.bench_tui", json.dumps(asdict(request)), str(result)],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=environment,
            start_new_session=True,
        )
        os.close(inside)
        reader = threading.Thread(target=_throw_away, args=(terminal,), daemon=True)
        reader.start()
        try:
            child.wait()
        finally:
            child.kill()  # after Ctrl+C
            child.wait()
        try:
            answer: dict[str, Any] = json.loads(result.read_text())
        except OSError:
            return {"error": f"the chat ended early, with exit code {child.returncode}"}
        return answer


@contextmanager
def _terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a pseudo-terminal of our size, ours and the program's. The program's is the caller's to close."""
    try:
        import fcntl
        import pty
        import struct
        import termios
    except ImportError:
        raise ChatError("bench --tui needs a system with pseudo-terminals") from None
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        yield terminal, inside
    finally:
        os.close(terminal)


def _throw_away(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the program's end is closed


# The child


class Stopwatch:
    """An engine whose `generate` notes what it was asked for, and when its first and its last token came."""

    def __init__(self) -> None:
        self.engine: EngineApi | None = None
        self.ids: list[int] = []  # of the latest answer, so far
        self._asked: tuple[Any, list[int], Any] | None = None
        self._first = self._last = 0.0

    def load(self) -> EngineApi:
        self.engine = load_engine()
        return replace(self.engine, generate=self.generate)

    def generate(self, sequence: Any, ids: list[int], params: Any, **how: Any) -> Iterator[Any]:
        assert self.engine is not None
        self._asked, self.ids = (sequence, list(ids), params), []
        for event in self.engine.generate(sequence, ids, params, **how):
            if isinstance(event, self.engine.Token):
                self._last = time.perf_counter()
                if not self.ids:
                    self._first = self._last
                self.ids.append(event.id)
            yield event

    def rate(self) -> float:
        """Tokens per second of the latest answer, without its first token, which is the prompt's."""
        return (len(self.ids) - 1) / (self._last - self._first)

    def draw_again(self) -> float:
        """Tokens per second of the same answer when nobody looks."""
        assert self._asked is not None
        sequence, prompt, shared = self._asked
        again = Stopwatch()
        again.engine = self.engine
        for _ in again.generate(sequence, prompt, shared.params, max_tokens=len(self.ids)):
            pass
        return again.rate()

    def write_again(self) -> float:
        """Tokens per second of evaluating the answer's tokens one by one, in the same places."""
        assert self._asked is not None
        sequence, prompt, _ = self._asked
        sequence.truncate(len(prompt))
        started = time.perf_counter()
        for id in self.ids[:-1]:
            sequence.forward([id])
        return (len(self.ids) - 1) / (time.perf_counter() - started)


class Watched(LocalBackend):
    """A backend that remembers what went wrong."""

    failure = ""

    def drain(self) -> list[Event]:
        events = super().drain()
        for event in events:
            if isinstance(event, ModelFailed | AnswerFailed):
                self.failure = event.message
        return events

    def read_ahead(self, *messages: Any, **options: Any) -> None:
        """Nothing: between two answers the engine itself is measured."""


def serve(request: Request, result: Path) -> None:
    """Shows the app on this process's terminal, measures, and writes what `run_in_terminal` returns."""
    from tinyllm_chat.tui.app import SWITCH_INTERVAL, TinyLLMChatApp

    watch = Stopwatch()
    options = ModelOptions(cache_type_k=request.k_type, cache_type_v=request.v_type, threads=request.threads)
    backend = Watched(lambda: options, load=watch.load)
    settings = Settings().with_layer(COMMAND_LINE, {"max_tokens": request.tokens})
    session = Session(backend, TranscriptStore(result.parent / "chats"), settings)
    report: dict[str, Any] = {}

    class Measured(TinyLLMChatApp):
        def on_ready(self) -> None:
            self.run_worker(self._measure())

        async def _measure(self) -> None:
            try:
                await self._until(lambda: session.model is not None)
                # the first round finds everything cold
                rounds = [await self._round(seed) for seed in range(request.rounds + 1)][1:]
                assert session.model is not None
                report.update(rounds=[asdict(one) for one in rounds], threads=session.model.threads)
            except ChatError as error:
                report.update(error=str(error))
            self.exit()

        async def _round(self, seed: int) -> Round:
            session.new_chat()
            session.set_sampling("seed", seed)
            watch.ids = []
            session.send(QUESTION)
            self.wake()
            await self._until(lambda: watch.ids)
            wall, screen = time.perf_counter(), time.thread_time()
            await self._until(lambda: not session.busy)
            duty = (time.thread_time() - screen) / (time.perf_counter() - wall)
            if len(watch.ids) < LEAST_TOKENS:
                raise ChatError(f"{request.model}: its answer has {len(watch.ids)} tokens, too few to measure")
            await asyncio.sleep(2 * LOOK)  # the screen comes to rest
            sampled = await asyncio.to_thread(watch.draw_again)
            decode = await asyncio.to_thread(watch.write_again)
            return Round(len(watch.ids), watch.rate(), sampled, decode, duty)

        async def _until(self, condition: Callable[[], object]) -> None:
            while not condition():
                if backend.failure:
                    raise ChatError(backend.failure)
                await asyncio.sleep(LOOK)

    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        Measured(session, model=request.model).run()
    finally:
        session.close()
    if report:
        result.write_text(json.dumps(report))


if __name__ == "__main__":
    serve(Request(**json.loads(sys.argv[1])), Path(sys.argv[2]))
