"""What tokens were chosen from: kept with an answer, on disk, and branched from."""

import json
import math

import pytest
from support.toy_engine import PAIR, Toy
from support.waiting import wait_until
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.choices import (
    END,
    Alternative,
    TokenChoice,
    from_record,
    joined,
    overlap,
    shown_texts,
    to_record,
)
from tinyllm_chat.chat.conversation import Branch, MessageState
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.events import AnswerFinished, ModelReady, Notice, TextDelta, TokensSeen
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.scripted import ScriptedBackend, Thought, choice_of, token_id
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA, SESSION, Settings
from tinyllm_chat.chat.transcript import TranscriptStore

CHOICE = TokenChoice(" is", -0.5, 1, 1.25, (Alternative(3, " is", -0.5), Alternative(4, "\udcf0\udc9f", -1.0, END)))


def plain(text):
    return TokenChoice(text, -1.0, 1, 0.0)


def test_a_record_holds_all_of_a_choice():
    record = json.loads(json.dumps([to_record(CHOICE), to_record(None)], ensure_ascii=True))
    assert [from_record(one) for one in record] == [CHOICE, None]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        ["a", -1, 1, 0],
        ["a", -1, 1, 0, {}],
        [1, -1, 1, 0, []],
        ["\ud800", -1, 1, 0, []],
        ["a", 1.5, 1, 0, []],
        ["a", float("nan"), 1, 0, []],
        ["a", "x", 1, 0, []],
        ["a", -1, 0, 0, []],
        ["a", -1, True, 0, []],
        ["a", -1, 1, -3, []],
        ["a", -1, 1, 0, [[1, "b", -1]] * 33],
        ["a", -1, 1, 0, [[-1, "b", -1]]],
        ["a", -1, 1, 0, [[1, "b", -1, "odd"]]],
        ["a", -1, 1, 0, [[1, "b"]]],
    ],
)
def test_a_record_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"not|surrogates"):
        from_record(wrong)


def test_a_character_of_several_tokens_is_shown_with_the_last_of_them():
    tokens = [plain(text) for text in ("a", "\udcf0\udc9f\udc98", "\udc80", " b", "\udce2")]
    assert shown_texts(tokens) == ["a", "‹", "😀", " b", "\ufffd"]
    assert joined(tokens) == "a😀 b"
    assert shown_texts([]) == []


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [("ab", "abc", "ab"), ("<think>\nso", "so far", "so"), ("xy", "ab", ""), ("", "a", "")],
)
def test_what_a_text_has_in_common_with_the_beginning_of_another(text, said, expected):
    assert overlap(text, said) == expected


def inspecting(*answers, store=None):
    backend = ScriptedBackend(answers, automatic=True)
    session = Session(backend, store, Settings().with_value(SESSION, "inspect_tokens", True))
    session.open_model("/models/a.gguf")
    session.drain()
    session.send("Why?")
    session.drain()
    return session, backend


def test_an_answer_keeps_what_its_tokens_were_chosen_from_in_memory_and_on_disk(tmp_path):
    store = TranscriptStore(tmp_path / "chats")
    session, _ = inspecting(["One", " two", " three"], store=store)
    answer = session.conversation.leaf
    assert answer.is_seen
    assert [answer.choices[at].text for at in range(3)] == ["One", " two", " three"]
    session.close()
    loaded = store.open(store.latest()).conversation.leaf
    assert loaded.is_seen
    assert [choice.alternatives[0].id for choice in loaded.choices.values()] == [
        choice.alternatives[0].id for choice in answer.choices.values()
    ]
    assert loaded.choices[0].logprob == pytest.approx(answer.choices[0].logprob, abs=1e-4)


def test_a_damaged_choice_costs_the_choices_and_not_the_answer(tmp_path):
    store = TranscriptStore(tmp_path / "chats")
    session, _ = inspecting("One two", store=store)
    session.close()
    path = next((tmp_path / "chats").glob("*.jsonl"))
    path.write_text(path.read_text().replace('"choices":[["One",', '"choices":[["One","odd",'))
    loaded = store.open(path.stem)
    assert (loaded.conversation.leaf.content, loaded.warnings) == ("One two", [])
    assert set(loaded.conversation.leaf.choices) == {1}


def test_an_answer_branches_at_a_token(tmp_path):
    store = TranscriptStore(tmp_path / "chats")
    session, backend = inspecting(["One", " two", " three"], [" four"], store=store)
    old = session.conversation.leaf
    place = [other.text for other in old.choices[1].alternatives].index(" the")
    session.branch(old.id, 1, place)
    new = session.conversation.leaf
    assert (new.content, new.ids) == ("One the", [token_id("One"), token_id(" the")])
    assert (new.branch, new.parent, new.state) == (Branch(old.id, 1), old.parent, MessageState.WRITING)
    assert new.choices[1].rank == place + 1
    session.drain()
    assert (new.content, new.reason) == ("One the four", "eog")
    assert new.ids == [*map(token_id, ["One", " the", " four"])]
    request = backend.requests[-1]
    assert request.continue_last
    assert (request.messages[-1].content, list(request.messages[-1].ids)) == ("One the", new.ids[:2])
    assert (old.content, session.conversation.siblings(new.id)) == ("One two three", [old.id, new.id])
    session.close()
    read = store.open(store.latest()).conversation
    assert (read.leaf.content, read.leaf.ids, read.leaf.branch) == (new.content, new.ids, new.branch)
    assert read.leaf.state is MessageState.COMPLETE


