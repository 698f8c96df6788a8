"""How long the screen makes people wait: a long chat opened and scrolled, and a book pasted.

    python benchmarks/screen_latency.py [--size 160x45] [--messages 2000] [--megabytes 5] [--json]

The real app draws on a pseudo-terminal. The chat of so many messages is read from its file. The paste comes through the
terminal; beside the time until it is there stands the longest time for which the screen did not answer. POSIX only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from screen_duty import SECTION
from terminal import AppInTerminal

HEARTBEAT = 0.01  # seconds between two looks at the clock
SCROLLS = 150  # pages


def measure(arguments: argparse.Namespace, phases: int, folder: Path) -> dict[str, float]:
    """Runs the app on this process's terminal and returns the figures; writes to `phases` when the paste is due."""
    from tinyllm_chat.chat.conversation import Conversation
    from tinyllm_chat.chat.scripted import ScriptedBackend
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.chat.settings import Settings
    from tinyllm_chat.chat.transcript import TranscriptStore
    from tinyllm_chat.tui.app import SWITCH_INTERVAL, TinyLLMChatApp

    store = TranscriptStore(folder)
    conversation = Conversation()
    for number in range(arguments.messages // 2):
        conversation.new_message("user", f"Question {number + 1}?", conversation.head)
        answer = conversation.new_message("assistant", "", conversation.head)
        answer.extend(SECTION, tuple(range(400)))
        answer.finish("eog", None)
    transcript = store.create(conversation, "a long chat", None)
    transcript.close()
    session = Session(ScriptedBackend(), store, Settings())
    figures: dict[str, float] = {}

    class Measured(TinyLLMChatApp):
        async def on_ready(self) -> None:
            self.run_worker(self._measure())

        async def _frame(self) -> None:
            """Waits until what was asked for has been painted."""
            painted = asyncio.Event()
            self.call_after_refresh(painted.set)
            await painted.wait()

        async def _measure(self) -> None:
            while session.model is None:
                await asyncio.sleep(0.05)
            await self._open()
            await self._scroll()
            await self._paste()
            self.exit()

        async def _open(self) -> None:
            await self._frame()
            started = time.monotonic()
            session.open_chat(transcript.id)
            self.start_over()
            self.wake()
            await self._frame()
            figures["open"] = time.monotonic() - started

        async def _scroll(self) -> None:
            times = []
            for page in range(SCROLLS):
                started = time.monotonic()
                self.action_act("page_up" if page < SCROLLS // 2 else "page_down")
                await self._frame()
                times.append(time.monotonic() - started)
            figures["scroll_p95"] = statistics.quantiles(times, n=20)[-1]
            figures["scroll_longest"] = max(times)
            started = time.monotonic()
            self.action_act("scroll_top")
            await self._frame()
            figures["to_the_start"] = time.monotonic() - started
            self.action_act("scroll_bottom")
            await self._frame()

        async def _paste(self) -> None:
            os.write(phases, b"p")
            started = last = time.monotonic()
            longest = 0.0
            while not self.prompt.text:
                await asyncio.sleep(HEARTBEAT)
                now = time.monotonic()
                longest, last = max(longest, now - last - HEARTBEAT), now
            figures["paste"], figures["paste_stall"] = last - started, longest
            self.prompt.take()

    sys.setswitchinterval(SWITCH_INTERVAL)
    Measured(session, model="scripted.gguf").run()
    session.close()
    return figures


def in_terminal(arguments: argparse.Namespace) -> dict[str, float]:
    """Runs `measure` on a pseudo-terminal and plays the user in it."""
    with tempfile.TemporaryDirectory() as folder:
        app = AppInTerminal(arguments.size, lambda phases: measure(arguments, phases, Path(folder)))
        if app.asks():
            line = b"All work and no play makes a dull chat.\r"
            book = line * (int(arguments.megabytes * 1e6) // len(line))
            app.type(b"\x1b[200~" + book + b"\x1b[201~")
        return app.figures()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="160x45", help="COLUMNSxROWS")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--megabytes", type=float, default=5.0, help="of the paste")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = in_terminal(arguments)
    if arguments.json:
        print(json.dumps(figures))
        return
    ms = {name: f"{1000 * value:6.0f} ms" for name, value in figures.items()}
    print(f"{arguments.size}, a chat of {arguments.messages} messages")
    print(f"opened           {ms['open']}")
    print(f"a page scrolled  {ms['scroll_p95']} p95, {ms['scroll_longest'].strip()} at most")
    print(f"to its start     {ms['to_the_start']}")
    print(
        f"{arguments.megabytes:g} MB pasted      {ms['paste']}, of which {ms['paste_stall'].strip()} without an answer"
    )


if __name__ == "__main__":
    main()
