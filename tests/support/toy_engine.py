"""A toy engine in place of the real one: it behaves as the real one's documentation says, and as a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tinyllm_chat.chat.cache_types import bytes_per_token, cached_shapes
from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_engine.chat_template import TemplateChoice
from tinyllm_engine.choices import Alternative, Choice
from tinyllm_engine.errors import (
    CancelledError,
    EngineError,
    OtherStateError,
    TemplateError,
    UnsupportedModelError,
)
from tinyllm_engine.generation import Finished, PrefillProgress, Stats, Token, common_prefix
from tinyllm_engine.kv_cache import LayerShape
from tinyllm_engine.sampling import SamplingParams, SharedSampling
from tinyllm_engine.windows import Windows

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
    """<|im_start|>role\\ncontent<|im_end|>\\n, with the recorded ids of a message in place of its content."""

    def __init__(self, tokenizer: ToyTokenizer) -> None:
        self.tokenizer = tokenizer
        self.notes: tuple[str, ...] = ()
        self.marks: Any = None
        self.splitter: Any = None  # of the next prompt
        self.seen: list[dict[str, Any]] = []
        self.think: bool | None = None

    def prompt(
        self, messages: list[dict[str, Any]], continue_final_message: bool = False, think: bool | None = None
    ) -> Any:
        self.seen, self.think = messages, think
        if messages[0]["content"] == "raise":
            raise TemplateError("m.gguf: the chat template says: no")
        segments = []
        for index, message in enumerate(messages):
            unfinished = continue_final_message and index == len(messages) - 1
            segments.append(self.segment(None, [START, *f"{message['role']}\n".encode()]))
            segments.append(self.segment(index, message.get("ids") or self.tokenizer.encode(message["content"])))
            if not unfinished:
                segments.append(self.segment(None, [END, 10]))
        if not continue_final_message:
            segments.append(self.segment(None, [START, *b"assistant\n"]))
        return SimpleNamespace(segments=segments, notes=self.notes, splitter=self.splitter)

    def segment(self, index: int | None, ids: Sequence[int]) -> Any:
        return SimpleNamespace(message_index=index, ids=tuple(ids))


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
        self.template_notes: tuple[str, ...] = ()
        self.wanted_template: str | None = None
        self.adapters: tuple[Any, ...] = ()
        self.config = SimpleNamespace(architecture="llama", context_length=self.context_length)
        self.weights = SimpleNamespace(cached=[LayerShape(2, 8, 8)] * 2)

    def choose_template(self, wanted: str = "") -> Any:
        self.wanted_template = wanted
        return TemplateChoice(None if wanted == "none" else self.chat_template, self.template_notes)


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

    def remove(self, begin: int, end: int) -> None:
        if self.runner.unshiftable:
            raise UnsupportedModelError("m.gguf: the keys of a toy cannot be moved")
        del self.tokens[begin:end]

    def kept_by_truncating(self, length: int) -> int:
        return length

    @property
    def held_rows(self) -> list[tuple[int, int]]:
        return [(self.position - 16, self.position)]

    def forward(self, ids: list[int], cancel: Cancel) -> None:
        self.runner.toy.forward(self, ids, cancel)

    def fork(self, length: int) -> ToySequence:
        fork = ToySequence(self.runner)
        fork.tokens = self.tokens[:length]
        return fork


class ToyBranches:
    """One sequence for each prompt that does not go on from another."""

    def __init__(self, runner: Any) -> None:
        self.current = runner.sequence()
        self.kept = [self.current]

    def select(self, ids: list[int], shifted: bool = False) -> ToySequence:
        best = max(self.kept, key=lambda sequence: common_prefix(sequence.tokens, ids))
        shared = common_prefix(best.tokens, ids)
        if shared < best.position:
            self.kept.append(best := best.fork(min(shared, len(ids) - 1)))
        self.current = best
        return best

    def continued(self, ids: list[int]) -> ToySequence | None:
        best = max(self.kept, key=lambda sequence: common_prefix(sequence.tokens, ids))
        if not best.tokens or best.tokens != ids[: best.position]:
            return None
        self.current = best
        return best

    def recall(self, path: Path, model: str, ids: list[int]) -> ToySequence | None:
        """A toy's saved sequence is the model's name and the ids as text."""
        name, *saved = path.read_text().split()
        if name != model:
            raise OtherStateError(f"{path}: model: expected {model!r}, found {name!r}")
        sequence = ToySequence(self.current.runner)
        sequence.tokens = [int(id) for id in saved]
        if common_prefix(sequence.tokens, ids) <= max(common_prefix(each.tokens, ids) for each in self.kept):
            return None
        self.kept.append(sequence)
        return sequence


def save_toy(sequence: ToySequence, write: Callable[[bytes], object], model: str) -> None:
    write(" ".join([model, *map(str, sequence.tokens)]).encode())


class ToyCache:
    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.windows = Windows()

    @property
    def bytes_in_use(self) -> int:
        return int(self.runner.sequence().position * self.runner.kv_bytes_per_token)


class Cancel(threading.Event):
    pass


class Toy:
    """An engine whose answers and mishaps are set from outside."""

    def __init__(self) -> None:
        self.answer: list[int] = list(b"Hello")
        self.error: Exception | None = None  # raised by generate
        self.open_error: Exception | None = None
        self.read_ahead: bool | None = None
        self.model_changes: dict[str, Any] = {}
        self.unshiftable = False
        self.gate: threading.Semaphore | None = None  # one pass for each token
        self.opening_gate: threading.Event | None = None
        self.reading_gate: tuple[threading.Event, threading.Event] | None = None  # `forward` was called, it may end
        self.forwarded: list[list[int]] = []
        self.after_token: Callable[[int], None] = lambda number: None
        self.prompts: list[list[int]] = []
        self.shown: frozenset[int] = frozenset()
        self.params: list[SamplingParams] = []
        self.runners: list[Any] = []
        self.foreign: set[Path] = set()  # files that it did not write

    def api(self) -> EngineApi:
        return EngineApi(
            Model=SimpleNamespace(open=self.open_model),
            Runner=self.runner,
            Branches=ToyBranches,
            save_sequence=save_toy,
            saved_bytes=lambda sequence: 1_000_000 * sequence.position,
            is_saved=lambda path: path not in self.foreign,
            SamplingParams=SamplingParams,
            SharedSampling=SharedSampling,
            Cancel=Cancel,
            Grammar=lambda text, tokenizer: f"grammar {text}",
            generate=self.generate,
            look_back=self.look_back,
            PrefillProgress=PrefillProgress,
            Token=Token,
            Finished=Finished,
            EngineError=EngineError,
            OtherStateError=OtherStateError,
        )

    def open_model(
        self, path: str, progress: Callable[[str, int, int], None] | None, adapters: Sequence[Any]
    ) -> ToyModel:
        self.read_ahead = progress is not None
        self.adapters = tuple(adapters)
        if progress is not None:
            progress("reading weights", 1, 2)
        if self.opening_gate is not None:
            self.opening_gate.wait(20)
        if progress is not None:
            progress("reading weights", 2, 2)
        if self.open_error is not None:
            raise self.open_error
        return ToyModel(path, **self.model_changes)

    def runner(
        self, model: ToyModel, *, context_length: int, k_type: str, v_type: str, threads: int | None, progress: Any
    ) -> Any:
        progress("compiling kernels", 1, 1)
        runner = SimpleNamespace(
            model=model,
            context_length=context_length,
            threads=threads or 2,
            kv_bytes_per_token=bytes_per_token(cached_shapes(model), k_type, v_type),
            closed=False,
            unshiftable=self.unshiftable,
            toy=self,
        )
        runner.close = lambda: setattr(runner, "closed", True)
        runner.state_bytes = 0
        runner.cache = ToyCache(runner)
        sequence = ToySequence(runner)
        runner.sequence = lambda: sequence
        self.runners.append(runner)
        return runner

    def forward(self, sequence: ToySequence, ids: list[int], cancel: Cancel) -> None:
        if self.reading_gate is not None:
            self.reading_gate[0].set()
            while not self.reading_gate[1].wait(timeout=0.01) and not cancel.is_set():
                pass
        if cancel.is_set():
            raise CancelledError("cancelled")
        if self.error is not None:
            raise self.error
        sequence.tokens += ids
        self.forwarded.append(list(ids))

    def look_back(self, sequence: ToySequence, ids: list[int], start: int, top_logprobs: int, cancel: Cancel) -> Any:
        self.prompts.append(list(ids))
        sequence.tokens[:] = ids[:-1]
        for id in ids[start:]:
            if self.error is not None:
                raise self.error
            yield Token(id, "", -1.0, self.choice(sequence, id))

    def choice(self, sequence: ToySequence, id: int) -> Choice:
        """The token or, half as likely, its successor."""
        texts = [
            sequence.runner.model.tokenizer.piece(other).decode("utf-8", "surrogateescape") for other in (id, id + 1)
        ]
        return Choice(texts[0], 1, 0.5, (Alternative(id, texts[0], -1.0), Alternative(id + 1, texts[1], -1.7)))

    def generate(
        self,
        sequence: ToySequence,
        ids: list[int],
        params: SharedSampling | SamplingParams,
        stop: Sequence[str],
        cancel: Cancel,
        max_tokens: int | None,
        show: Collection[int] = (),
        grammar: Any = None,
        make_room: Callable[[], bool] | None = None,
        top_logprobs: int = 0,
    ) -> Iterator[Any]:
        if isinstance(params, SamplingParams):  # the warm-up
            sequence.tokens[:] = ids
            return
        self.prompts.append(list(ids))
        self.shown = frozenset(show)
        self.stops, self.grammar = tuple(stop), grammar
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
                if len(sequence.tokens) == sequence.runner.context_length and not (make_room and make_room()):
                    generated -= 1
                    reason = "context_full"
                    break
                sequence.tokens.append(self.answer[generated - 2])
            stream += sequence.runner.model.tokenizer.piece(id)
            try:
                text, stream = stream.decode(), b""
            except UnicodeDecodeError:
                text = ""
            yield Token(id, text, -1.0, self.choice(sequence, id) if top_logprobs else None)
            self.after_token(generated)
        stats = Stats(len(ids), prefix, generated, 0.5, 0.25, 0.125, params.params.seed or 0)
        yield Finished(reason, stats, stream.decode("utf-8", "replace"))  # type: ignore[arg-type]
