"""The worker thread over an engine: a toy one that behaves as the real one's documentation says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tinyllm_chat.chat.backend import Backend, PromptMessage
from tinyllm_chat.chat.draft import EXACT_CHARACTERS, FRESH_CHARACTERS, DraftCounter
from tinyllm_chat.chat.engine_api import EngineApi
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
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions, cache_bytes_per_token, choose_context, display_name
from tinyllm_chat.chat.prompt import PromptBuilder
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA
from tinyllm_engine.errors import ContextFullError, EngineError, GGUFError, TemplateError
from tinyllm_engine.generation import Finished, PrefillProgress, Stats, Token
from tinyllm_engine.sampling import SamplingParams, SharedSampling

SAMPLING = {name: SCHEMA[name].default for name in SAMPLING_NAMES}
START, END = 300, 301  # <|im_start|>, <|im_end|>
PAIR = 302  # another spelling of "he": h and e as two tokens is what the tokenizer makes of it


class ToyTokenizer:
    """A token for each byte; PAIR is only ever generated."""

    vocab_size = 310
    notes = ("the vocabulary is a toy",)

    def encode(self, text: str, parse_special: bool = False, add_bos: bool | None = None) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.piece, ids)).decode("utf-8", "replace")

    def piece(self, id: int) -> bytes:
        return b"he" if id == PAIR else bytes([id]) if id < 256 else b""

    def is_marker(self, id: int) -> bool:
        return id in (START, END)


class ToyTemplate:
    """<|im_start|>role\\ncontent<|im_end|>\\n"""

    def __init__(self, tokenizer: ToyTokenizer, trim: bool = False) -> None:
        self.tokenizer = tokenizer
        self.trim = trim
        self.rendered: list[list[dict[str, str]]] = []

    def render(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> list[int]:
        self.rendered.append(messages)
        if messages[0]["content"] == "raise":
            raise TemplateError("m.gguf: tokenizer.chat_template: no such role")
        ids: list[int] = []
        for message in messages:
            content = message["content"].strip() if self.trim else message["content"]
            ids += [START, *self.tokenizer.encode(f"{message['role']}\n{content}"), END, 10]
        if add_generation_prompt:
            ids += [START, *self.tokenizer.encode("assistant\n")]
        return ids


@dataclass
class ToyModel:
    path: str
    metadata: dict[str, Any] = field(default_factory=dict)
    name: str = "Toy"
    file_type: str = "Q4_1"
    parameters: int = 1000
    context_length: int = 4096
    template: Any = None

    def __post_init__(self) -> None:
        self.tokenizer = ToyTokenizer()
        self.chat_template = self.template or ToyTemplate(self.tokenizer)
        self.config = SimpleNamespace(
            architecture="llama", context_length=self.context_length, head_count_kv=(2, 2), key_length=8, value_length=8
        )


class ToySequence:
    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.tokens: list[int] = []

    @property
    def position(self) -> int:
        return len(self.tokens)

    def truncate(self, length: int) -> int:
        del self.tokens[length:]
        return length


class Cancel(threading.Event):
    pass


class Toy:
    """An engine whose answers and mishaps are set from outside."""

    def __init__(self) -> None:
        self.answer: list[int] = list(b"Hello")
        self.error: Exception | None = None  # raised by generate
        self.open_error: Exception | None = None
        self.model_changes: dict[str, Any] = {}
        self.gate: threading.Semaphore | None = None  # one pass for each token
        self.opening_gate: threading.Event | None = None
        self.after_token: Callable[[int], None] = lambda number: None
        self.prompts: list[list[int]] = []
        self.params: list[SamplingParams] = []
        self.runners: list[Any] = []
        self.templates: list[ToyTemplate] = []

    def api(self) -> EngineApi:
        return EngineApi(
            Model=SimpleNamespace(open=self.open_model),
            Runner=self.runner,
            SamplingParams=SamplingParams,
            SharedSampling=SharedSampling,
            Cancel=Cancel,
            generate=self.generate,
            PrefillProgress=PrefillProgress,
            Token=Token,
            Finished=Finished,
            EngineError=EngineError,
            TemplateError=TemplateError,
        )

    def open_model(self, path: str, progress: Callable[[str, int, int], None]) -> ToyModel:
        progress("reading weights", 1, 2)
        if self.opening_gate is not None:
            self.opening_gate.wait(20)
            progress("reading weights", 2, 2)
        if self.open_error is not None:
            raise self.open_error
        return ToyModel(path, **self.model_changes)

    def runner(self, model: ToyModel, *, context_length: int, kv_type: str, threads: int | None, progress: Any) -> Any:
        progress("compiling kernels", 1, 1)
        runner = SimpleNamespace(
            model=model,
            context_length=context_length,
            threads=threads or 2,
            kv_bytes_per_token=cache_bytes_per_token(model.config, kv_type),
            closed=False,
        )
        runner.close = lambda: setattr(runner, "closed", True)
        sequence = ToySequence(runner)
        runner.sequence = lambda: sequence
        self.runners.append(runner)
        return runner

    def generate(
        self,
        sequence: ToySequence,
        ids: list[int],
        params: SharedSampling | SamplingParams,
        stop: Sequence[str],
        cancel: Cancel,
        max_tokens: int | None,
    ) -> Iterator[Any]:
        if isinstance(params, SamplingParams):  # the warm-up
            sequence.tokens[:] = ids
            return
        self.prompts.append(list(ids))
        self.params.append(params.params)
        if self.error is not None:
            raise self.error
        prefix = 0
        while prefix < min(len(sequence.tokens), len(ids) - 1) and sequence.tokens[prefix] == ids[prefix]:
            prefix += 1
        sequence.tokens[:] = ids[:prefix]
        yield PrefillProgress(prefix, len(ids), prefix)
        sequence.tokens[:] = ids
        yield PrefillProgress(len(ids), len(ids), prefix)
        stream = b""
        generated = 0
        reason = "eog"
        for id in self.answer:
            if self.gate is not None:
                while not self.gate.acquire(timeout=0.01) and not cancel.is_set():
                    pass
            if cancel.is_set():
                reason = "cancelled"
                break
            if generated == max_tokens:
                reason = "length"
                break
            generated += 1
            if generated > 1:
                sequence.tokens.append(self.answer[generated - 2])
            stream += sequence.runner.model.tokenizer.piece(id)
            try:
                text, stream = stream.decode(), b""
            except UnicodeDecodeError:
                text = ""
            yield Token(id, text, -1.0)
            self.after_token(generated)
        stats = Stats(len(ids), prefix, generated, 0.5, 0.25, 0.125, params.params.seed or 0)
        yield Finished(reason, stats, stream.decode("utf-8", "replace"))  # type: ignore[arg-type]


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
    assert stages == ["starting the engine", "opening", "reading weights", "compiling kernels", "warming up"]
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
            "general.sampling.top_p": 7.0,
            "general.sampling.min_p": "x\x1b",
        }
    }
    info = opened(backend, file)
    assert info.sampling == {"temperature": 0.7, "top_k": 20}
    assert sum("general.sampling" in note for note in info.notes) == 2
    assert all(note.isprintable() for note in info.notes)


@pytest.mark.parametrize(
    ("file_name", "general_name", "shown"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Smollm2 135M 8k Mix1", "SmolLM2-135M-Instruct"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "x", "qwen2.5-0.5b-instruct"),
        ("a-BF16-00001-of-00003.gguf", "x", "a"),
        ("b-UD-IQ2_XXS.gguf", "x", "b"),
        ("model.gguf", "Tiny Chat", "Tiny Chat"),
        ("ggml-model-f16.gguf", "\x1b[31mA\nB", "[31mA B"),
        ("model.gguf", "x" * 500, "x" * 80),
        ("model.gguf", "\x00", "model.gguf"),
        ("\n.gguf", "x", "\n.gguf".strip()),
    ],
)
def test_the_name_is_one_printable_line(file_name: str, general_name: str, shown: str) -> None:
    assert display_name(Path(file_name), general_name) == shown


CONFIG = SimpleNamespace(context_length=8192, head_count_kv=(3,) * 30, key_length=64, value_length=64)


@pytest.mark.parametrize(
    ("asked", "memory", "length", "notes"),
    [
        (0, None, 8192, 0),
        (0, 8 << 30, 8192, 0),
        (0, 2 * 8192 * 23040, 8192, 0),
        (0, 2 * 8192 * 23040 - 1, 7936, 1),
        (0, 100 << 20, 2048, 1),
        (0, 0, 512, 1),
        (100, 8 << 30, 100, 0),
        (100_000, 8 << 30, 100_000, 1),
        (8192, 1 << 20, 8192, 1),
        (100_000, 1 << 20, 100_000, 2),
    ],
)
def test_the_context_fits_half_of_the_free_memory(asked: int, memory: int | None, length: int, notes: int) -> None:
    assert cache_bytes_per_token(CONFIG, "f16") == 23040
    found = choose_context(CONFIG, ModelOptions(context_length=asked), memory)
    assert (found[0], len(found[1])) == (length, notes)


def test_a_short_model_is_not_called_capped() -> None:
    short = SimpleNamespace(context_length=128, head_count_kv=(1,), key_length=8, value_length=8)
    assert choose_context(short, ModelOptions(), 0) == (128, [])


def test_a_model_larger_than_memory_is_said(toy: Toy, file: Path) -> None:
    backend = LocalBackend(load=toy.api, free=lambda: 50)
    info = opened(backend, file)
    assert any("answers will be slow" in note for note in info.notes)
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
    assert ask(backend, user("raise"))[-1] == AnswerFailed("a1", "m.gguf: tokenizer.chat_template: no such role")


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
    assert counts[0] == len([START, *b"system\nbe brief", END, 10])
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


def test_recorded_ids_take_the_place_of_the_text(toy: Toy, backend: LocalBackend, file: Path) -> None:
    info = opened(backend, file)
    answer = PromptMessage("a0", "assistant", "hello", (PAIR, *b"llo"), info.fingerprint)
    ask(backend, user("hi"), answer, user("more", "u2"))
    first = [START, *b"user\nhi", END, 10, START, *b"assistant\n"]
    rest = [END, 10, START, *b"user\nmore", END, 10, START, *b"assistant\n"]
    assert toy.prompts == [[*first, PAIR, *b"llo", *rest]]


def test_continuing_writes_on_behind_the_recorded_ids(toy: Toy, backend: LocalBackend, file: Path) -> None:
    info = opened(backend, file)
    answer = PromptMessage("a1", "assistant", "hel", (PAIR, *b"l"), info.fingerprint)
    events = ask(backend, user("hi"), answer, continue_last=True)
    assert toy.prompts == [[START, *b"user\nhi", END, 10, START, *b"assistant\n", PAIR, *b"l"]]
    assert text(events) == "Hello"
    assert [part.message_id for part in last_state(events).segments] == ["u1", "a1"]


def test_continuing_an_answer_of_another_model_uses_its_text(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    answer = PromptMessage("a1", "assistant", "hel", (PAIR, *b"l"), "another")
    ask(backend, user("hi"), answer, continue_last=True)
    assert toy.prompts == [[START, *b"user\nhi", END, 10, START, *b"assistant\n", *b"hel"]]


# Prompts


def builder(template: Any = None, **options: Any) -> PromptBuilder:
    tokenizer = ToyTokenizer()
    return PromptBuilder(tokenizer, template or ToyTemplate(tokenizer, **options), "print", TemplateError)


def answered(content: str, ids: Sequence[int], fingerprint: str = "print") -> PromptMessage:
    return PromptMessage("a", "assistant", content, tuple(ids), fingerprint)


def plain_ids(*messages: PromptMessage) -> list[int]:
    contents = [{"role": message.role, "content": message.content} for message in messages]
    return ToyTemplate(ToyTokenizer()).render(contents)


@pytest.mark.parametrize(
    "answer",
    [
        answered("hello", [PAIR, *b"llo"], "another"),  # another model's
        answered("hello", [PAIR, *b"l"]),  # not what the text says
        answered("hello", [PAIR, *b"llo", 5000]),  # not in the vocabulary
        answered("hello", [-1, *b"ello"]),
        PromptMessage("a", "assistant", "hello"),
    ],
)
def test_ids_that_do_not_fit_are_not_used(answer: PromptMessage) -> None:
    messages = [user("hi"), answer, user("more", "u2")]
    assert builder().build(messages).ids == plain_ids(*messages)


def test_a_template_that_trims_keeps_the_ids() -> None:
    prompt = builder(trim=True).build([user("hi"), answered("hello\n", [PAIR, *b"llo\n"]), user("more", "u2")])
    before = plain_ids(user("hi"))
    assert prompt.ids[: len(before)] == before
    assert prompt.ids[len(before) :] == [
        PAIR,
        *b"llo\n",
        END,
        10,
        START,
        *b"user\nmore",
        END,
        10,
        START,
        *b"assistant\n",
    ]


def test_text_after_the_end_of_the_turn_is_not_taken_for_the_answer() -> None:
    """The line break behind <|im_end|> would complete the answer's text."""
    prompt = builder(trim=True).build([user("hi"), answered("he\n", [PAIR, 10]), user("more", "u2")])
    assert prompt.ids.count(END) == 3


