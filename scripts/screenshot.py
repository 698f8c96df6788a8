"""Draws assets/screenshot.svg: the real screen with a real model, in the middle of an answer.

python scripts/screenshot.py smollm2
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli.models import model_path
from tinyllm_chat.tui.app import TinyLLMChatApp

PICTURE = Path(__file__).parents[1] / "assets" / "screenshot.svg"
SIZE = (112, 32)
QUESTION = "What are three good reasons to learn Python? Use a list with bold titles."
SAMPLING = {"seed": 1, "temperature": 0.4}
TURNED_AT, DRAWN_AT = (
    80,
    260,
)  # characters of the answer: when the temperature is changed, and when the picture is taken
SECONDS = 120.0


async def draw(model: Path) -> str:
    """The screen as SVG."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings().with_layer(CONFIG, SAMPLING)
        session = Session(LocalBackend(), TranscriptStore(Path(folder)), settings)
        app = TinyLLMChatApp(session, model=str(model))
        try:
            async with asyncio.timeout(SECONDS), app.run_test(size=SIZE) as pilot:
                while session.model is None:
                    await pilot.pause(0.1)
                await pilot.press(*QUESTION, "enter")
                await written(session, TURNED_AT)
                await pilot.press("alt+up")
                await written(session, DRAWN_AT)
                return app.export_screenshot(title="tinyllm-chat smollm2")
        finally:
            session.close()


async def written(session: Session, characters: int) -> None:
    """Waits for that much of the answer."""
    while True:
        leaf = session.conversation.leaf
        if leaf is not None and leaf.role == "assistant" and len(leaf.content) >= characters:
            return
        await asyncio.sleep(0.01)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("model", help="a GGUF file or a name")
    picture = asyncio.run(draw(model_path(arguments.parse_args().model, Paths.default())))
    PICTURE.write_text(picture, encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
