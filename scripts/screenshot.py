"""Draws the pictures of the README in assets/: the real screen with a real model.

python scripts/screenshot.py smollm2
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli.models import model_path
from tinyllm_chat.tui.app import TinyLLMChatApp

ASSETS = Path(__file__).parents[1] / "assets"
SIZE = (112, 32)
QUESTION = "What are three good reasons to learn Python? Use a list with bold titles."
SAMPLING = {"seed": 5, "temperature": 0.4}
# Characters of the answer: when the temperature is changed, and when the picture is taken.
TURNED_AT, DRAWN_AT = 90, 330
SECONDS = 120.0
MADE = 1_796_054_400.0  # the day of the kept chats: 30 November 2026
KEPT = (  # hours before that, title, question, answer
    (1, "Reasons to learn Python", QUESTION, "1. **Readable**: it is close to plain English."),
    (3, "", "Why is the sky blue?", "Because air scatters blue light more than red light."),
    (26, "", "How far away are the stars?", "The nearest one is 4.2 light years away."),
    (30, "", "Explain the difference between TCP and UDP", "TCP keeps order and repeats what is lost."),
    (75, "Bread", "How long does sourdough rise?", "Until it is light and has doubled, four to five hours."),
    (400, "", "Write a haiku about light rain", "Light rain on the roof"),
    (900, "", "What is a monad?", "A monoid in the category of endofunctors."),
)


@asynccontextmanager
async def shown(session: Session, *, model: str | None, chats: ChatLibrary | None = None) -> AsyncIterator[Pilot[None]]:
    app = TinyLLMChatApp(session, model=model, chats=chats)
    try:
        async with asyncio.timeout(SECONDS), app.run_test(size=SIZE) as pilot:
            while model is not None and session.model is None:
                await pilot.pause(0.1)
            yield pilot
    finally:
        session.close()


async def chat_and_inspector(model: Path, folder: Path) -> None:
    """An answer that is being written, then its tokens."""
    session = Session(LocalBackend(), TranscriptStore(folder), Settings().with_layer(CONFIG, SAMPLING))
    async with shown(session, model=str(model)) as pilot:
        await pilot.press(*QUESTION, "enter")
        await written(session, TURNED_AT)
        await pilot.press("alt+up")
        await written(session, DRAWN_AT)
        save(pilot, "screenshot.svg")
        while session.busy:
            await pilot.pause(0.1)
        await pilot.press("alt+i")
        answer = session.conversation.leaf
        assert answer is not None
        while not answer.is_seen:
            await pilot.pause(0.1)
        await pilot.pause(0.3)
        await pilot.press(*["tab"] * 3)
        await pilot.pause(0.3)
        save(pilot, "inspector.svg")


async def history(folder: Path) -> None:
    """The chats that are kept, searched for a word."""
    store = TranscriptStore(folder / "transcripts")
    library = ChatLibrary(store, folder / "state")
    for hours, title, question, said in KEPT:
        conversation = Conversation()
        conversation.name = title or None
        conversation.pinned = title == "Bread"
        asked = conversation.new_message("user", question, None)
        answer = conversation.new_message("assistant", "", asked.id)
        answer.model = "SmolLM2-135M-Instruct"
        answer.extend(said, ())
        answer.finish("eog", None)
        for message in conversation:
            message.created = MADE - 3600 * hours
        store.create(conversation, conversation.title, None).close()
    session = Session(ScriptedBackend(), store, Settings())
    async with shown(session, model="SmolLM2-135M-Instruct-Q4_1.gguf", chats=library) as pilot:
        await pilot.press("ctrl+l")
        await pilot.pause(1.0)
        await pilot.press(*"light")
        await pilot.pause(0.5)
        save(pilot, "history.svg")


async def written(session: Session, characters: int) -> None:
    """Waits for that much of the answer."""
    while True:
        leaf = session.conversation.leaf
        if leaf is not None and leaf.role == "assistant" and len(leaf.content) >= characters:
            return
        await asyncio.sleep(0.01)


def save(pilot: Pilot[None], name: str) -> None:
    picture = pilot.app.export_screenshot(title="tinyllm-chat smollm2")
    (ASSETS / name).write_text("".join(f"{line.rstrip()}\n" for line in picture.splitlines()), encoding="utf-8")
    print(ASSETS / name)


async def draw(model: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await chat_and_inspector(model, Path(folder) / "chat")
        await history(Path(folder))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("model", help="a GGUF file or a name")
    model = model_path(arguments.parse_args().model, Paths.default())
    os.environ["TZ"] = "UTC"
    if hasattr(time, "tzset"):
        time.tzset()
    asyncio.run(draw(model))


if __name__ == "__main__":
    main()
