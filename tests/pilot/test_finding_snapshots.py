"""What the lists of chats and of models look like, as pictures."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tinyllm_chat.chat import transcript
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.describing import ModelFacts
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.tui.app import TinyLLMChatApp
from tinyllm_chat.tui.models import ModelChoice

RECORDED_WITH = {"textual": "8.2.8", "rich": "15.0.0"}  # others may draw the same screen as another picture

pytestmark = pytest.mark.skipif(
    any(version(package) != recorded for package, recorded in RECORDED_WITH.items()),
    reason=f"the pictures were recorded with {RECORDED_WITH}",
)

NOW = 1_796_081_497.5479717  # seconds since 1970
CHATS = (
    ("What is gravity?", "Gravity is the curvature of spacetime, caused by mass and energy.", 1_700_000_000),
    ("我想知道天气怎么样", "今天天气很好。", 1_699_990_000),
    ("A recipe for crème brûlée with a title that is too long for its column", "Take cream.", 1_699_900_000),
)


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC")
    if hasattr(time, "tzset"):
        time.tzset()
    yield
    monkeypatch.undo()
    if hasattr(time, "tzset"):
        time.tzset()


def shown(pilot: Any) -> str:
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def until(pilot: Any, *texts: str) -> None:
    deadline = time.monotonic() + 20
    while not all(text in shown(pilot) for text in texts):
        assert time.monotonic() < deadline, shown(pilot)
        await pilot.pause(0.01)
    await pilot.pause()


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize(
    ("theme", "size"), [("", (80, 24)), ("tinyllm-light", (160, 45))], ids=["80x24", "160x45-light"]
)
def test_chats_that_were_searched(
    snap_compare: Any, tmp_path: Path, theme: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TranscriptStore(tmp_path / "transcripts")
    library = ChatLibrary(store, tmp_path / "state")
    for question, answer, created in CHATS:
        conversation = Conversation()
        asked = conversation.new_message("user", question, None)
        answered = conversation.new_message("assistant", "", asked.id)
        answered.model = "SmolLM2-135M-Instruct"
        answered.extend(f"{answer} It is so because of c.", ())
        answered.finish("eog", None)
        for message in conversation:
            message.created = created
        with monkeypatch.context() as patched:
            # A time now and then has a digit less, and the file, whose size is in the picture, a byte.
            patched.setattr(transcript.time, "time", lambda: NOW)
            created_file = store.create(conversation, question, None)
        created_file.close()
        if question.startswith("A recipe"):
            library.pin(created_file.id, True)
    (store.folder / "from-a-newer-version.jsonl").write_text(
        '{"type":"header","version":99}\n{"type":"message","content":"cu"}\n'
    )

    async def run(pilot: Any) -> None:
        await pilot.press("ctrl+l")
        await until(pilot, "from-a-newer-version")
        await pilot.press(*"because cU")
        await until(pilot, "1 found", "curvature")
        await pilot.press(*["backspace"] * 3)
        await until(pilot, "3 found", "天气")

    session = Session(ScriptedBackend(), store, Settings({CONFIG: {"theme": theme}}))
    app = TinyLLMChatApp(session, model="/models/smollm2.gguf", chats=library)
    assert snap_compare(app, terminal_size=size, run_before=run)


class Models:
    facts: dict[str, ModelFacts] = {  # noqa: RUF012
        "/a": ModelFacts("llama", "Q4_1", 135_000_000, 8192, 287_000_000),
        "/b": ModelFacts("qwen2", "Q4_K", 7_600_000_000, 32768, 6_500_000_000),
        "/c": ModelFacts(problem="the file ends after 12 bytes, a GGUF header has 24"),
        "/d": ModelFacts("llama", "Q4_K", 70_000_000_000, 8192, 45_000_000_000, tight=True),
    }

    def choices(self) -> list[ModelChoice]:
        return [
            ModelChoice("SmolLM2-135M-Instruct-Q4_1", "98.4 MB", "/a", "opened lately"),
            ModelChoice("Qwen2.5-7B-Instruct-Q4_K_M", "4.7 GB", "/b", "in the Hugging Face cache"),
            ModelChoice("half-a-download", "12 B", "/c", "of LM Studio"),
            ModelChoice("llama3.3:70b", "42.5 GB", "/d", "of Ollama"),
            ModelChoice("smollm2-360m", "SmolLM2-360M-Instruct, 271 MB to download, Apache-2.0"),
        ]

    def describe(self, path: str) -> ModelFacts:
        return self.facts[path]

    def find(self, name: str, progress: Any) -> str:
        raise NotImplementedError

    def opened(self, path: str) -> None:
        raise NotImplementedError


def test_models_to_choose_from(snap_compare: Any) -> None:
    async def run(pilot: Any) -> None:
        await until(pilot, "needs 287 MB", "too large")

    settings = Settings({CONFIG: {"theme": "tinyllm-light", "show_panels": False}})
    app = TinyLLMChatApp(Session(ScriptedBackend(), None, settings), models=Models())
    assert snap_compare(app, terminal_size=(160, 45), run_before=run)
