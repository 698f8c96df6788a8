"""What is sent, edited, deleted or switched to can be undone and done again, on screen and on disk alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinyllm_chat.chat.conversation import Attachment, Conversation, MessageState, with_attachments
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.markdown import to_markdown
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.transcript import TranscriptStore


@pytest.fixture
def store(tmp_path: Path) -> TranscriptStore:
    return TranscriptStore(tmp_path / "transcripts")


def a_session(store: TranscriptStore | None, *answers: Any) -> Session:
    session = Session(ScriptedBackend(answers or ("Hello.",)), store, Settings())
    session.open_model("model.gguf")
    session.drain()
    return session


def say(session: Session, *texts: str) -> None:
    for text in texts:
        session.send(text)
        session.drain()


def tree(conversation: Conversation) -> Any:
    """Everything that an undo must bring back: the visible leaf, and every branch in its order."""

    def below(parent: str | None) -> Any:
        return [(conversation[child].content, below(child)) for child in conversation.children(parent)]

    return conversation.head, below(None)


def on_disk(store: TranscriptStore, session: Session) -> Any:
    assert session.transcript_path is not None
    assert session._transcript is not None
    session._transcript.sync()
    loaded = store.open(session.transcript_path.stem)
    loaded.transcript.close()
    assert loaded.warnings == []
    return tree(loaded.conversation)


def seen(session: Session) -> list[str]:
    return [message.content for message in session.conversation.path()]


def test_a_message_that_is_undone_gives_its_text_back(store: TranscriptStore) -> None:
    session = a_session(store, "A.", "B.")
    say(session, "first", "second")
    before = tree(session.conversation)
    step = session.undo()
    assert (step.what, step.draft) == ("the message", Draft("second"))
    assert seen(session) == ["first", "A."]
    session.undo()
    assert tree(session.conversation) == (None, [])
    assert on_disk(store, session) == (None, [])
    session.redo()
    session.redo()
    assert tree(session.conversation) == before
    assert on_disk(store, session) == before


def test_what_is_deleted_comes_back_where_it_stood(store: TranscriptStore) -> None:
    session = a_session(store, "A.", "B.", "C.")
    say(session, "first")
    question, answer = session.conversation.path()
    session.regenerate(answer.id)
    session.drain()
    session.select(answer.id)
    say(session, "second")
    before = tree(session.conversation)
    assert session.delete(answer.id) == 3
    assert seen(session) == ["first", "B."]
    assert on_disk(store, session) == tree(session.conversation)
    session.undo()
    assert tree(session.conversation) == before
    assert on_disk(store, session) == before
    assert session.conversation.siblings(answer.id)[0] == answer.id
    session.redo()
    assert seen(session) == ["first", "B."]
    session.delete(question.id)
    assert tree(session.conversation) == (None, [])


def test_any_answer_can_be_written_again() -> None:
    session = a_session(None, "A.", "B.", "C.")
    say(session, "first", "second")
    first = session.conversation.path()[1]
    session.regenerate(first.id)
    session.drain()
    assert seen(session) == ["first", "C."]
    assert len(session.conversation.siblings(first.id)) == 2
    session.undo()
    assert seen(session) == ["first", "A.", "second", "B."]


def test_an_edited_answer_stands_beside_the_models_and_has_no_token_ids(store: TranscriptStore) -> None:
    session = a_session(store, "A.", "B.")
    say(session, "first")
    answer = session.conversation.path()[-1]
    session.edit_answer(answer.id, "Mine.")
    edited = session.conversation.path()[-1]
    assert (edited.content, edited.ids, edited.reason, edited.state) == ("Mine.", [], "edited", MessageState.COMPLETE)
    assert session.conversation.siblings(edited.id) == [answer.id, edited.id]
    assert on_disk(store, session) == tree(session.conversation)
    say(session, "second")
    prompted = session._backend.requests[-1].messages[1]  # type: ignore[attr-defined]
    assert (prompted.content, prompted.ids) == ("Mine.", None)
    assert "*(edited)*" in to_markdown(session.conversation)
    with pytest.raises(SessionError, match="only answers"):
        session.edit_answer(session.conversation.path()[0].id, "x")


def test_switching_branches_is_a_step() -> None:
    session = a_session(None, "A.", "B.")
    say(session, "first")
    answer = session.conversation.path()[-1]
    session.regenerate()
    session.drain()
    session.select_sibling(session.conversation.head or "", -1)
    assert seen(session) == ["first", "A."]
    session.select(answer.id)  # visible already: no step
    session.undo()
    assert seen(session) == ["first", "B."]
    session.redo()
    assert seen(session) == ["first", "A."]


def test_a_new_step_forgets_what_was_undone_and_a_new_chat_forgets_all() -> None:
    session = a_session(None)
    with pytest.raises(SessionError, match="nothing to undo"):
        session.undo()
    say(session, "one")
    session.undo()
    say(session, "two")
    with pytest.raises(SessionError, match="nothing to do again"):
        session.redo()
    session.new_chat()
    with pytest.raises(SessionError, match="nothing to undo"):
        session.undo()


def test_nothing_is_undone_under_an_answer_that_is_written() -> None:
    session = Session(ScriptedBackend(automatic=False), None, Settings())
    session.open_model("m.gguf")
    session._backend.finish_opening()  # type: ignore[attr-defined]
    session.drain()
    session.send("one")
    head = session.conversation.head or ""
    for change in (session.undo, session.redo, lambda: session.delete(head), lambda: session.edit_answer(head, "x")):
        with pytest.raises(SessionError, match="stop it first"):
            change()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["send", "again", "edit", "delete", "select"]), st.integers(0, 99))))
def test_undoing_everything_leads_back_and_doing_it_again_forth(changes: list[tuple[str, int]]) -> None:
    session = a_session(None, "A.", "B.", "C.")
    history = [tree(session.conversation)]
    for what, number in changes:
        ids = [message.id for message in session.conversation]
        some = ids[number % len(ids)] if ids else None
        before = tree(session.conversation)
        if what == "send" or some is None:
            session.send(f"text {number}")
        elif what == "again":
            session.regenerate(some)
        elif what == "edit":
            if session.conversation[some].role != "assistant":
                continue
            session.edit_answer(some, f"edit {number}")
        elif what == "delete":
            session.delete(some)
        else:
            session.select(some)
        session.drain()
        if tree(session.conversation) != before:
            history.append(tree(session.conversation))
    for state in history[-2::-1]:
        session.undo()
        assert tree(session.conversation) == state
    for state in history[1:]:
        session.redo()
        assert tree(session.conversation) == state


def test_a_name_and_a_pin_stay_with_the_chat(store: TranscriptStore) -> None:
    session = a_session(store)
    session.rename("  About\x1b stones ")  # before there is a file
    session.pin(True)
    assert session.title == "About stones"
    say(session, "Hi")
    path = session.transcript_path
    assert path is not None
    loaded = store.open(path.stem)
    assert (loaded.conversation.title, loaded.conversation.pinned) == ("About stones", True)
    session.rename("")
    session.pin(False)
    assert session.title == "Hi"
    loaded = store.open(path.stem)
    assert (loaded.conversation.title, loaded.conversation.pinned) == ("Hi", False)


def test_attached_files_stay_with_their_message_and_reach_the_model(store: TranscriptStore) -> None:
    session = a_session(store)
    files = (Attachment("notes.txt", "one\n```\ntwo"), Attachment("b.py", "x = 1\n"))
    session.send("Compare @notes.txt and @b.py", files)
    session.drain()
    asked = session._backend.requests[0].messages[0].content  # type: ignore[attr-defined]
    assert asked == with_attachments("Compare @notes.txt and @b.py", files)
    assert asked.startswith("notes.txt:\n````\none\n```\ntwo\n````\n\nb.py:\n```\nx = 1\n```\n\nCompare")
    assert session.transcript_path is not None
    loaded = store.open(session.transcript_path.stem)
    assert loaded.conversation.path()[0].attachments == files


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"delete","id":"nobody"}',
        b'{"type":"restore","id":"nobody"}',
        b'{"type":"restore"}',
        b'{"type":"title","title":3}',
        b'{"type":"head"}',
        b'{"type":"message","id":"x","parent":null,"role":"user","content":"a","attachments":{"name":"x"}}',
        b'{"type":"message","id":"x","parent":null,"role":"user","content":"a","attachments":[{"name":"x"}]}',
    ],
)
def test_damaged_records_of_these_kinds_are_skipped(store: TranscriptStore, line: bytes) -> None:
    session = a_session(store)
    say(session, "Hi")
    before = tree(session.conversation)
    path = session.transcript_path
    assert path is not None
    session.close()
    path.write_bytes(path.read_bytes() + line + b"\n")
    loaded = store.open(path.stem)
    assert len(loaded.warnings) == 1
    assert tree(loaded.conversation) == before


def test_a_message_below_one_that_was_deleted_finds_a_place(store: TranscriptStore) -> None:
    session = a_session(store)
    say(session, "Hi")
    path, first = session.transcript_path, session.conversation.path()[0]
    assert path is not None
    session.close()
    lines = b'{"type":"delete","id":"%s"}\n{"type":"message","id":"x","parent":"gone","role":"user","content":"a"}\n'
    path.write_bytes(path.read_bytes() + lines % first.id.encode())
    assert [message.content for message in store.open(path.stem).conversation.path()] == ["a"]
