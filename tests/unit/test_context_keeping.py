"""A chat that outgrows the context: what the model sees, what is said, and what is on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.cuts import SUMMARY_HEADING, Cut
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.events import Condensed, Condensing, Event, MessageRefused, Notice
from tinyllm_chat.chat.room import ASK_FOR_SUMMARY, OFFERS
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore

LONG = " ".join(["word"] * 300)  # with its template 304 tokens of the script
REPLY = " ".join(["reply"] * 96)  # 100


@pytest.fixture
def store(tmp_path: Path) -> TranscriptStore:
    return TranscriptStore(tmp_path / "transcripts")


class Chat:
    """A session whose context holds 1000 tokens."""

    def __init__(
        self, *answers: Any, policy: str = "stop", store: TranscriptStore | None = None, **options: Any
    ) -> None:
        settings = {"context_full": policy, **options.pop("settings", {})}
        self.backend = ScriptedBackend(answers or (REPLY,), context_length=1000, **options)
        self.session = Session(self.backend, store, Settings({CONFIG: settings}))
        self.session.open_model("model.gguf")
        self.backend.finish_opening()
        self.session.drain()

    def say(self, text: str = LONG) -> list[Event]:
        self.session.send(text)
        return self.events()

    def events(self) -> list[Event]:
        """Until nothing more happens."""
        events = self.session.drain()
        while self.session.busy or self.session.queued:
            events += self.session.drain()
        return events

    def asked(self) -> list[str]:
        """What the model saw last."""
        return [message.content for message in self.backend.requests[-1].messages]

    @property
    def cut(self) -> Cut:
        cut = self.session.conversation.cut
        assert cut is not None
        return cut


def refusals(events: list[Event]) -> list[MessageRefused]:
    return [event for event in events if isinstance(event, MessageRefused)]


def notices(events: list[Event]) -> list[Notice]:
    return [event for event in events if isinstance(event, Notice)]


# Refusing


@pytest.mark.parametrize("policy", ["stop", "drop-oldest", "shift", "summarize"])
def test_a_message_that_cannot_fit_is_refused_before_it_is_sent(policy: str, store: TranscriptStore) -> None:
    chat = Chat(policy=policy, store=store)
    chat.session.set_system_prompt("Be brief.")
    chat.session.drain()
    text = " ".join(["word"] * 995)
    events = chat.say(text)
    said = "this message has 999 tokens; 1,000 fit, 6 of them are the system prompt"
    assert refusals(events) == [MessageRefused(Draft(text), said)]
    assert chat.backend.requests == []
    assert len(chat.session.conversation) == 0
    assert store.list() == []


def test_a_pasted_book_is_refused_without_building_a_prompt_of_it() -> None:
    chat = Chat()
    chat.session.set_system_prompt("Be brief.")
    book = " ".join(["word"] * 5000)
    measured: list[str] = []
    measure = chat.backend.measure
    chat.backend.measure = lambda messages, **how: (  # type: ignore[method-assign]
        measured.extend(message.content for message in messages) or measure(messages, **how)
    )
    said = "this message has 5,004 tokens; 1,000 fit, 6 of them are the system prompt"
    assert refusals(chat.say(book)) == [MessageRefused(Draft(book), said)]
    assert measured == ["Be brief.", "x"]


def test_a_full_chat_refuses_the_next_message_and_says_what_can_be_done() -> None:
    chat = Chat()
    chat.say()
    chat.say()
    events = chat.say()
    said = "this message has 304 tokens, the chat before it 808; 1,000 fit"
    assert refusals(events) == [MessageRefused(Draft(LONG), said, OFFERS)]
    assert len(chat.session.conversation) == 4
    assert chat.say("Short.")[-1] is not None
    assert chat.asked()[-1] == "Short."


def test_only_what_helps_is_offered() -> None:
    chat = Chat()
    chat.say()
    (refused,) = refusals(chat.say(" ".join(["word"] * 700)))
    assert refused.offers == OFFERS[:1]  # the one turn there is stays


def test_a_text_that_waited_is_refused_in_its_turn() -> None:
    chat = Chat(automatic=False)
    chat.session.send(LONG)
    chat.session.send(" ".join(["word"] * 600))
    chat.backend.finish()
    assert len(refusals(chat.session.drain())) == 1
    assert (chat.session.queued, chat.session.busy) == ([], False)


def test_regenerate_and_continue_are_refused_too_where_the_context_became_smaller() -> None:
    chat = Chat()
    chat.say()
    chat.say()
    chat.backend.context_length = 500
    chat.session.open_model("small.gguf")
    chat.session.drain()
    for again in (chat.session.regenerate, chat.session.continue_answer):
        again()
        (notice,) = notices(chat.events())
        assert "500 fit" in notice.message
        assert notice.offers == OFFERS
    assert len(chat.backend.requests) == 2


def test_an_answer_that_fills_the_context_says_so() -> None:
    chat = Chat(" ".join(["on"] * 2000), info={"model_context_length": 8192})
    (notice,) = notices(chat.say())
    assert notice.message == "the context is full, 1,000 of 1,000 tokens; -c 8192 opens the model with more"
    assert notice.offers == OFFERS[:1]
    assert len(chat.backend.requests) == 1


# Leaving out


def test_the_oldest_turns_are_left_out_and_stay_on_screen_and_on_disk(store: TranscriptStore) -> None:
    chat = Chat(policy="drop-oldest", store=store)
    chat.session.set_system_prompt("Be brief.")
    for _ in range(3):
        events = chat.say()
    assert chat.asked() == ["Be brief.", LONG, REPLY, LONG]
    path = chat.session.conversation.path()
    assert len(path) == 7
    assert chat.cut == Cut(path[1].id, path[3].id, 2, 404)
    assert notices(events)[0].message == "the model no longer sees 2 messages, 404 tokens"
    chat.session.close()
    loaded = store.open(store.list()[0].id)
    loaded.transcript.close()
    assert loaded.warnings == []
    assert loaded.conversation.cut == chat.cut
    assert len(loaded.conversation.path()) == 7


def test_a_quarter_is_freed_so_that_not_every_turn_leaves_something_out() -> None:
    chat = Chat("Yes.", policy="drop-oldest")
    text = " ".join(["word"] * 46)
    cuts = set()
    for _ in range(40):
        chat.say(text)
        cuts.add(chat.session.conversation.cut)
    # A turn takes 55 tokens: about five go at a time.
    assert 4 <= len(cuts - {None}) <= 6
    assert chat.cut.messages == 2 * (chat.cut.tokens // 55)


def test_a_later_cut_goes_on_where_the_first_one_ends() -> None:
    chat = Chat(policy="drop-oldest")
    for _ in range(4):
        chat.say()
    path = chat.session.conversation.path()
    assert chat.cut == Cut(path[0].id, path[4].id, 4, 808)


def test_turns_at_the_beginning_can_be_kept() -> None:
    chat = Chat(policy="drop-oldest", settings={"keep": 1})
    chat.say("Remember: my name is Ada.")
    for _ in range(3):
        chat.say()
    assert chat.asked() == ["Remember: my name is Ada.", REPLY, LONG]


def test_an_answer_that_fills_the_context_goes_on_without_the_oldest_turns() -> None:
    chat = Chat("Yes.", " ".join(["on"] * 900), "and on.", policy="drop-oldest")
    chat.say()
    chat.say("Tell a story.")
    assert [request.continue_last for request in chat.backend.requests] == [False, False, True]
    assert chat.asked()[0] == "Tell a story."
    assert chat.cut.messages == 2
    assert chat.session.conversation.path()[-1].reason == "eog"


def test_what_goes_on_keeps_to_the_limit_of_the_answer() -> None:
    chat = Chat("Yes.", *[" ".join(["on"] * 900)] * 2, policy="drop-oldest", settings={"max_tokens": 800})
    chat.say()
    chat.say("Tell a story.")
    first, second = chat.backend.requests[-2:]
    written = chat.session.conversation.path()[-1].ids
    assert (first.max_tokens, second.continue_last) == (800, True)
    assert len(written) == 800


def test_another_branch_has_its_own_cuts() -> None:
    chat = Chat(policy="drop-oldest")
    for _ in range(3):
        chat.say()
    first = chat.session.conversation.path()[0]
    chat.session.resend(first.id, "Something else")
    chat.events()
    assert chat.session.conversation.cut is None
    assert chat.asked() == ["Something else"]
    chat.session.select_sibling(chat.session.conversation.path()[0].id, -1)
    assert chat.cut.messages == 2


def test_leaving_out_and_taking_it_back_by_hand(store: TranscriptStore) -> None:
    chat = Chat("Yes.", store=store)
    with pytest.raises(SessionError, match="no older turns"):
        chat.session.drop_oldest()
    for text in ("a", "b", "c"):
        chat.say(text)
    chat.session.drop_oldest()
    chat.session.drop_oldest()
    assert chat.cut.messages == 4
    chat.say("d")
    assert chat.asked() == ["c", "Yes.", "d"]
    chat.session.show_all()
    assert chat.session.conversation.cut is None
    with pytest.raises(SessionError, match="sees the whole chat"):
        chat.session.show_all()
    chat.say("e")
    assert len(chat.asked()) == 9
    chat.session.close()
    loaded = store.open(store.list()[0].id)
    loaded.transcript.close()
    assert loaded.conversation.cuts == {}


def test_a_copy_of_a_chat_takes_its_cuts_along(store: TranscriptStore) -> None:
    chat = Chat("Yes.", store=store)
    for text in ("a", "b", "c"):
        chat.say(text)
    chat.session.drop_oldest()
    chat.session.pin(True)  # what is said of the chat as a whole is on disk at once
    other = Chat("Yes.", store=store)
    assert chat.session.transcript_path is not None
    other.session.open_chat(chat.session.transcript_path.stem)
    other.say("d")
    assert other.asked() == ["b", "Yes.", "c", "Yes.", "d"]
    other.session.close()
    copied = store.open(store.list()[0].id)
    copied.transcript.close()
    assert copied.conversation.cut == chat.cut


@pytest.mark.parametrize(
    "record",
    [
        '{"type":"cut","begin":"?","end":"b","messages":1,"tokens":1,"summary":""}',
        '{"type":"cut","begin":"b","end":"a","messages":1,"tokens":1,"summary":""}',
        '{"type":"cut","begin":"a","end":"a","messages":1,"tokens":1,"summary":""}',
        '{"type":"cut","begin":"a","end":"b","messages":1,"tokens":1,"summary":5}',
        '{"type":"cut","begin":"a"}',
    ],
)
def test_a_cut_that_cannot_be_is_skipped(store: TranscriptStore, record: str) -> None:
    store.folder.mkdir(parents=True)
    messages = (
        '{"type":"message","id":"a","parent":null,"role":"user","content":"x"}',
        '{"type":"message","id":"b","parent":"a","role":"user","content":"y"}',
    )
    (store.folder / "chat.jsonl").write_text("\n".join([*messages, record, ""]))
    loaded = store.open("chat")
    loaded.transcript.close()
    assert loaded.conversation.cuts == {}
    assert "1 damaged record" in loaded.warnings[0]


# Shifting


def test_the_context_is_shifted_while_an_answer_is_written(store: TranscriptStore) -> None:
    chat = Chat("Yes.", " ".join(["on"] * 800), policy="shift", store=store)
    chat.say()
    events = chat.say("Tell a story.")
    assert len(chat.backend.requests) == 2
    assert chat.cut.messages == 2
    assert "the model no longer sees 2 messages" in notices(events)[0].message
    assert len(chat.session.conversation.path()[-1].ids) == 800
    chat.say("And then?")
    assert chat.asked()[0] == "Tell a story."
    chat.session.close()
    loaded = store.open(store.list()[0].id)
    loaded.transcript.close()
    assert loaded.conversation.cut == chat.cut


def test_a_context_that_cannot_be_shifted_stops_and_says_so() -> None:
    chat = Chat("Yes.", " ".join(["on"] * 800), policy="shift", shifts=False)
    chat.say()
    events = chat.say("Tell a story.")
    assert [notice.message.partition(":")[0] for notice in notices(events)] == [
        "the context is full and cannot be shifted",
        "the context is full, 1,000 of 1,000 tokens; -c 8192 opens the model with more",
    ]
    assert chat.session.conversation.cut is None


# Summarizing


def summarized(*, store: TranscriptStore | None = None, summary: Any = "They spoke of words.") -> Chat:
    """A chat that has just asked for a summary, for a third message that did not fit."""
    chat = Chat(REPLY, REPLY, summary, "Go on.", policy="summarize", automatic=False, store=store)
    for _ in range(2):
        chat.session.send(LONG)
        chat.backend.finish()
        chat.session.drain()
    chat.session.send(LONG)
    return chat


def test_the_model_condenses_the_oldest_turns(store: TranscriptStore) -> None:
    chat = summarized(store=store)
    request = chat.backend.requests[-1]
    assert [message.content for message in request.messages] == [LONG, REPLY, ASK_FOR_SUMMARY]
    assert (request.max_tokens, request.think, request.free) == (125, False, True)
    assert chat.session.busy
    chat.backend.step(2)
    assert Condensing(2, 0, 0, 0.0, 2) in chat.session.drain()
    assert len(chat.session.conversation) == 4
    chat.backend.finish()
    events = chat.session.drain()
    assert Condensed() in events
    assert chat.asked() == [f"{SUMMARY_HEADING}\nThey spoke of words.", LONG, REPLY, LONG]
    assert chat.backend.requests[-1].messages[0].role == "system"
    assert chat.cut.summary == "They spoke of words."
    chat.backend.finish()
    chat.session.close()
    loaded = store.open(store.list()[0].id)
    loaded.transcript.close()
    assert loaded.conversation.cut == chat.cut


def test_a_summary_joins_the_system_prompt_and_can_be_edited() -> None:
    chat = summarized()
    chat.backend.finish()
    chat.session.drain()
    chat.backend.finish()
    chat.session.drain()
    chat.session.set_system_prompt("Be brief.")
    chat.session.set_summary("They spoke of nothing.")
    chat.session.regenerate()
    assert chat.asked()[0] == f"Be brief.\n\n{SUMMARY_HEADING}\nThey spoke of nothing."


@pytest.mark.parametrize(
    ("summary", "reason", "said"),
    [
        ("They spoke.", "cancelled", "the summary was stopped: nothing has changed"),
        ("  ", "eog", "the model wrote no summary: nothing has changed"),
        (RuntimeError("no memory"), "eog", "there is no summary, and nothing has changed: no memory"),
    ],
)
def test_a_failed_summary_changes_nothing(summary: Any, reason: str, said: str) -> None:
    chat = summarized(summary=summary)
    chat.backend.step()
    chat.backend.finish(reason)
    events = chat.session.drain()
    assert refusals(events) == [MessageRefused(Draft(LONG), said)]
    assert Condensed() in events
    assert (chat.session.busy, chat.session.conversation.cut, len(chat.session.conversation)) == (False, None, 4)
    assert len(chat.backend.requests) == 3


def test_stopping_stops_the_summary() -> None:
    chat = summarized()
    chat.backend.start()
    chat.session.stop()
    assert len(refusals(chat.session.drain())) == 1


def test_another_chat_forgets_the_summary() -> None:
    chat = summarized()
    chat.session.new_chat()
    chat.session.drain()
    assert not chat.session.busy
    chat.session.send("Hi")
    assert chat.asked() == ["Hi"]
    assert chat.session.conversation.cut is None


def test_summarizing_by_hand() -> None:
    chat = Chat("One.", "Two.", "A summary.", "Three.")
    chat.say("a")
    with pytest.raises(SessionError, match="no older turns"):
        chat.session.summarize()
    with pytest.raises(SessionError, match="nothing that a summary stands for"):
        chat.session.set_summary("x")
    chat.say("b")
    chat.session.summarize()
    chat.events()
    chat.say("c")
    assert chat.asked() == [f"{SUMMARY_HEADING}\nA summary.", "b", "Two.", "c"]
    assert chat.cut.messages == 2


def test_a_cut_is_in_force_only_where_both_its_ends_are_seen() -> None:
    conversation = Conversation()
    a = conversation.new_message("user", "a", None)
    b = conversation.new_message("user", "b", a.id)
    conversation.cuts[b.id] = cut = Cut(a.id, b.id, 1, 1)
    assert conversation.cut == cut
    conversation.cuts[b.id] = replace(cut, begin="gone")
    assert conversation.cut is None
