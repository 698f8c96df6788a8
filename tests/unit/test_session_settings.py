"""What a session is told to do otherwise: system prompt, sampling, thinking; and the copies it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.session_chat import Chat, asked, on_disk, shown
from tinyllm_chat.chat.conversation import SamplingSpan
from tinyllm_chat.chat.errors import ExportError, SessionError, SettingsError
from tinyllm_chat.chat.events import (
    PathChanged,
)
from tinyllm_chat.chat.sampled import SamplingValue
from tinyllm_chat.chat.scripted import SEED, Thought
from tinyllm_chat.chat.settings import BUILT_IN, CONFIG, MODEL, SESSION, Settings
from tinyllm_chat.chat.transcript import TranscriptStore


@pytest.fixture
def store(tmp_path: Path) -> TranscriptStore:
    return TranscriptStore(tmp_path / "transcripts")


# System prompt


def test_the_system_prompt_of_the_settings_is_seen_by_the_model_and_on_disk(store: TranscriptStore) -> None:
    chat = Chat(store, "A.", settings=Settings().with_value(CONFIG, "system_prompt", "Be brief."))
    chat.say("a")
    assert asked(chat) == [("system", "Be brief."), ("user", "a")]
    chat.session.close()
    (info,) = store.list()
    loaded = store.open(info.id)
    loaded.transcript.close()
    assert shown(loaded.conversation.path())[0] == ("system", "Be brief.")


def test_a_changed_system_prompt_holds_from_the_next_answer_on() -> None:
    chat = Chat(None, "A.")
    chat.say("a")
    chat.session.set_system_prompt("Rhyme.")
    assert chat.session.drain() == [PathChanged()]
    chat.say("b")
    assert asked(chat)[0] == ("system", "Rhyme.")
    chat.session.set_system_prompt("")
    chat.say("c")
    assert asked(chat)[0] == ("user", "a")


# Sampling


def test_values_and_where_they_come_from() -> None:
    settings = Settings().with_value(CONFIG, "temperature", 0.3)
    chat = Chat(None, settings=settings, info={"sampling": {"temperature": 0.6, "top_k": 20}})
    sampling = chat.session.sampling
    assert sampling["temperature"] == SamplingValue(0.3, CONFIG)
    assert sampling["top_k"] == SamplingValue(20, MODEL)
    assert sampling["top_p"] == SamplingValue(0.95, BUILT_IN)
    assert sampling["seed"] == SamplingValue(-1, BUILT_IN)
    chat.say("a")
    assert chat.session.sampling["seed"] == SamplingValue(SEED, "random")
    assert chat.backend.requests[-1].sampling["top_k"] == 20


def test_turning_a_knob_acts_on_the_running_answer_and_is_recorded(store: TranscriptStore) -> None:
    chat = Chat(store, "one two three", automatic=False)
    chat.session.send("a")
    chat.backend.step(2)
    chat.session.nudge("temperature", 2)
    assert chat.session.sampling["temperature"] == SamplingValue(0.9, SESSION)
    chat.backend.finish()
    chat.session.drain()
    answer = chat.session.conversation.path()[-1]
    first, second = answer.sampling_spans
    assert (first.start, first.values["temperature"]) == (0, 0.8)
    assert (second.start, second.values["temperature"]) == (2, 0.9)
    chat.session.close()
    (info,) = store.list()
    loaded = store.open(info.id)
    loaded.transcript.close()
    assert loaded.conversation.path()[-1].sampling_spans == [
        SamplingSpan(first.start, first.values),
        SamplingSpan(second.start, second.values),
    ]


def test_a_nudge_stops_at_the_end_of_the_range() -> None:
    chat = Chat(None)
    chat.session.nudge("top_p", 1000)
    assert chat.session.sampling["top_p"].value == 1.0
    chat.session.nudge("temperature", -1000)
    assert chat.session.sampling["temperature"].value == 0.0


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", -1), ("temperature", "x"), ("threads", 2), ("nonsense", 1)]
)
def test_a_wrong_value_changes_nothing(name: str, value: Any) -> None:
    chat = Chat(None)
    before = chat.session.sampling
    with pytest.raises(SettingsError, match=name):
        chat.session.set_sampling(name, value)
    assert chat.session.sampling == before


def test_a_token_limit_of_zero_is_none() -> None:
    chat = Chat(None, settings=Settings().with_value(CONFIG, "max_tokens", 0))
    chat.say("a")
    assert chat.backend.requests[-1].max_tokens is None
    limited = Chat(None, "one two three", settings=Settings().with_value(CONFIG, "max_tokens", 2))
    limited.say("a")
    assert limited.seen()[-1] == ("assistant", "one two")


def test_another_model_takes_its_own_recommendations_along() -> None:
    chat = Chat(None, info={"sampling": {"top_k": 20}})
    chat.backend._info_changes = {"name": "Other", "fingerprint": "other"}
    chat.session.open_model("other.gguf")
    assert (chat.session.model, chat.session.cache) == (None, None)
    chat.session.drain()
    assert chat.session.sampling["top_k"] == SamplingValue(40, BUILT_IN)
    assert chat.session.model is not None
    assert chat.session.model.name == "Other"


# Documents


def test_a_markdown_copy_goes_beside_the_transcripts(store: TranscriptStore, tmp_path: Path) -> None:
    chat = Chat(store, "Because.")
    with pytest.raises(ExportError, match="nothing to save"):
        chat.session.export()
    chat.say("Why?")
    path = chat.session.export()
    assert path.parent == tmp_path / "exports"
    assert "## You\n\nWhy?" in path.read_text()
    assert chat.session.export() == path
    other = chat.session.export(tmp_path / "mine.md")
    assert other.read_text() == path.read_text()
    chat.session.close()


def test_a_copy_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    chat = Chat(None)
    chat.say("a")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot be written"):
        chat.session.export(tmp_path / "file" / "x.md")
    with pytest.raises(SessionError, match="name the file"):
        chat.session.export()


# Thinking


@pytest.mark.parametrize(("value", "think"), [("auto", None), ("on", True), ("off", False)])
def test_whether_the_model_shall_think_is_a_setting(value: str, think: bool | None) -> None:
    chat = Chat(None, settings=Settings().with_value(CONFIG, "think", value))
    chat.say("Hi")
    assert chat.backend.requests[-1].think is think


def test_thinking_is_turned_for_the_next_answer() -> None:
    chat = Chat(None)
    chat.session.set_think("off")
    chat.say("Hi")
    assert chat.backend.requests[-1].think is False
    with pytest.raises(SettingsError, match="think: expected one of auto, on, off, found 'maybe'"):
        chat.session.set_think("maybe")


def test_reasoning_is_recorded_apart_and_told_to_the_backend(store: TranscriptStore) -> None:
    chat = Chat(store, [Thought("Hm"), Thought("."), "Yes", "."])
    chat.say("Hi")
    answer = chat.session.conversation.leaf
    assert answer is not None
    assert (answer.reasoning, answer.content, answer.thought_tokens) == ("Hm.", "Yes.", 2)
    assert chat.session._transcript is not None
    chat.session._transcript.sync()
    assert on_disk(store, chat.session) == [("user", "Hi"), ("assistant", "Yes.")]
    chat.say("And?")
    assert [message.reasoning for message in chat.backend.requests[-1].messages] == ["", "Hm.", ""]


def test_an_answer_that_was_stopped_while_thinking_is_continued() -> None:
    chat = Chat(None, [Thought("Hm"), "Yes"], automatic=False)
    chat.session.send("Hi")
    chat.backend.step(1)
    chat.session.stop()
    chat.session.drain()
    chat.session.continue_answer()
    request = chat.backend.requests[-1]
    assert request.continue_last
    assert request.messages[-1].reasoning == "Hm"
