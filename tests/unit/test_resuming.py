"""What is printed at the end: how to go on with the chat."""

from __future__ import annotations

from pathlib import Path

import pytest
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli.chat import resuming


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = Session(ScriptedBackend(("Hello.",)), TranscriptStore(tmp_path), Settings())
    session.open_model("/models/my model.gguf")
    session.drain()
    return session


def test_nothing_was_said(session: Session) -> None:
    assert resuming(session, "smollm2", None) == ""


def test_the_model_is_named_as_it_was_typed_or_by_the_file_chosen_since(session: Session) -> None:
    session.send("Hi")
    session.drain()
    assert session.model is not None
    assert session.transcript_path is not None
    name = session.transcript_path.stem
    opened = Path(session.model.path)
    assert resuming(session, "smollm2", opened) == f"Go on with this chat: tinyllm-chat smollm2 --resume {name}"
    assert resuming(session, None, opened) == f"Go on with this chat: tinyllm-chat --resume {name}"
    assert f"'{opened}'" in resuming(session, "smollm2", Path("/other.gguf"))
    session.close()