def test_a_branch_is_one_step_to_undo():
    session, _ = inspecting("One two", " more")
    old = session.conversation.leaf
    session.branch(old.id, 0, 1)
    session.drain()
    assert session.undo().what == "the branch"
    assert session.conversation.leaf is old


def test_a_branch_to_the_end_of_the_answer_ends_it():
    session, backend = inspecting("One two three")
    old = session.conversation.leaf
    place = [other.kind for other in old.choices[1].alternatives].index(END)
    session.branch(old.id, 1, place)
    new = session.conversation.leaf
    assert (new.content, new.ids, new.reason, session.busy) == ("One", old.ids[:1], "eog", False)
    assert len(backend.requests) == 1


def test_a_branch_in_the_middle_of_a_character_leaves_it_to_the_tokens_that_follow():
    session, _ = inspecting("One two", " more")
    old = session.conversation.leaf
    place = [other.text for other in old.choices[1].alternatives].index("\udcf0\udc9f")
    session.branch(old.id, 1, place)
    assert (session.conversation.leaf.content, len(session.conversation.leaf.ids)) == ("One", 2)


def test_branches_inside_and_behind_what_was_thought():
    session, _ = inspecting([Thought("So"), Thought(" it"), "Is", " so"], [" then"])
    old = session.conversation.leaf
    assert (old.reasoning, old.content, old.thought_tokens) == ("So it", "Is so", 2)
    session.branch(old.id, 3, 1)
    behind = session.conversation.leaf
    assert (behind.reasoning, behind.thought_tokens) == ("So it", 2)
    assert behind.content.startswith("Is")
    session.drain()
    session.branch(old.id, 1, 1)
    inside = session.conversation.leaf
    assert (inside.content, inside.thought_tokens) == ("", 2)
    assert inside.reasoning.startswith("So")


def test_what_was_not_looked_at_cannot_be_branched_from():
    session, _ = inspecting("One two")
    answer = session.conversation.leaf
    for token, place in ((0, 6), (0, -1), (2, 0)):
        with pytest.raises(SessionError, match="that token was not looked at"):
            session.branch(answer.id, token, place)
    answer.fingerprint = "another"
    with pytest.raises(SessionError, match="another model wrote this answer"):
        session.branch(answer.id, 0, 0)


def test_a_finished_answer_can_be_looked_at_later():
    session = Session(ScriptedBackend(["One two"]), None, Settings())
    session.open_model("/models/a.gguf")
    session.drain()
    session.send("Why?")
    session.drain()
    answer = session.conversation.leaf
    assert not answer.choices
    session.look_back(answer.id)
    session.drain()
    assert answer.is_seen
    assert answer.choices[1] == choice_of(" two")
    with pytest.raises(SessionError, match="only answers have tokens"):
        session.look_back(answer.parent)


@pytest.fixture
def toy_backend(tmp_path):
    toy = Toy()
    file = tmp_path / "toy.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    backend = LocalBackend(load=toy.api, free=lambda: 1 << 30)
    backend.open(str(file))
    wait(backend, ModelReady)
    yield toy, backend
    backend.close()


def wait(backend, kind):
    events = []

    def arrived():
        events.extend(backend.drain())
        return any(isinstance(event, kind) for event in events)

    wait_until(arrived)
    return events


def answered(backend, *, inspect):
    sampling = {name: SCHEMA[name].default for name in SAMPLING_NAMES}
    backend.answer("a", [PromptMessage("u", "user", "Hi")], sampling=sampling, inspect=inspect)
    events = wait(backend, AnswerFinished)
    return [event for event in events if isinstance(event, TextDelta)]


@pytest.mark.parametrize("inspect", [True, False])
def test_the_backend_tells_what_the_engine_says_of_each_token(toy_backend, inspect):
    _, backend = toy_backend
    deltas = answered(backend, inspect=inspect)
    choices = [choice for delta in deltas for choice in delta.choices]
    if inspect:
        assert [choice.text for choice in choices] == list("Hello")
        assert choices[0].alternatives == (Alternative(72, "H", -1.0), Alternative(73, "I", -1.7))
        assert all(len(delta.choices) == len(delta.ids) for delta in deltas)
    else:
        assert choices == []


def test_the_backend_looks_at_an_answer_that_it_wrote(toy_backend):
    toy, backend = toy_backend
    answered(backend, inspect=False)
    fingerprint = backend._opened.info.fingerprint
    said = PromptMessage("a", "assistant", "Hello", ids=tuple(b"Hello"), fingerprint=fingerprint)
    backend.look_back([PromptMessage("u", "user", "Hi"), said])
    (seen,) = [event for event in wait(backend, TokensSeen) if isinstance(event, TokensSeen)]
    assert (seen.message_id, seen.start, [choice.text for choice in seen.choices]) == ("a", 0, list("Hello"))
    assert toy.prompts[-1][-5:] == list(b"Hello")
    assert math.isclose(seen.choices[0].logprob, -1.0)


def test_an_answer_of_another_model_has_nothing_to_look_at(toy_backend):
    _, backend = toy_backend
    said = PromptMessage("a", "assistant", "hello", ids=(PAIR, *b"llo"), fingerprint="another")
    backend.look_back([PromptMessage("u", "user", "Hi"), said])
    (notice,) = [event for event in wait(backend, Notice) if isinstance(event, Notice)]
    assert "nothing to look at" in notice.message
