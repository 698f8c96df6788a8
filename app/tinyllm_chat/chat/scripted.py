"""A backend that says what it was told to say: deterministic, without threads, one token at a time if wanted."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.choices import END, Alternative, TokenChoice
from tinyllm_chat.chat.context_policy import oldest_turns
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    AnswerStats,
    CacheSegment,
    CacheState,
    ContextShifted,
    Event,
    ModelFailed,
    ModelInfo,
    ModelLoading,
    ModelReady,
    Notice,
    OpProfile,
    ReadingPrompt,
    TextDelta,
    TokensSeen,
)

TOKENS_PER_SECOND = 100.0  # what the script claims to reach
SEED = 7319
_TOKEN = re.compile(r"\s+\S*|\S+")
SHARES = (("matmul Q4_1", 0.61), ("attention", 0.17), ("matmul Q6_K", 0.1), ("barrier wait", 0.06), ("sampling", 0.06))


@dataclass(frozen=True, slots=True)
class Request:
    """What one call of `answer` asked for."""

    message_id: str
    messages: tuple[PromptMessage, ...]
    sampling: dict[str, Any]
    max_tokens: int | None
    continue_last: bool
    think: bool | None = None
    shift: int | None = None
    free: bool = False
    cache_file: Path | None = None
    inspect: bool = False


class Thought(str):
    """The text of a token that is reasoning."""


@dataclass(slots=True)
class _Answer:
    request: Request
    tokens: list[str]
    written: list[str] = field(default_factory=list)
    failure: str | None = None
    prompt: int = 0  # tokens of the prompt
    reused: int = 0  # of these
    gone: set[str | None] = field(default_factory=set)  # ids of messages that left the context
    new_sampling: dict[str, Any] | None = None


class ScriptedBackend:
    """Answers from a list.

    An answer is a text (its tokens are its words, each with the space before it), a list of token texts, of which some
    may be a `Thought`, or an exception, whose message becomes an AnswerFailed. After the last answer the list starts
    again.

    `shifts=False` is a model whose context cannot be shifted.

    `automatic=True` produces everything at the next `drain`. Otherwise nothing happens until the test asks for it:
    `finish_opening()`, `start()`, then `step(n)` tokens or `finish()`.
    """

    def __init__(
        self,
        answers: Sequence[str | Sequence[str] | Exception] = ("Hello there.",),
        *,
        automatic: bool = True,
        model_failure: str | None = None,
        context_length: int = 8192,
        shifts: bool = True,
        info: dict[str, Any] | None = None,
    ) -> None:
        self.answers = list(answers)
        self.automatic = automatic
        self.model_failure = model_failure
        self.context_length = context_length
        self.shifts = shifts
        self.requests: list[Request] = []
        self.opened: list[str] = []
        self.left: list[Path] = []
        self.awaited: list[tuple[PromptMessage, ...]] = []  # what the next message was said to follow
        self.closed = False
        self.profiling = False
        self._info_changes = info or {}
        self._events: list[Event] = []
        self._opening: str | None = None
        self._model: ModelInfo | None = None
        self._pending: Request | None = None
        self._answer: _Answer | None = None
        self._cached: list[tuple[str, str]] = []  # ids and texts of the messages in the cache
        self._cancelled = False

    # Backend

    def open(self, path: str) -> None:
        self.opened.append(path)
        self._opening = path
        self._model = None

    def answer(
        self,
        message_id: str,
        messages: Sequence[PromptMessage],
        *,
        sampling: dict[str, Any],
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        continue_last: bool = False,
        think: bool | None = None,
        shift: int | None = None,
        free: bool = False,
        cache_file: Path | None = None,
        inspect: bool = False,
    ) -> None:
        if self._pending is not None or self._answer is not None:
            raise RuntimeError("an answer is being written already")
        request = Request(
            message_id,
            tuple(messages),
            dict(sampling),
            max_tokens,
            continue_last,
            think,
            shift,
            free,
            cache_file,
            inspect,
        )
        self.requests.append(request)
        self._pending = request
        self._cancelled = False

    def look_back(self, messages: Sequence[PromptMessage], *, think: bool | None = None) -> None:
        texts = split_tokens(messages[-1].content)
        self._events.append(TokensSeen(messages[-1].id, 0, tuple(map(choice_of, texts))))

    def read_ahead(
        self, messages: Sequence[PromptMessage], *, think: bool | None = None, cache_file: Path | None = None
    ) -> None:
        self.awaited.append(tuple(messages))

    def set_profiling(self, on: bool) -> None:
        self.profiling = on

    def set_sampling(self, **values: Any) -> None:
        if self._answer is not None:
            current = self._answer.new_sampling or self._answer.request.sampling
            self._answer.new_sampling = {**current, **values}

    def cancel(self) -> None:
        if self._pending is not None:
            self.start()
        if self._answer is not None:
            self._end("cancelled")

    def drain(self) -> list[Event]:
        if self.automatic:
            self.finish_opening()
            self.finish()
        events, self._events = self._events, []
        return events

    def leave(self, cache_file: Path) -> None:
        self.left.append(cache_file)

    def count_tokens(self, text: str) -> int | None:
        return len(split_tokens(text)) if self._model is not None else None

    def measure(
        self, messages: Sequence[PromptMessage], *, continue_last: bool = False, think: bool | None = None
    ) -> Sequence[int] | None:
        return [_count(message) for message in messages] if self._model is not None else None

    def close(self) -> None:
        self.cancel()
        self.closed = True

    # The test's side

    def loading(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Reports a stage of opening."""
        self._events.append(ModelLoading(stage, done, total))

    def finish_opening(self) -> None:
        """Opens the model that was asked for, or fails as `model_failure` says. Nothing to open: nothing."""
        if self._opening is None:
            return
        path, self._opening = self._opening, None
        if self.model_failure is not None:
            self._events.append(ModelFailed(self.model_failure))
            return
        self._model = model_info(path, context_length=self.context_length, **self._info_changes)
        self._events.append(ModelLoading("opening", 1, 1))
        self._events.append(ModelReady(self._model, 0.1))

    def reading(self, done: int, total: int) -> None:
        """Starts the answer that was asked for and reports how much of its prompt is read."""
        self.start()
        if self._answer is not None:
            self._events.append(ReadingPrompt(self._answer.request.message_id, done, total, 1000.0))

    def start(self) -> None:
        """Starts the answer that was asked for: everything up to the first token."""
        if self._pending is None:
            return
        request, self._pending = self._pending, None
        script = self.answers[(len(self.requests) - 1) % len(self.answers)]
        failure = str(script) if isinstance(script, Exception) else None
        tokens = [] if isinstance(script, Exception) else split_tokens(script)
        self._answer = _Answer(request, tokens, failure=failure)
        prompt = sum(_count(message) for message in request.messages)
        self._answer.reused = self._common_prefix(request)
        self._answer.prompt = prompt
        self._events.append(AnswerStarted(request.message_id, prompt, self._answer.reused, self._seed()))
        self._events.append(self._cache_state())

    def step(self, count: int = 1) -> None:
        """Writes `count` more tokens, and the end if they are all written."""
        self.start()
        answer = self._answer
        if answer is None:
            return
        for _ in range(count):
            if not answer.tokens:
                break
            if self._cache_state().used >= self.context_length and not self._shift(answer):
                self._end("context_full")
                return
            token = answer.tokens.pop(0)
            answer.written.append(token)
            sampling = answer.new_sampling if answer.new_sampling is not None else None
            if len(answer.written) == 1 and sampling is None:
                sampling = dict(answer.request.sampling)
            if answer.new_sampling is not None:
                answer.request.sampling.update(answer.new_sampling)
                answer.new_sampling = None
            self._events.append(
                TextDelta(
                    answer.request.message_id,
                    str(token),
                    (token_id(token),),
                    TOKENS_PER_SECOND,
                    sampling,
                    isinstance(token, Thought),
                    1 / TOKENS_PER_SECOND,
                    (choice_of(token),) if answer.request.inspect else (),
                )
            )
            limit = answer.request.max_tokens
            if limit is not None and len(answer.written) >= limit:
                self._end("length")
                return
        self._events.append(self._cache_state())
        if not answer.tokens:
            self._end("eog")

    def _shift(self, answer: _Answer) -> bool:
        """Makes room as a real engine would."""
        segments, keep = self._segments(), answer.request.shift
        if keep is None:
            return False
        tokens = [segment.tokens for segment in segments]
        chosen = oldest_turns([segment.role for segment in segments], tokens, self.context_length, keep)
        if chosen is None:
            return False
        if not self.shifts:
            self._events.append(Notice("the context is full and cannot be shifted: the model remembers all of it"))
            return False
        begin, end = str(segments[chosen.start].message_id), str(segments[chosen.stop].message_id)
        answer.gone |= {segment.message_id for segment in segments[chosen.start : chosen.stop]}
        left_out = sum(tokens[chosen.start : chosen.stop])
        self._events.append(ContextShifted(answer.request.message_id, begin, end, left_out))
        return True

    def finish(self, reason: str = "eog") -> None:
        """Writes the rest of the answer, or ends it at once for another `reason`."""
        self.start()
        if self._answer is not None and reason != "eog":
            self._end(reason)
        while self._answer is not None:
            self.step(max(1, len(self._answer.tokens)))

    def _end(self, reason: str) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        self._cached = [(message.id, message.content) for message in answer.request.messages]
        self._cached.append((answer.request.message_id, "".join(answer.written)))
        if answer.failure is not None and reason == "eog":
            self._events.append(AnswerFailed(answer.request.message_id, answer.failure))
            return
        if self.profiling and answer.written:
            written = len(answer.written)
            self._events.append(OpProfile(answer.request.message_id, written, written / TOKENS_PER_SECOND, SHARES))
        prompt = answer.prompt
        seconds = max(0, len(answer.written) - 1) / TOKENS_PER_SECOND
        stats = AnswerStats(
            prompt, answer.reused, len(answer.written), prompt / 1000.0, seconds, prompt / 1000.0, self._seed()
        )
        self._events.append(AnswerFinished(answer.request.message_id, reason, stats))

    def _seed(self) -> int:
        asked = int(self.requests[-1].sampling.get("seed", -1))
        return asked if asked >= 0 else SEED

    def _common_prefix(self, request: Request) -> int:
        """Tokens of the messages that are in the cache already."""
        reused = 0
        for message, cached in zip(request.messages, self._cached, strict=False):
            if (message.id, message.content) != cached:
                break
            reused += _count(message)
        return reused

    def _segments(self) -> list[CacheSegment]:
        assert self._answer is not None
        request, written = self._answer.request, len(self._answer.written)
        segments, tokens = [], 0
        for message in request.messages:
            tokens += _count(message)
            segments.append(CacheSegment(message.id, message.role, _count(message), tokens <= self._answer.reused))
        segments = [segment for segment in segments if segment.message_id not in self._answer.gone]
        if written:
            segments.append(CacheSegment(request.message_id, "assistant", written))
        return segments

    def _cache_state(self) -> CacheState:
        segments = self._segments()
        used = sum(segment.tokens for segment in segments)
        per_token = self._model.cache_bytes_per_token if self._model is not None else 0
        assert self._answer is not None
        prompt, reused = sum(map(_count, self._answer.request.messages)), self._answer.reused
        full = self._model.full_cache_bytes if self._model is not None else 0
        return CacheState(used, self.context_length, used * per_token, full, tuple(segments), reused, prompt - reused)


