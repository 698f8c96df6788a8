"""The scripted backend keeps the promises that the tests of the screen build on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_chat.chat.backend import Backend, PromptMessage
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    CacheState,
    Event,
    ModelFailed,
    ModelLoading,
    ModelReady,
    ReadingPrompt,
    TextDelta,
)
from tinyllm_chat.chat.scripted import SEED, ScriptedBackend, split_tokens

QUESTION = PromptMessage("q", "user", "one two")


def ask(backend: ScriptedBackend, **options: object) -> None:
    backend.answer("a", [QUESTION], sampling={"temperature": 0.8, "seed": -1}, **options)  # type: ignore[arg-type]


def ready(*answers: str | list[str] | Exception, automatic: bool = False) -> ScriptedBackend:
    backend = ScriptedBackend(answers, automatic=automatic)
    backend.open("m.gguf")
    backend.finish_opening()
    backend.drain()
    return backend


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_it_is_a_backend() -> None:
    backend: Backend = ScriptedBackend()
    assert backend.drain() == []


@given(st.text())
def test_tokens_are_the_whole_text(script: str) -> None:
    assert "".join(split_tokens(script)) == script


def test_automatic_tells_everything_at_the_next_drain() -> None:
    backend = ScriptedBackend(["Hi there."])
    backend.open("m.gguf")
    assert [type(event) for event in backend.drain()] == [ModelLoading, ModelReady]
    ask(backend)
    events = backend.drain()
    assert isinstance(events[0], AnswerStarted)
    assert events[0].seed == SEED
    assert text(events) == "Hi there."
    assert isinstance(events[-1], AnswerFinished)
    assert events[-1].reason == "eog"


def test_by_hand_nothing_happens_by_itself() -> None:
    backend = ScriptedBackend(["one two three"], automatic=False)
    backend.open("m.gguf")
    assert backend.drain() == []
    assert backend.count_tokens("a b") is None
    backend.finish_opening()
    assert isinstance(backend.drain()[-1], ModelReady)
    assert backend.count_tokens("a b") == 2
    ask(backend)
    assert backend.drain() == []
    backend.reading(10, 20)
    assert [type(event) for event in backend.drain()] == [AnswerStarted, CacheState, ReadingPrompt]
    backend.step()
    assert text(backend.drain()) == "one"
    backend.step(2)
    events = backend.drain()
    assert text(events) == " two three"
    assert isinstance(events[-1], AnswerFinished)
    assert events[-1].stats.generated_tokens == 3


def test_answers_come_in_turn_and_start_again() -> None:
    backend = ready("A", "B", automatic=True)
    said = []
    for _ in range(3):
        ask(backend)
        said.append(text(backend.drain()))
    assert said == ["A", "B", "A"]


def test_cancelling_keeps_what_was_written() -> None:
    backend = ready("one two three")
    ask(backend)
    backend.step()
    backend.cancel()
    events = backend.drain()
    assert text(events) == "one"
    assert isinstance(events[-1], AnswerFinished)
    assert (events[-1].reason, events[-1].stats.generated_tokens) == ("cancelled", 1)
    backend.cancel()
    assert backend.drain() == []


def test_cancelling_before_the_first_token() -> None:
    backend = ready("one")
    ask(backend)
    backend.cancel()
    assert [type(event) for event in backend.drain()] == [AnswerStarted, CacheState, AnswerFinished]


def test_sampling_shows_where_it_took_effect() -> None:
    backend = ready("one two three")
    ask(backend)
    backend.step(2)
    backend.set_sampling(temperature=1.5)
    backend.step()
    deltas = [event for event in backend.drain() if isinstance(event, TextDelta)]
    assert [delta.sampling and delta.sampling["temperature"] for delta in deltas] == [0.8, None, 1.5]


def test_failures_are_told() -> None:
    backend = ScriptedBackend([RuntimeError("no memory")], model_failure="m.gguf: not a model")
    backend.open("m.gguf")
    assert backend.drain() == [ModelFailed("m.gguf: not a model")]
    backend.model_failure = None
    backend.open("m.gguf")
    backend.drain()
    ask(backend)
    assert backend.drain()[-1] == AnswerFailed("a", "no memory")


def test_the_token_limit_ends_an_answer() -> None:
    backend = ready("one two three", automatic=True)
    ask(backend, max_tokens=2)
    events = backend.drain()
    assert text(events) == "one two"
    assert isinstance(events[-1], AnswerFinished)
    assert events[-1].reason == "length"


def test_the_cache_belongs_to_the_messages() -> None:
    backend = ready("one two")
    ask(backend)
    backend.step()
    state = [event for event in backend.drain() if isinstance(event, CacheState)][-1]
    assert [(segment.message_id, segment.tokens) for segment in state.segments] == [("q", 6), ("a", 1)]
    assert state.used == 7


def test_one_answer_at_a_time() -> None:
    backend = ready("one")
    ask(backend)
    with pytest.raises(RuntimeError, match="already"):
        ask(backend)
