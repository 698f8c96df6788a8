"""The program whose screen is soaked: all of it, on its terminal, with a backend that tells what it did.

What is told goes to a pipe, one JSON object a line: `answered` with the seconds to the first text on the screen's
thread, `failed`, and on SIGUSR1 `objects`, the number of objects in memory by type, with
the bytes of the model's `cache`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.drafts import DraftKeeper
from tinyllm_chat.chat.events import AnswerFailed, AnswerFinished, Event, ModelFailed, TextDelta
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.logs import start_logging
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.prompt_history import PromptHistory
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.signals import ending_with, exit_at_once
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.tui import app

PROGRAM = """
import sys
from pathlib import Path
from tests.soak.screened import run
run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
"""
SCRIPTED = "scripted"  # the model that is none
PROBE = "What is the capital of France, and what is it known for?"
STEP = 24  # tokens between two looks of the screen
ANSWERS = (
    "Paris. It is known for **its tower**, its museums and its bread.\n\n- the Louvre\n- the Seine\n\n" * 3,
    "## How to do it\n\nFirst, *open* the `file`:\n\n```python\nfor line in open('a.txt'):\n    print(line)\n```\n\n"
    "Then read on, with care, until the end of it; see https://example.org/a for more.\n",
    "| name | value |\n|---|--:|\n| one | 1 |\n| two | 22 |\n\nAnd 数字 too, with 🙂 and ñ.\n\n"
    "> A quote\n> of two lines\n",
    "1. One\n2. Two\n   - inner\n   - `code`\n3. Three\n\n" + "A long paragraph that goes on and on for a while. " * 12,
    "Yes.",
)


class _Reporting:
    """Mixed into a backend: tells of each answer that is over."""

    reports = -1
    _asked = 0.0
    _first: float | None = None

    def answer(self, message_id: str, messages: Sequence[PromptMessage], **how: Any) -> None:
        self._asked, self._first = time.monotonic(), None
        super().answer(message_id, messages, **how)  # type: ignore[misc]

    def drain(self) -> list[Event]:
        events: list[Event] = super().drain()  # type: ignore[misc]
        for event in events:
            if isinstance(event, TextDelta) and self._first is None:
                self._first = time.monotonic() - self._asked
            elif isinstance(event, AnswerFinished):
                tell(self.reports, answered=self._first or 0.0)
            elif isinstance(event, AnswerFailed | ModelFailed):
                tell(self.reports, failed=event.message)
        return events


class Scripted(_Reporting, ScriptedBackend):
    """Writes a few tokens at each look, and keeps nothing of what it was asked."""

    def __init__(self) -> None:
        super().__init__(automatic=False)
        self._number = 0

    def answer(self, message_id: str, messages: Sequence[PromptMessage], **how: Any) -> None:
        self._number += 1
        is_probe = messages[-1].content == PROBE
        self.answers = [ANSWERS[0 if is_probe else self._number % len(ANSWERS)]]
        self.requests.clear()
        self.left.clear()
        super().answer(message_id, messages, **how)

    def drain(self) -> list[Event]:
        self.finish_opening()
        self.step(STEP)
        return super().drain()


class Local(_Reporting, LocalBackend):
    pass


def run(folder: Path, model: str, tokens: int, reports: int) -> None:
    scripted = model == SCRIPTED
    backend = Scripted() if scripted else Local(lambda: ModelOptions(threads=1, kept_cache_bytes=20_000_000))
    backend.reports = reports
    signal.signal(signal.SIGUSR1, lambda *_: tell(reports, objects=_census(), cache=_cache_bytes(backend)))
    start_logging(folder / "log")
    store = TranscriptStore(folder / "transcripts")
    settings = Settings().with_layer(CONFIG, {} if scripted else {"max_tokens": tokens, "temperature": 0.9})
    session = Session(backend, store, settings)
    with ending_with(exit_at_once):
        try:
            code = app.run(
                session,
                model="scripted.gguf" if scripted else model,
                chats=ChatLibrary(store, folder / "state"),
                history=PromptHistory(folder / "prompts.jsonl"),
                drafts=DraftKeeper(folder / "drafts"),
                log_file=folder / "log",
            )
        finally:
            session.close()
    raise SystemExit(code)


def tell(reports: int, **what: object) -> None:
    os.write(reports, json.dumps(what).encode() + b"\n")


def _cache_bytes(backend: Scripted | Local) -> int:
    """What the model's cache takes: it grows with the chats that are kept in it, up to what a full context takes."""
    opened = getattr(backend, "_opened", None)
    return opened.runner.cache.bytes_in_use if opened is not None else 0


def _census() -> dict[str, int]:
    """How many objects there are of each type, those of which there are several hundred."""
    gc.collect()
    # By type: isinstance asks what a weak proxy stands for, which may be gone.
    counts = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    return {"all": counts.total(), **{name: count for name, count in counts.items() if count > 200}}
