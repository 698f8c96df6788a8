"""The controller: one path for every way to get an answer, on screen, in the model's prompt and on disk alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.session_chat import Chat, asked, on_disk, shown
from tinyllm_chat.chat.conversation import MessageState
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.errors import SessionError, TranscriptError
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    ModelFailed,
    ModelReady,
    Notice,
    PathChanged,
    TextDelta,
)
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore


@pytest.fixture
def store(tmp_path: Path) -> TranscriptStore:
    return TranscriptStore(tmp_path / "transcripts")


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


def test_the_backend_is_told_what_the_next_message_follows(store: TranscriptStore) -> None:
    chat = Chat(store, "One.", settings=Settings().with_layer(CONFIG, {"system_prompt": "Be brief."}))
    chat.session.read_ahead()
    assert chat.backend.awaited == []  # nothing was said yet
    chat.say("Hi")
    assert chat.backend.awaited == []  # nobody may be there to say more
    chat.session.read_ahead()
    (awaited,) = chat.backend.awaited
    assert [(message.role, message.content) for message in awaited] == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "One."),
    ]
    chat.say("More")
    assert chat.backend.requests[-1].messages[:3] == awaited


def test_nothing_is_awaited_while_an_answer_is_written_or_no_model_is_open(store: TranscriptStore) -> None:
    chat = Chat(store, "One two three.", automatic=False)
    chat.say("Hi")
    chat.session.read_ahead()
    chat.backend.finish()
    chat.session.drain()
    chat.session.open_model("other.gguf")
    chat.session.read_ahead()
    assert chat.backend.awaited == []
