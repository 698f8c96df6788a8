"""Answers from start to end, and what is told of the cache meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.backend_events import SAMPLING, ask, events_until, finished, ids, last_state, opened, text, user
from support.toy_engine import END, PAIR, START, Toy
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ModelLoading,
    Notice,
    ReadingPrompt,
    TextDelta,
)
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_engine.errors import ContextFullError, TemplateError
from tinyllm_engine.windows import Windows


def test_an_answer_from_start_to_end(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    events = ask(backend, user("hi"))
    started = events[0]
    assert isinstance(started, AnswerStarted)
    assert (started.prompt_tokens, started.reused_tokens) == (len(toy.prompts[0]), 0)
    assert toy.params[0].seed == started.seed
    reading = [event for event in events if isinstance(event, ReadingPrompt)]
    assert (reading[-1].done, reading[-1].total) == (started.prompt_tokens, started.prompt_tokens)
    assert text(events) == "Hello"
    assert ids(events) == list(b"Hello")
    stats = finished(events).stats
    assert finished(events).reason == "eog"
    assert (stats.generated_tokens, stats.prefill_seconds, stats.decode_seconds) == (5, 0.5, 0.25)
    assert stats.decode_tokens_per_second == 16.0
    assert stats.seed == started.seed


def test_the_prompt_is_what_the_template_makes_of_the_messages(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    ask(backend, PromptMessage("s", "system", "be brief"), user("hi"))
    expected = [START, *b"system\nbe brief", END, 10, START, *b"user\nhi", END, 10, START, *b"assistant\n"]
    assert toy.prompts == [expected]


def test_a_fixed_seed_is_used_and_a_free_one_differs(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    ask(backend, sampling={**SAMPLING, "seed": 5})
    ask(backend)
    ask(backend)
    assert toy.params[0].seed == 5
    assert toy.params[1].seed != toy.params[2].seed


def test_fast_tokens_share_events(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.answer = list(b"x") * 2000
    opened(backend, file)
    events = ask(backend)
    assert text(events) == "x" * 2000
    assert sum(isinstance(event, TextDelta) for event in events) < 500


def test_the_first_token_does_not_wait(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.gate = threading.Semaphore(1)
    opened(backend, file)
    backend.answer("a1", [user("hi")], sampling=SAMPLING)
    assert text(events_until(backend, TextDelta)) == "H"


def test_a_character_of_several_tokens_comes_whole(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.answer = list("é🙂".encode())
    opened(backend, file)
    events = ask(backend)
    assert text(events) == "é🙂"
    assert ids(events) == toy.answer


def test_what_the_engine_held_back_comes_at_the_end(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.answer = [*b"a", *"é".encode()[:1]]
    opened(backend, file)
    assert text(ask(backend)) == "a\ufffd"


def test_cancelling_stops_and_keeps_the_text(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.gate = threading.Semaphore(3)
    opened(backend, file)
    backend.answer("a1", [user("hi")], sampling=SAMPLING)
    events = events_until(backend, TextDelta)
    backend.cancel()
    events += events_until(backend, AnswerFinished)
    assert finished(events).reason == "cancelled"
    assert text(events) in ("H", "He", "Hel")
    assert bytes(ids(events)).decode() == text(events)


def test_an_answer_cancelled_before_it_starts_never_runs(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.opening_gate = threading.Event()
    backend.open(str(file))
    events_until(backend, ModelLoading)
    backend.answer("a1", [user("hi")], sampling=SAMPLING)
    backend.cancel()
    toy.opening_gate.set()
    events = events_until(backend, AnswerFinished)
    assert finished(events).reason == "cancelled"
    assert toy.prompts == []


def test_cancelling_nothing_does_nothing(backend: LocalBackend, file: Path) -> None:
    backend.cancel()
    opened(backend, file)
    ask(backend)
    backend.cancel()
    assert finished(ask(backend)).reason == "eog"


def test_sampling_changes_reach_the_running_answer_and_are_marked(toy: Toy, backend: LocalBackend, file: Path) -> None:
    def turn(number: int) -> None:
        if number == 2:
            backend.set_sampling(temperature=1.5, seed=9)

    toy.after_token = turn
    opened(backend, file)
    events = ask(backend)
    deltas = [event for event in events if isinstance(event, TextDelta)]
    first, second = [delta for delta in deltas if delta.sampling is not None]
    assert first.sampling is not None
    assert second.sampling is not None
    assert (first.sampling["temperature"], second.sampling["temperature"]) == (0.8, 1.5)
    assert first.sampling["seed"] == second.sampling["seed"] == finished(events).stats.seed
    before = [id for delta in deltas[: deltas.index(second)] for id in delta.ids]
    assert bytes(before) == b"Hel"  # the toy draws a token before it looks


def test_the_token_limit_is_passed_on(backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    events = ask(backend, max_tokens=2)
    assert (text(events), finished(events).reason) == ("He", "length")


@pytest.mark.parametrize("error", [ContextFullError("the context of 8 tokens is full"), TemplateError("bad template")])
def test_an_error_of_the_engine_fails_the_answer_only(
    toy: Toy, backend: LocalBackend, file: Path, error: Exception
) -> None:
    opened(backend, file)
    toy.error = error
    assert ask(backend)[-1] == AnswerFailed("a1", str(error))
    toy.error = None
    assert finished(ask(backend)).reason == "eog"


def test_a_template_that_raises_is_a_line(backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    assert ask(backend, user("raise"))[-1] == AnswerFailed("a1", "m.gguf: the chat template says: no")


def test_an_unexpected_error_is_logged_and_told(
    toy: Toy, backend: LocalBackend, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(backend, file)
    toy.error = KeyError("surprise")
    failed = ask(backend)[-1]
    assert isinstance(failed, AnswerFailed)
    assert "unexpected error" in failed.message
    assert any(record.exc_info for record in caplog.records)


def test_without_a_model_there_is_no_answer(backend: LocalBackend) -> None:
    assert ask(backend) == [AnswerFailed("a1", "no model is open")]


def test_an_invalid_sampling_value_fails_the_answer(backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    failed = ask(backend, sampling={**SAMPLING, "temperature": -1.0})[-1]
    assert isinstance(failed, AnswerFailed)
    assert "temperature" in failed.message


# The cache


def test_the_cache_is_told_by_message(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    system = PromptMessage("s", "system", "be brief")
    first = ask(backend, system, user("hi"))
    state = last_state(first)
    assert [(part.message_id, part.role, part.reused) for part in state.segments] == [
        ("s", "system", False),
        ("u1", "user", False),
        ("a1", "assistant", False),
    ]
    counts = [part.tokens for part in state.segments]
    assert counts[0] == len([START, *b"system\nbe brief", END, 10, START, *b"user\n"])
    assert sum(counts) == state.used == len(toy.prompts[0]) + 4  # the last token is drawn, not evaluated
    assert state.bytes_now == state.used * 128
    assert (state.total, state.bytes_full, state.held) == (4096, 4096 * 128, None)


def test_what_windows_hold_is_told(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    toy.runners[-1].cache.windows = Windows((16,))
    state = last_state(ask(backend, user("hi there")))
    assert state.used > 16
    assert state.held == ((state.used - 16, state.used),)


def test_the_next_turn_reuses_the_cache(toy: Toy, backend: LocalBackend, file: Path) -> None:
    info = opened(backend, file)
    ask(backend, user("hi"))
    answer = PromptMessage("a1", "assistant", "Hello", tuple(b"Hello"), info.fingerprint)
    backend.answer("a2", [user("hi"), answer, user("more", "u2")], sampling=SAMPLING)
    events = events_until(backend, AnswerFinished)
    started = events[0]
    assert isinstance(started, AnswerStarted)
    assert started.reused_tokens == len(toy.prompts[0]) + 4
    parts = [(part.message_id, part.reused) for part in last_state(events).segments]
    assert parts == [("u1", True), ("a1", True), ("a1", False), ("u2", False), ("a2", False)]


def test_continuing_writes_on_behind_the_recorded_ids(toy: Toy, backend: LocalBackend, file: Path) -> None:
    info = opened(backend, file)
    answer = PromptMessage("a1", "assistant", "hel", (PAIR, *b"l"), info.fingerprint)
    events = ask(backend, user("hi"), answer, continue_last=True)
    assert toy.prompts == [[START, *b"user\nhi", END, 10, START, *b"assistant\n", PAIR, *b"l"]]
    assert text(events) == "Hello"
    assert [part.message_id for part in last_state(events).segments] == ["u1", "a1"]


def test_what_the_template_changed_is_told(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    toy.runners[0].model.chat_template.notes = ("the template takes no system message",)
    assert ask(backend)[0] == Notice("the template takes no system message", "information")
