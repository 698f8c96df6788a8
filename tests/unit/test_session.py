"""The controller: one path for every way to get an answer, on screen, in the model's prompt and on disk alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tinyllm_chat.chat.conversation import Message, MessageState, SamplingSpan
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.errors import ExportError, SessionError, SettingsError, TranscriptError
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    Event,
    ModelFailed,
    ModelReady,
    Notice,
    PathChanged,
    TextDelta,
)
from tinyllm_chat.chat.sampled import SamplingValue
from tinyllm_chat.chat.scripted import SEED, ScriptedBackend, Thought
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import BUILT_IN, CONFIG, MODEL, SESSION, Settings
from tinyllm_chat.chat.transcript import TranscriptStore


@pytest.fixture
def store(tmp_path: Path) -> TranscriptStore:
    return TranscriptStore(tmp_path / "transcripts")


class Chat:
    """A session over a scripted backend, with its model open."""

    def __init__(
        self,
        store: TranscriptStore | None,
        *answers: Any,
        settings: Settings | None = None,
        automatic: bool = True,
        **options: Any,
    ) -> None:
        self.backend = ScriptedBackend(answers or ("Hello.",), automatic=automatic, **options)
        self.session = Session(self.backend, store, settings or Settings())
        self.session.open_model("model.gguf")
        self.backend.finish_opening()
        self.events = self.session.drain()

    def say(self, text: str) -> list[Event]:
        self.session.send(text)
        return self.session.drain()

    def seen(self) -> list[tuple[str, str]]:
        return shown(self.session.conversation.path())


def shown(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


def asked(chat: Chat, index: int = -1) -> list[tuple[str, str]]:
    """What the model saw."""
    return [(message.role, message.content) for message in chat.backend.requests[index].messages]


def on_disk(store: TranscriptStore, session: Session) -> list[tuple[str, str]]:
    """What another program reads from the file at this moment."""
    assert session.transcript_path is not None
    loaded = store.open(session.transcript_path.stem)
    loaded.transcript.close()
    return shown(loaded.conversation.path())


def test_a_question_is_answered_recorded_and_shown(store: TranscriptStore) -> None:
    chat = Chat(store, "Hello there.")
    assert chat.session.transcript_path is None
    events = chat.say("Hi")
    assert isinstance(events[0], PathChanged)
    assert isinstance(events[-1], AnswerFinished)
    assert chat.seen() == [("user", "Hi"), ("assistant", "Hello there.")]
    assert asked(chat) == [("user", "Hi")]
    assert chat.session.title == "Hi"
    answer = chat.session.conversation.path()[-1]
    assert (answer.state, answer.reason, answer.model) == (MessageState.COMPLETE, "eog", "SmolLM2-135M-Instruct")
    chat.session.close()
    assert [(info.title, info.model) for info in store.list()] == [("Hi", "SmolLM2-135M-Instruct")]
    loaded = store.open(store.list()[0].id)
    loaded.transcript.close()
    assert shown(loaded.conversation.path()) == chat.seen()


def test_the_next_turn_carries_the_ids_of_the_answer_before(store: TranscriptStore) -> None:
    chat = Chat(store, "One two.", "Three.")
    chat.say("a")
    chat.say("b")
    assert asked(chat) == [("user", "a"), ("assistant", "One two."), ("user", "b")]
    before = chat.backend.requests[-1].messages[1]
    assert before.ids == tuple(chat.session.conversation[before.id].ids)
    assert (len(before.ids), before.fingerprint) == (2, "scripted")


def test_the_question_is_on_disk_before_the_first_token(store: TranscriptStore) -> None:
    chat = Chat(store, automatic=False)
    chat.session.send("Hi")
    assert chat.backend.drain() == []
    assert on_disk(store, chat.session) == [("user", "Hi"), ("assistant", "")]


def test_empty_texts_are_not_sent() -> None:
    chat = Chat(None)
    assert chat.say(" \n ") == []
    assert chat.seen() == []


def test_without_a_store_nothing_is_written(tmp_path: Path) -> None:
    chat = Chat(None)
    chat.say("Hi")
    assert chat.session.transcript_path is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SessionError, match="not kept"):
        chat.session.open_chat("x")


# Waiting


def test_texts_wait_for_the_model_and_are_sent_in_order() -> None:
    backend = ScriptedBackend(["A", "B"], automatic=False)
    session = Session(backend, None, Settings())
    session.send("one")
    session.open_model("m.gguf")
    session.send("two")
    assert session.queued == ["one", "two"]
    backend.finish_opening()
    session.drain()
    assert (session.queued, session.busy) == (["two"], True)
    backend.finish()
    session.drain()
    backend.finish()
    session.drain()
    session.drain()
    assert shown(session.conversation.path()) == [
        ("user", "one"),
        ("assistant", "A"),
        ("user", "two"),
        ("assistant", "B"),
    ]


def test_stopping_keeps_the_text_and_hands_back_what_waited() -> None:
    chat = Chat(None, "one two three", automatic=False)
    chat.say("a")
    chat.session.send("b")
    chat.backend.step()
    assert chat.session.stop() == [Draft("b")]
    (finished,) = [event for event in chat.session.drain() if isinstance(event, AnswerFinished)]
    assert finished.reason == "cancelled"
    assert chat.seen() == [("user", "a"), ("assistant", "one")]
    assert (chat.session.busy, chat.session.queued) == (False, [])


def test_stopping_nothing_does_nothing() -> None:
    chat = Chat(None)
    assert chat.session.stop() == []
    assert chat.session.drain() == []


def test_a_model_that_does_not_open_leaves_the_session_usable() -> None:
    backend = ScriptedBackend(model_failure="x.gguf: empty file")
    session = Session(backend, None, Settings())
    session.open_model("x.gguf")
    session.send("Hi")
    assert session.drain() == [ModelFailed("x.gguf: empty file")]
    assert (session.model, session.loading, session.queued) == (None, None, ["Hi"])
    backend.model_failure = None
    session.open_model("y.gguf")
    assert any(isinstance(event, ModelReady) for event in session.drain())
    session.drain()
    assert shown(session.conversation.path())[-1] == ("assistant", "Hello there.")


def test_a_failed_answer_says_why_and_the_next_works() -> None:
    chat = Chat(None, RuntimeError("no memory"), "Fine.")
    assert any(isinstance(event, AnswerFailed) for event in chat.say("a"))
    answer = chat.session.conversation.path()[-1]
    assert (answer.state, answer.error, chat.session.busy) == (MessageState.FAILED, "no memory", False)
    chat.session.regenerate()
    chat.session.drain()
    assert chat.seen() == [("user", "a"), ("assistant", "Fine.")]


# Other ways to an answer


def test_regenerating_puts_another_answer_beside_the_first(store: TranscriptStore) -> None:
    chat = Chat(store, "First.", "Second.")
    chat.say("a")
    first = chat.session.conversation.head
    chat.session.regenerate()
    chat.session.drain()
    assert chat.seen() == [("user", "a"), ("assistant", "Second.")]
    assert asked(chat) == [("user", "a")]
    second = chat.session.conversation.head
    assert first is not None
    assert second is not None
    assert chat.session.conversation.siblings(first) == [first, second]
    chat.session.select_sibling(second, 1)
    assert chat.seen()[-1] == ("assistant", "First.")
    chat.session.close()
    (info,) = store.list()
    loaded = store.open(info.id)
    loaded.transcript.close()
    assert shown(loaded.conversation.path())[-1] == ("assistant", "First.")
    assert len(loaded.conversation) == 3


def test_resending_branches_at_the_question() -> None:
    chat = Chat(None, "A.", "B.")
    chat.say("first")
    question = chat.session.conversation.path()[0]
    chat.session.resend(question.id, "edited")
    chat.session.drain()
    assert chat.seen() == [("user", "edited"), ("assistant", "B.")]
    assert len(chat.session.conversation.siblings(question.id)) == 2
    with pytest.raises(SessionError, match="your own"):
        chat.session.resend(chat.session.conversation.path()[-1].id, "x")


def test_continuing_writes_on_in_the_same_message() -> None:
    chat = Chat(None, "one two three four", "five six", automatic=False)
    chat.say("a")
    chat.backend.step(2)
    chat.session.stop()
    chat.session.drain()
    answer = chat.session.conversation.path()[-1]
    chat.session.continue_answer()
    assert answer.state is MessageState.WRITING
    request = chat.backend.requests[-1]
    assert request.continue_last
    assert request.message_id == answer.id
    assert request.messages[-1].ids == tuple(answer.ids)
    chat.backend.finish()
    chat.session.drain()
    assert chat.seen() == [("user", "a"), ("assistant", "one twofive six")]
    assert (len(answer.ids), answer.reason) == (4, "eog")


@pytest.mark.parametrize("action", ["regenerate", "continue_answer"])
def test_what_needs_an_answer_says_so(action: str) -> None:
    chat = Chat(None)
    with pytest.raises(SessionError, match="there is no"):
        getattr(chat.session, action)()


@pytest.mark.parametrize("action", ["regenerate", "continue_answer"])
def test_what_would_disturb_an_answer_is_refused(action: str) -> None:
    chat = Chat(None, automatic=False)
    chat.session.send("a")
    with pytest.raises(SessionError, match="stop it first"):
        getattr(chat.session, action)()


# Chats


def test_a_new_chat_leaves_the_old_one_on_disk(store: TranscriptStore) -> None:
    chat = Chat(store, "A.")
    chat.say("first")
    old = chat.session.transcript_path
    chat.session.new_chat()
    assert chat.session.drain() == [PathChanged()]
    assert (chat.seen(), chat.session.transcript_path) == ([], None)
    chat.say("second")
    assert chat.session.transcript_path != old
    assert sorted(info.title for info in store.list()) == ["first", "second"]
    chat.session.close()


def test_an_answer_that_is_being_written_ends_in_the_chat_it_belongs_to(store: TranscriptStore) -> None:
    chat = Chat(store, "one two three", automatic=False)
    chat.session.send("first")
    chat.backend.step()
    old = chat.session.transcript_path
    chat.session.new_chat()
    events = chat.session.drain()
    assert not any(isinstance(event, TextDelta | AnswerFinished) for event in events)
    assert (chat.seen(), chat.session.busy) == ([], False)
    assert old is not None
    loaded = store.open(old.stem)
    assert not loaded.transcript.read_only
    loaded.transcript.close()
    assert shown(loaded.conversation.path()) == [("user", "first"), ("assistant", "one")]
    assert loaded.conversation.path()[-1].reason == "cancelled"


def test_a_chat_that_is_still_being_left_is_not_opened(store: TranscriptStore) -> None:
    class Slow(ScriptedBackend):
        """Takes its time to stop."""

        def cancel(self) -> None:
            pass

    backend = Slow(["one two"], automatic=False)
    session = Session(backend, store, Settings())
    session.open_model("m.gguf")
    backend.finish_opening()
    session.drain()
    session.send("first")
    assert session.transcript_path is not None
    chat_id = session.transcript_path.stem
    session.new_chat()
    with pytest.raises(SessionError, match="still being stopped"):
        session.open_chat(chat_id)
    backend.finish("cancelled")
    session.drain()
    session.open_chat(chat_id)
    assert not session.read_only
    session.close()


def test_an_earlier_chat_goes_on(store: TranscriptStore) -> None:
    first = Chat(store, "A.")
    first.say("a")
    first.session.close()
    second = Chat(store, "B.")
    latest = store.latest()
    assert latest is not None
    second.session.open_chat(latest)
    assert second.session.drain() == [PathChanged()]
    assert (second.seen(), second.session.read_only) == ([("user", "a"), ("assistant", "A.")], False)
    second.say("b")
    assert asked(second) == [("user", "a"), ("assistant", "A."), ("user", "b")]
    second.session.close()
    assert [info.id for info in store.list()] == [latest]


def test_a_chat_that_is_open_elsewhere_is_read_only_and_writing_goes_into_a_copy(store: TranscriptStore) -> None:
    owner = Chat(store, "A.")
    owner.say("a")
    assert owner.session.transcript_path is not None
    chat_id = owner.session.transcript_path.stem
    owner.session._record(lambda transcript: transcript.sync())  # its own thread writes
    before = owner.session.transcript_path.read_bytes()
    other = Chat(store, "B.")
    other.session.open_chat(chat_id)
    events = other.session.drain()
    assert other.session.read_only
    assert any(isinstance(event, Notice) and "copy" in event.message for event in events)
    other.say("b")
    assert not other.session.read_only
    assert other.session.transcript_path != owner.session.transcript_path
    assert other.seen() == [("user", "a"), ("assistant", "A."), ("user", "b"), ("assistant", "B.")]
    other.session.close()
    assert owner.session.transcript_path.read_bytes() == before
    owner.session.close()


def test_opening_what_is_open_or_absent(store: TranscriptStore) -> None:
    chat = Chat(store, "A.")
    chat.say("a")
    assert chat.session.transcript_path is not None
    chat.session.open_chat(chat.session.transcript_path.stem)
    assert not chat.session.read_only
    with pytest.raises(TranscriptError, match="no such chat"):
        chat.session.open_chat("nothing")
    assert chat.seen() == [("user", "a"), ("assistant", "A.")]
    chat.session.close()


def test_a_disk_that_refuses_is_told_and_the_chat_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    chat = Chat(TranscriptStore(tmp_path / "file" / "transcripts"), "A.")
    events = chat.say("a")
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert "cannot be saved" in notice.message
    assert chat.seen() == [("user", "a"), ("assistant", "A.")]


def test_closing_in_the_middle_of_an_answer_keeps_it(store: TranscriptStore) -> None:
    chat = Chat(store, "one two three", automatic=False)
    chat.session.send("a")
    chat.backend.step()
    chat.session.close()
    assert chat.backend.closed
    (info,) = store.list()
    loaded = store.open(info.id)
    assert not loaded.transcript.read_only
    loaded.transcript.close()
    assert shown(loaded.conversation.path()) == [("user", "a"), ("assistant", "one")]


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
