"""What the next prompt begins with is evaluated after an answer, is never in the way, and changes no answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import recurrent_model, tiny_model, windowed_model
from support.backend_events import SAMPLING, ask, events_until, finished, ids, opened, text, user
from support.toy_engine import END, START, Toy, ToyTemplate, ToyTokenizer
from tinyllm_chat.chat.answering import Answer
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.engine_api import EngineApi, load_engine
from tinyllm_chat.chat.events import AnswerFailed, AnswerFinished, AnswerStarted, Event
from tinyllm_chat.chat.kept_cache import KeptCaches
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions, open_model
from tinyllm_chat.chat.profiling import Profiling
from tinyllm_chat.chat.prompt import PromptBuilder
from tinyllm_chat.chat.reading_ahead import MOST, Ahead
from tinyllm_engine.branches import Branches
from tinyllm_engine.errors import CancelledError, EngineError
from tinyllm_engine.generation import Finished, Token, generate
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.sampling import SamplingParams

GREEDY = SAMPLING | {"temperature": 0.0}
BETWEEN = [END, 10, START, *b"user\n"]  # what stands between an answer and the next message
BEHIND = [END, 10, START, *b"assistant\n"]


class Worker:
    """What the worker thread does, one thing after the other."""

    def __init__(self, engine: EngineApi, file: Path, **options: Any) -> None:
        self.engine = engine
        self.opened = open_model(engine, file, ModelOptions(**options), lambda *_: None, lambda: 1 << 30)
        model = self.opened.info.fingerprint
        self.prompts = PromptBuilder(self.opened.model.tokenizer, self.opened.template, model)
        self.kept = KeptCaches(engine, self.opened.branches, model, 10**9)

    def ask(self, *messages: PromptMessage, path: Path | None = None) -> tuple[PromptMessage, AnswerStarted]:
        """The answer as the next prompt has it, and how it began."""
        events: list[Event] = []
        answer = Answer(f"a{len(messages)}", messages, GREEDY, 12, False, cache_file=path)
        answer.run(self.engine, self.opened, self.prompts, self.kept, events.append, Profiling())
        self.used = self.opened.sequence.position
        said = PromptMessage(answer.message_id, "assistant", text(events), tuple(ids(events)), self.fingerprint)
        return said, next(event for event in events if isinstance(event, AnswerStarted))

    def read_ahead(self, *messages: PromptMessage, path: Path | None = None) -> int:
        return Ahead(messages, cache_file=path).run(self.engine, self.opened, self.prompts, self.kept)

    @property
    def fingerprint(self) -> str:
        return self.opened.info.fingerprint


@pytest.fixture
def worker(toy: Toy, file: Path) -> Worker:
    return Worker(toy.api(), file)


@pytest.fixture(scope="module", params=["attention", "recurrent"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "toy.gguf"
    return tiny_model.write(path) if request.param == "attention" else recurrent_model.write(path)


@pytest.fixture
def real(model: Path) -> Iterator[Worker]:
    worker = Worker(load_engine(), model)
    yield worker
    worker.opened.close()


@pytest.fixture
def plain(model: Path) -> Iterator[Worker]:
    """The same without reading ahead."""
    worker = Worker(load_engine(), model)
    yield worker
    worker.opened.close()


def answered(backend: LocalBackend, question: str = "hi") -> list[PromptMessage]:
    """A question and its answer."""
    events = ask(backend, user(question))
    return [user(question), PromptMessage("a1", "assistant", text(events), tuple(ids(events)))]


def wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_it_is_evaluated_after_the_answer_and_nothing_is_told(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    so_far = answered(backend)
    backend.read_ahead(so_far)
    wait(lambda: toy.forwarded)
    assert toy.forwarded == [[ord("o"), *BETWEEN]]
    assert backend.drain() == []
    events = ask(backend, *so_far, user("more"))
    started = events[0]
    assert isinstance(started, AnswerStarted)
    assert toy.prompts[1][started.reused_tokens :] == [*b"more", *BEHIND]


@pytest.mark.parametrize("other", ["answer", "cancel", "leave", "look back", "read ahead", "open", "close"])
def test_whatever_else_is_asked_for_ends_it(
    toy: Toy, backend: LocalBackend, file: Path, tmp_path: Path, other: str
) -> None:
    opened(backend, file)
    so_far = answered(backend)
    toy.reading_gate = called, _ = threading.Event(), threading.Event()
    backend.read_ahead(so_far)
    assert called.wait(60)
    called.clear()
    if other == "answer":
        backend.answer("a2", [*so_far, user("more", "u2")], sampling=SAMPLING)
    elif other == "cancel":
        backend.cancel()
    elif other == "leave":
        backend.leave(tmp_path / "chat.kv")
    elif other == "look back":
        backend.look_back(so_far)
    elif other == "read ahead":
        backend.read_ahead(so_far)
        assert called.wait(60)
        backend.cancel()
    elif other == "open":
        backend.open(str(file))
    else:
        backend.close()
        assert backend.drain() == []
        return
    if other != "answer":
        backend.answer("a2", [*so_far, user("more", "u2")], sampling=SAMPLING)
    assert finished(events_until(backend, AnswerFinished)).reason == "eog"
    assert toy.forwarded == []


def test_what_goes_wrong_is_for_the_next_answer_to_say(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    so_far = answered(backend)
    toy.reading_gate = called, go_on = threading.Event(), threading.Event()
    toy.error = EngineError("the file is gone")
    backend.read_ahead(so_far)
    assert called.wait(60)
    go_on.set()
    called.clear()
    backend.read_ahead(so_far)  # the worker goes on
    assert called.wait(60)
    assert backend.drain() == []
    toy.error = None
    assert text(ask(backend, *so_far, user("more"))) == "Hello"


def test_without_a_model_nothing_happens(backend: LocalBackend) -> None:
    backend.read_ahead([user("hi")])
    assert ask(backend) == [AnswerFailed("a1", "no model is open")]


def test_only_what_goes_on_from_the_cache(toy: Toy, worker: Worker) -> None:
    said, _ = worker.ask(user("hi"))
    assert worker.read_ahead(user("ho"), said) == 0  # another chat
    assert worker.read_ahead(user("hi"), PromptMessage("a", "assistant", "Help")) == 0  # rewritten
    assert worker.read_ahead(user("hi"), said) == 1 + len(BETWEEN)
    assert worker.read_ahead(user("hi"), said) == 0  # it is there
    assert worker.read_ahead(user("hi")) == 0
    assert toy.forwarded == [[ord("o"), *BETWEEN]]


def test_a_chat_that_was_not_read_is_not_read_ahead(toy: Toy, worker: Worker) -> None:
    question = user("a long question " * MOST)
    said, _ = worker.ask(question)
    worker.opened.sequence.truncate(worker.used - MOST)
    assert worker.read_ahead(question, said) == 0
    assert Worker(toy.api(), Path(worker.opened.info.path)).read_ahead(question, said) == 0


def test_a_prompt_that_begins_otherwise_each_time(toy: Toy, file: Path) -> None:
    class Dated(ToyTemplate):
        def prompt(self, *args: Any, **options: Any) -> Any:
            prompt = super().prompt(*args, **options)
            self.minutes += 1
            prompt.segments.insert(0, self.segment(None, f"12:{self.minutes}".encode()))
            return prompt

        minutes = 10

    toy.model_changes["template"] = Dated(ToyTokenizer())
    worker = Worker(toy.api(), file)
    said, _ = worker.ask(user("hi"))
    assert worker.read_ahead(user("hi"), said) == 0
    assert toy.forwarded == []


def test_a_context_that_is_full_stays_as_it_is(toy: Toy, file: Path) -> None:
    toy.model_changes["context_length"] = 32
    worker = Worker(toy.api(), file)
    said, _ = worker.ask(user("hi"))
    assert worker.used < 32
    assert worker.read_ahead(user("hi"), said) == 0


def test_a_chat_that_is_opened_again_is_read_from_disk(toy: Toy, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "chat.kv"
    path.with_suffix(".jsonl").touch()
    first = Worker(toy.api(), file)
    said, _ = first.ask(user("hi"), path=path)
    first.kept.keep(path)
    again = Worker(toy.api(), file)
    assert again.read_ahead(user("hi"), said, path=path) == 1 + len(BETWEEN)
    _, started = again.ask(user("hi"), said, user("more"), path=path)
    assert started.prompt_tokens - started.reused_tokens == len(b"more") + len(BEHIND)


def test_without_a_template(toy: Toy, file: Path) -> None:
    worker = Worker(toy.api(), file, chat_template="none")
    said, _ = worker.ask(user("hi"))
    assert worker.read_ahead(user("hi"), said) == len(b"o\n")


def test_the_next_answer_reads_that_much_less_and_is_the_same(real: Worker, plain: Worker) -> None:
    said, _ = real.ask(user("hi"))
    assert plain.ask(user("hi"))[0] == said
    ahead = real.read_ahead(user("hi"), said)
    assert ahead > 1
    after, started = real.ask(user("hi"), said, user("more"))
    expected, without = plain.ask(user("hi"), said, user("more"))
    assert after == expected
    assert started.reused_tokens == without.reused_tokens + ahead


def test_another_answer_reads_one_token_and_is_the_same(real: Worker) -> None:
    question = user("why does the river bend?")
    for _ in range(3):
        said, _ = real.ask(question)
        real.read_ahead(question, said)
        again, started = real.ask(question)
        assert started.prompt_tokens - started.reused_tokens == 1
        assert again == said


def test_after_being_interrupted_the_cache_is_as_it_was(real: Worker, plain: Worker) -> None:
    said, _ = real.ask(user("hi"))
    plain.ask(user("hi"))
    ahead = Ahead([user("hi"), said])
    select = real.opened.branches.continued

    def late(prompt: list[int]) -> Any:
        ahead.cancel()
        return select(prompt)

    real.opened.branches.continued = late
    with pytest.raises(CancelledError):
        ahead.run(real.engine, real.opened, real.prompts, real.kept)
    real.opened.branches.continued = select
    assert real.opened.sequence.position == real.used
    after, started = real.ask(user("hi"), said, user("more"))
    expected, without = plain.ask(user("hi"), said, user("more"))
    assert (after, started.reused_tokens) == (expected, without.reused_tokens)


def test_the_other_branch_is_not_lost_for_it(real: Worker) -> None:
    said, _ = real.ask(user("hi"))
    real.read_ahead(user("hi"), said)
    one, _ = real.ask(user("hi"), said, user("one", "u2"))
    real.read_ahead(user("hi"), said, user("one", "u2"), one)
    two, started = real.ask(user("hi"), said, user("two", "u2"))
    assert started.prompt_tokens - started.reused_tokens == len("two") + len(BEHIND)
    real.read_ahead(user("hi"), said, user("two", "u2"), two)
    again, started = real.ask(user("hi"), said, user("one", "u2"))
    assert (again, started.prompt_tokens - started.reused_tokens) == (one, 1)


@pytest.mark.parametrize("kind", windowed_model.KINDS)
def test_layers_with_a_window_keep_the_way_back(kind: str, tmp_path: Path) -> None:
    runner = Runner(Model.open(windowed_model.write(tmp_path / "toy.gguf", kind)), context_length=1024, threads=1)
    branches = Branches(runner)
    prompt, said = [id % 100 for id in range(300)], []
    for _ in range(3):
        sequence = branches.select(prompt)
        events = list(generate(sequence, prompt, SamplingParams(temperature=0), max_tokens=200))
        said.append([event.id for event in events if isinstance(event, Token)])
        finished = events[-1]
        assert isinstance(finished, Finished)
        sequence.forward([said[-1][-1], 1, 2, 3, 4, 5])
    assert finished.stats.reused_tokens == len(prompt) - 1
    assert said[0] == said[1] == said[2]
    runner.close()