def split_tokens(script: str | Sequence[str]) -> list[str]:
    """The token texts of a scripted answer."""
    if not isinstance(script, str):
        return list(script)
    return _TOKEN.findall(script)


def token_id(text: str) -> int:
    """A stable made-up id for a token text."""
    return sum(position * ord(character) for position, character in enumerate(text, 1)) % 49152


def choice_of(text: str) -> TokenChoice:
    """What a scripted token was chosen from: made up, the same for the same text."""
    own = (97, 83, 61, 34, 12, 3)[token_id(text) % 6]  # per cent
    others = [(" the", 0.6), ("\n", 0.2), ("<|im_end|>", 0.1), ("\udcf0\udc9f", 0.06), (" 数", 0.04)]
    shares = [(text, own / 100), *((other, share * (100 - own) / 100) for other, share in others)]
    shares.sort(key=lambda one: -one[1])
    alternatives = tuple(
        Alternative(token_id(one), one, math.log(share), END if one.startswith("<|") else "") for one, share in shares
    )
    rank = [one for one, _ in shares].index(text) + 1
    entropy = -sum(share * math.log(share) for _, share in shares)
    return TokenChoice(text, math.log(own / 100), rank, entropy, alternatives)


def _count(message: PromptMessage) -> int:
    return _tokens_in(message.content) + 4  # the template around it


@lru_cache(maxsize=256)  # asked for every message with every token
def _tokens_in(text: str) -> int:
    return len(split_tokens(text))


def model_info(path: str, *, context_length: int = 8192, **changes: Any) -> ModelInfo:
    """A plausible small model."""
    values: dict[str, Any] = {
        "name": "SmolLM2-135M-Instruct",
        "path": path,
        "file_type": "Q4_1",
        "architecture": "llama",
        "fingerprint": "scripted",
        "parameters": 134_515_008,
        "file_bytes": 98_362_432,
        "context_length": context_length,
        "model_context_length": 8192,
        "cache_bytes_per_token": 23_040,
        "lasting_bytes_per_token": 23_040,
        "full_cache_bytes": context_length * 23_040,
        "cache_type": "f16",
        "threads": 2,
    }
    return ModelInfo(**{**values, **changes})