def test_a_template_that_forgets_is_left_alone() -> None:
    class Forgetful(ToyTemplate):
        """Shows only the last message."""

        def render(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> list[int]:
            return super().render(messages[-1:], add_generation_prompt)

    messages = [user("hi"), answered("hello", [PAIR, *b"llo"]), user("more", "u2")]
    prompt = builder(Forgetful(ToyTokenizer())).build(messages)
    assert prompt.ids == plain_ids(messages[-1])
    assert sum(segment.tokens for segment in prompt.segments) == len(prompt.ids)


def test_a_long_chat_renders_only_what_is_new() -> None:
    template = ToyTemplate(ToyTokenizer())
    prompts = builder(template)
    messages = [user("0")]
    for number in range(20):
        before = len(template.rendered)
        prompt = prompts.build(messages)
        assert len(template.rendered) - before <= 2
        assert sum(segment.tokens for segment in prompt.segments) == len(prompt.ids)
        answer = PromptMessage(f"a{number}", "assistant", "hey", (PAIR, *b"y"), "print")
        assert prompts.build([*messages, answer], continue_last=True).ids == [*prompt.ids, PAIR, *b"y"]
        messages += [answer, user(str(number), f"u{number}")]
    assert prompts.build(messages).ids.count(PAIR) == 20
    assert builder().build(messages) == prompts.build(messages)  # a chat that was just loaded


def test_an_empty_answer_in_the_path_is_rendered_as_it_is() -> None:
    messages = [user("hi"), PromptMessage("a", "assistant", ""), user("more", "u2")]
    assert builder().build(messages).ids == plain_ids(*messages)


# Completion


def test_without_a_template_the_text_goes_on(toy: Toy, file: Path) -> None:
    backend = LocalBackend(ModelOptions(use_template=False), load=toy.api, free=lambda: None)
    info = opened(backend, file)
    assert not info.has_chat_template
    answer = PromptMessage("a0", "assistant", "hey", (PAIR, *b"y"), info.fingerprint)
    ask(backend, user("Oh "), answer, user("more", "u2"))
    assert toy.prompts == [[*b"Oh ", PAIR, *b"y", *b"\nmore"]]
    backend.close()


def test_a_file_without_a_template_says_so(toy: Toy, backend: LocalBackend, file: Path) -> None:
    class NoTemplate(ToyModel):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.chat_template = None

    toy.open_model = lambda path, progress: NoTemplate(path)  # type: ignore[method-assign]
    info = opened(backend, file)
    assert not info.has_chat_template
    assert any("no chat template" in note for note in info.notes)
    ask(backend, user("Once"))
    assert toy.prompts == [list(b"Once")]


# Drafts


def test_a_short_draft_is_counted_whole() -> None:
    seen: list[str] = []
    counter = DraftCounter(lambda text: seen.append(text) or len(text))  # type: ignore[func-returns-value]
    assert counter.count("a\nb") == 3
    assert counter.count("a\nb") == 3
    assert seen == ["a\nb"]


def test_of_a_long_draft_only_what_changed_is_counted_again() -> None:
    seen: list[str] = []
    counter = DraftCounter(lambda text: seen.append(text) or len(text))  # type: ignore[func-returns-value]
    lines = [f"line {number}\n" for number in range(1000)]
    draft = "".join(lines)
    assert counter.count(draft) == len(draft)
    seen.clear()
    assert counter.count(draft + "x") == len(draft) + 1
    assert len(seen) == 1


@pytest.mark.parametrize("unit", ["x", "x\n", "\n", " \n x", "xyz" * 1000 + "\n"])
def test_a_huge_draft_is_counted_in_bounded_steps(unit: str) -> None:
    work = 0

    def count(text: str) -> int:
        nonlocal work
        work += len(text)
        return len(text)

    counter = DraftCounter(count)
    draft = unit * (10 * FRESH_CHARACTERS // len(unit))
    for _ in range(100):
        before = work
        result = counter.count(draft)
        assert work - before <= FRESH_CHARACTERS + EXACT_CHARACTERS
        if result is not None:
            break
    assert result == len(draft)
