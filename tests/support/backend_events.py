"""Asks a backend and waits for its events."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    CacheState,
    Event,
    ModelFailed,
    ModelReady,
    TextDelta,
)
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA

SAMPLING = {name: SCHEMA[name].default for name in SAMPLING_NAMES}


def events_until(backend: LocalBackend, *kinds: type[Any]) -> list[Event]:
    """Everything up to the first event of one of the kinds."""
    events: list[Event] = []
    end = time.monotonic() + 20
    while not any(isinstance(event, kinds) for event in events):
        assert time.monotonic() < end, f"nothing of {kinds} among {events}"
        events += backend.drain()
        time.sleep(0.001)
    return events


def opened(backend: LocalBackend, file: Path) -> Any:
    backend.open(str(file))
    (ready,) = [event for event in events_until(backend, ModelReady, ModelFailed) if isinstance(event, ModelReady)]
    return ready.info


def ask(backend: LocalBackend, *messages: PromptMessage, sampling: Any = None, **options: Any) -> list[Event]:
    backend.answer("a1", messages or [user("hi")], sampling=sampling or SAMPLING, **options)
    return events_until(backend, AnswerFinished, AnswerFailed)


def user(content: str, id: str = "u1") -> PromptMessage:
    return PromptMessage(id, "user", content)


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def ids(events: list[Event]) -> list[int]:
    return [id for event in events if isinstance(event, TextDelta) for id in event.ids]


def finished(events: list[Event]) -> AnswerFinished:
    last = events[-1]
    assert isinstance(last, AnswerFinished), last
    return last


def last_state(events: list[Event]) -> CacheState:
    return [event for event in events if isinstance(event, CacheState)][-1]
