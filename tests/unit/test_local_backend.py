"""The worker thread over an engine: a toy one that behaves as the real one's documentation says."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.toy_engine import END, PAIR, START, Toy, ToyModel, ToyTemplate, ToyTokenizer
from tinyllm_chat.chat.backend import Backend, PromptMessage
from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    CacheState,
    ContextShifted,
    Event,
    ModelFailed,
    ModelLoading,
    ModelReady,
    Notice,
    ReadingPrompt,
    TextDelta,
)
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA
from tinyllm_engine.chat_template.splitter import Tags, TagSplitter
from tinyllm_engine.errors import ContextFullError, GGUFError, TemplateError

SAMPLING = {name: SCHEMA[name].default for name in SAMPLING_NAMES}


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "toy.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    return path


@pytest.fixture
def backend(toy: Toy) -> Iterator[LocalBackend]:
    backend = LocalBackend(load=toy.api, free=lambda: 1 << 30)
    yield backend
    if toy.gate is not None:
        toy.gate.release(1000)
    backend.close()


def events_until(backend: LocalBackend, *kinds: type[Any]) -> list[Event]:
    """Everything up to the first event of one of the kinds."""
    events: list[Event] = []
    end = time.monotonic() + 20
    while not any(isinstance(event, kinds) for event in events):
        assert time.monotonic() < end, f"nothing of {kinds} among {events}"
        events += backend.drain()
        time.sleep(0.001)
    return events


def opened(backend: LocalBackend, file: Path) -> Any:
    backend.open(str(file))
    (ready,) = [event for event in events_until(backend, ModelReady, ModelFailed) if isinstance(event, ModelReady)]
    return ready.info


def ask(backend: LocalBackend, *messages: PromptMessage, sampling: Any = None, **options: Any) -> list[Event]:
    backend.answer("a1", messages or [user("hi")], sampling=sampling or SAMPLING, **options)
    return events_until(backend, AnswerFinished, AnswerFailed)


def user(content: str, id: str = "u1") -> PromptMessage:
    return PromptMessage(id, "user", content)


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def ids(events: list[Event]) -> list[int]:
    return [id for event in events if isinstance(event, TextDelta) for id in event.ids]


def finished(events: list[Event]) -> AnswerFinished:
    last = events[-1]
    assert isinstance(last, AnswerFinished), last
    return last


def last_state(events: list[Event]) -> CacheState:
    return [event for event in events if isinstance(event, CacheState)][-1]


# Opening


def test_it_is_a_backend(backend: LocalBackend) -> None:
    protocol: Backend = backend
    assert protocol.drain() == []
    assert protocol.count_tokens("x") is None


def test_opening_reports_its_stages_and_the_model(backend: LocalBackend, file: Path) -> None:
    backend.open(str(file))
    events = events_until(backend, ModelReady)
    stages = [event.stage for event in events if isinstance(event, ModelLoading)]
    assert list(dict.fromkeys(stages)) == [
        "starting the engine",
        "opening",
        "reading weights",
        "compiling kernels",
        "warming up",
    ]
    ready = events[-1]
    assert isinstance(ready, ModelReady)
    info = ready.info
    assert (info.name, info.path, info.file_type, info.file_bytes) == ("toy", str(file), "Q4_1", 104)
    assert (info.context_length, info.model_context_length, info.cache_bytes_per_token) == (4096, 4096, 128)
    assert info.has_chat_template
    assert info.notes == ("the vocabulary is a toy",)
    assert backend.count_tokens("four") == 4


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GGUFError("x.gguf: magic: expected GGUF, found 'text'"), "x.gguf: magic: expected GGUF, found 'text'"),
        (MemoryError(), "not enough memory"),
        (GGUFError("two\nlines \x1b[31m"), "two lines [31m"),
        (PermissionError(13, "Permission denied", "x.gguf"), "x.gguf: Permission denied"),
    ],
)
def test_a_model_that_cannot_be_opened_says_why_in_one_line(
    toy: Toy, backend: LocalBackend, file: Path, error: Exception, message: str
) -> None:
    toy.open_error = error
    backend.open(str(file))
    failed = events_until(backend, ModelFailed, ModelReady)[-1]
    assert isinstance(failed, ModelFailed)
    assert message in failed.message
    assert failed.message.isprintable()
    toy.open_error = None
    assert opened(backend, file).name == "toy"


def test_what_nobody_foresaw_goes_to_the_log(
    toy: Toy, backend: LocalBackend, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    toy.open_error = ZeroDivisionError("1/0")
    backend.open(str(file))
    failed = events_until(backend, ModelFailed, ModelReady)[-1]
    assert isinstance(failed, ModelFailed)
    assert "unexpected error" in failed.message
    assert "ZeroDivisionError" in failed.message
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("name", ["nothing.gguf", ".", "\x00.gguf"])
def test_what_is_no_file_is_a_line(backend: LocalBackend, tmp_path: Path, name: str) -> None:
    backend.open(str(tmp_path / name))
    failed = events_until(backend, ModelFailed, ModelReady)[-1]
    assert isinstance(failed, ModelFailed)
    assert failed.message.isprintable()


def test_the_engine_that_does_not_start_is_a_line(file: Path) -> None:
    def load() -> EngineApi:
        raise ImportError("numba is broken")

    backend = LocalBackend(load=load)
    backend.open(str(file))
    failed = events_until(backend, ModelFailed)[-1]
    assert isinstance(failed, ModelFailed)
    assert "numba is broken" in failed.message
    backend.close()


def test_another_model_takes_the_place_of_the_first(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    opened(backend, file)
    first, second = toy.runners
    assert (first.closed, second.closed) == (True, False)
    backend.close()
    assert second.closed


def test_a_model_that_is_no_longer_wanted_is_not_reported(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.opening_gate = threading.Event()
    backend.open(str(file))
    events_until(backend, ModelLoading)
    other = file.with_name("other.gguf")
    other.write_bytes(b"GGUF")
    backend.open(str(other))
    toy.opening_gate.set()
    events = events_until(backend, ModelReady, ModelFailed)
    (ready,) = [event for event in events if isinstance(event, ModelReady)]
    assert ready.info.path == str(other)
    assert len(toy.runners) == 1


def test_recommended_sampling_is_taken_by_our_names(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.model_changes = {
        "metadata": {
            "general.sampling.temp": 0.699999988079071,
            "general.sampling.top_k": 20,
            "general.sampling.sequence": "top_k;temp",
            "general.sampling.mirostat": 7,
            "general.sampling.xtc_probability": 0.5,
            "general.sampling.top_p": 7.0,
            "general.sampling.min_p": "x\x1b",
        }
    }
    info = opened(backend, file)
    assert info.sampling == {
        "temperature": 0.7,
        "top_k": 20,
        "samplers": ("top_k;temp",),
        "xtc_probability": 0.5,
    }
    assert sum("general.sampling" in note for note in info.notes) == 3
    assert all(note.isprintable() for note in info.notes)


def test_a_model_larger_than_memory_is_said_and_not_read_ahead(toy: Toy, file: Path) -> None:
    backend = LocalBackend(load=toy.api, free=lambda: 50)
    info = opened(backend, file)
    assert any("answers will be slow" in note for note in info.notes)
    assert toy.read_ahead is False
    backend.close()


# Answers


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
    assert (state.total, state.bytes_full) == (4096, 4096 * 128)


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


# Reasoning


def thinking(toy: Toy, open: bool = False) -> None:
    template = toy.runners[0].model.chat_template
    template.marks = SimpleNamespace(shown=frozenset({END}))
    template.splitter = TagSplitter(Tags("<think>", "</think>"), anywhere=False, open=open)


def deltas(events: list[Event], reasoning: bool) -> tuple[str, bytes]:
    chosen = [event for event in events if isinstance(event, TextDelta) and event.reasoning is reasoning]
    return text(list(chosen)), bytes(ids(list(chosen)))


def test_reasoning_comes_apart_from_the_answer(toy: Toy, backend: LocalBackend, file: Path) -> None:
    info = opened(backend, file)
    assert not info.reasons
    thinking(toy)
    toy.answer = list(b"<think>\nHm.\n</think>\n\nYes.")
    events = ask(backend, think=True)
    assert toy.runners[0].model.chat_template.think is True
    assert toy.shown == {END}
    assert deltas(events, True) == ("Hm.", b"<think>\nHm.\n</think>"[6:])
    assert deltas(events, False)[0] == "Yes."
    assert bytes(ids(events)) == b"<think>\nHm.\n</think>\n\nYes."
    assert all(event.seconds >= 0 for event in events if isinstance(event, TextDelta))


def test_reasoning_that_the_prompt_began_and_nothing_ended(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    thinking(toy, open=True)
    toy.answer = list(b"Hm. </th")
    events = ask(backend)
    assert deltas(events, True) == ("Hm. </th", b"Hm. </th")
    assert deltas(events, False) == ("", b"")


def test_a_model_whose_template_marks_reasoning(toy: Toy, backend: LocalBackend, file: Path) -> None:
    template = ToyTemplate(ToyTokenizer())
    template.marks = SimpleNamespace(shown=frozenset())
    toy.model_changes = {"template": template}
    assert opened(backend, file).reasons


def test_the_template_that_is_wanted(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(chat_template="~/x.jinja"), load=toy.api, free=lambda: None)
    opened(backend, file)
    assert toy.runners[0].model.wanted_template == os.path.expanduser("~/x.jinja")
    backend.close()


# Completion


def test_without_a_template_the_text_goes_on(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(chat_template="none"), load=toy.api, free=lambda: None)
    info = opened(backend, file)
    assert not info.has_chat_template
    answer = PromptMessage("a0", "assistant", "hey", (PAIR, *b"y"), info.fingerprint)
    ask(backend, user("Oh "), answer, user("more", "u2"))
    assert toy.prompts == [[*b"Oh ", PAIR, *b"y", *b"\nmore"]]
    backend.close()


def test_adapters_are_opened_shown_and_make_another_model(toy: Toy, file: Path) -> None:
    adapter = file.with_name("pirate.gguf")
    adapter.write_bytes(b"adapter")
    fingerprints = set()
    for lora, lines in (((), ()), ((str(adapter),), ("pirate × 1",)), ((f"{adapter}:0.5",), ("pirate × 0.5",))):
        backend = LocalBackend(partial(ModelOptions, lora=lora), load=toy.api, free=lambda: None)
        info = opened(backend, file)
        assert info.adapters == lines
        assert toy.adapters == tuple((adapter, 0.5 if ":" in text else 1.0) for text in lora)
        fingerprints.add(info.fingerprint)
        backend.close()
    assert len(fingerprints) == 3


def test_a_file_without_a_template_says_so(toy: Toy, backend: LocalBackend, file: Path) -> None:
    class NoTemplate(ToyModel):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.chat_template = None
            self.template_notes = ("the file has no chat template",)

    toy.open_model = lambda path, progress, adapters: NoTemplate(path)  # type: ignore[method-assign]
    info = opened(backend, file)
    assert not info.has_chat_template
    assert any("no chat template" in note for note in info.notes)
    ask(backend, user("Once"))
    assert toy.prompts == [list(b"Once")]


def test_stop_texts_and_the_grammar_reach_the_engine(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(grammar="root ::= x"), load=toy.api, free=lambda: None)
    try:
        opened(backend, file)
        ask(backend, stop=["END"])
        assert (toy.stops, toy.grammar) == (("END",), "grammar root ::= x")
    finally:
        backend.close()


# When the context is full


PROMPT = 109  # tokens of these


def turns() -> list[PromptMessage]:
    """A prompt of 109 tokens, of which the first turn has 51."""
    first = [user("a" * 20, "q1"), PromptMessage("r1", "assistant", "b" * 10)]
    return [PromptMessage("s", "system", "Be brief."), *first, user("c" * 20, "q2")]


def test_the_oldest_turns_leave_the_cache_while_the_answer_is_written(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(context_length=PROMPT + 20), load=toy.api)
    try:
        opened(backend, file)
        toy.answer = list(b"x" * 40)
        events = ask(backend, *turns(), shift=0)
        (shifted,) = [event for event in events if isinstance(event, ContextShifted)]
        assert (shifted.message_id, shifted.begin, shifted.end, shifted.tokens) == ("a1", "q1", "q2", 51)
        assert text(events) == "x" * 40
        segments = last_state(events).segments
        assert [segment.message_id for segment in segments] == ["s", "q2", "a1"]
        assert sum(segment.tokens for segment in segments) == last_state(events).used == PROMPT - 51 + 39
        # The next prompt is what is left of this one, and is found in the cache.
        answer = PromptMessage("a1", "assistant", "x" * 40)
        rest = [turns()[0], turns()[3], answer, user("d", "q3")]
        backend.answer("a2", rest, sampling=SAMPLING)
        (started,) = [event for event in events_until(backend, AnswerFinished) if isinstance(event, AnswerStarted)]
        assert started.reused_tokens == PROMPT - 51 + 39
    finally:
        backend.close()


@pytest.mark.parametrize("refusing", [True, False])
def test_where_the_cache_cannot_be_shifted_the_answer_ends(toy: Toy, file: Path, refusing: bool) -> None:
    backend = LocalBackend(lambda: ModelOptions(context_length=PROMPT + 20), load=toy.api)
    try:
        opened(backend, file)
        toy.answer = list(b"x" * 40)
        toy.runners[0].unshiftable = refusing
        events = ask(backend, *(turns() if refusing else [user("a" * 100)]), shift=0)
        assert finished(events).reason == "context_full"
        said = [event.message for event in events if isinstance(event, Notice)]
        refusal = "the context is full and cannot be shifted: m.gguf: the keys of a toy cannot be moved"
        assert said == ([refusal] if refusing else [])
    finally:
        backend.close()


def test_messages_are_measured_where_a_model_is_open(backend: LocalBackend, file: Path) -> None:
    assert backend.measure([user("hi")]) is None
    opened(backend, file)
    assert backend.measure([user("hi")]) == [21]
    assert backend.measure([user("raise")]) is None


def test_what_is_free_obeys_no_grammar(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(grammar="root ::= [a-z]"), load=toy.api)
    try:
        opened(backend, file)
        ask(backend)
        assert toy.grammar is not None
        ask(backend, free=True)
        assert toy.grammar is None
    finally:
        backend.close()
