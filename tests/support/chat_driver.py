"""Drives the screen in memory against a scripted backend. Nothing sleeps: tests wait for what they expect to see."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot
from tinyllm_chat.chat.conversation import Message
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.tui.app import TinyLLMChatApp

MODEL = "/models/smollm2.gguf"
PATIENCE = 20.0  # seconds; only a failing test uses them


class Chat:
    """The app under test, with the backend and session behind it."""

    def __init__(self, app: TinyLLMChatApp, backend: ScriptedBackend, pilot: Pilot[None]) -> None:
        self.app = app
        self.session = app.session
        self.backend = backend
        self.pilot = pilot

    async def until(self, condition: Callable[[], Any], what: str = "the expected state") -> None:
        """Lets the app run until `condition` holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"waited in vain for {what}; the chat shows:\n{self.text}")
            await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in self.text, repr(text))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Puts text into the input as a paste would."""
        self.app.prompt.set_text(text)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        await self.type(text)
        await self.press("enter")

    async def ready(self) -> None:
        """Opens the model that was named."""
        await self.until(lambda: self.backend.opened, "a model being opened")
        self.backend.finish_opening()
        await self.until(lambda: self.session.model is not None, "the model")

    async def ask(self, text: str, steps: int | None = None) -> Message:
        """Sends a question and writes `steps` tokens of the answer, or all of it."""
        asked = len(self.backend.requests)
        await self.send(text)
        await self.until(lambda: len(self.backend.requests) > asked, "the question at the backend")
        if steps is None:
            self.backend.finish()
            await self.until(lambda: not self.session.busy, "the end of the answer")
        else:
            await self.write(steps)
        leaf = self.session.conversation.leaf
        assert leaf is not None
        return leaf

    async def write(self, steps: int) -> None:
        """Writes tokens and waits until they are in the conversation and on screen."""
        before = len(self._leaf_ids())
        self.backend.step(steps)
        await self.until(lambda: len(self._leaf_ids()) >= before + steps or not self.session.busy, "the tokens")

    def _leaf_ids(self) -> list[int]:
        leaf = self.session.conversation.leaf
        return leaf.ids if leaf is not None else []

    @property
    def text(self) -> str:
        """Everything in the chat pane, as laid out."""
        return self.app.pane.text

    @property
    def screen(self) -> list[str]:
        """What stands on the screen, row by row."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def toasts(self) -> list[str]:
        return [notification.message for notification in self.app._notifications]


@asynccontextmanager
async def running(
    *answers: Any,
    size: tuple[int, int] = (100, 30),
    model: str | None = MODEL,
    ready: bool = True,
    settings: dict[str, Any] | None = None,
    backend: dict[str, Any] | None = None,
    store: Any = None,
    config: Any = None,
    **app_options: Any,
) -> AsyncIterator[Chat]:
    scripted = ScriptedBackend(answers or ("Hello there.",), automatic=False, **(backend or {}))
    session = Session(scripted, store, Settings().with_layer(CONFIG, settings or {}), config)
    app = TinyLLMChatApp(session, model=model, **app_options)
    async with app.run_test(size=size) as pilot:
        chat = Chat(app, scripted, pilot)
        if model is not None and ready:
            await chat.ready()
        yield chat
