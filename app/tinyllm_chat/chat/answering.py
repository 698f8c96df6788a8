"""One answer of the local engine: from messages to the events of a backend."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.cancellable import Cancellable
from tinyllm_chat.chat.choices import SHOWN, Alternative, TokenChoice
from tinyllm_chat.chat.context_policy import oldest_turns
from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_chat.chat.events import (
    AnswerFinished,
    AnswerStarted,
    AnswerStats,
    CacheSegment,
    CacheState,
    ContextShifted,
    Event,
    Notice,
    ReadingPrompt,
    TextDelta,
)
from tinyllm_chat.chat.kept_cache import KeptCaches
from tinyllm_chat.chat.opening import OpenModel
from tinyllm_chat.chat.profiling import Clocks, Profiling
from tinyllm_chat.chat.prompt import Prompt, PromptBuilder, Segment

DELTA_SECONDS = 1 / 60  # tokens that come faster share an event
STATE_SECONDS = 0.05  # between two reports of prompt progress or cache fill
RATE_SECONDS = 1.0  # "over the last moments"


class Answer(Cancellable):
    """An answer that was asked for. One thread runs it; `cancel` and `set_sampling` come from another."""

    def __init__(
        self,
        message_id: str,
        messages: Sequence[PromptMessage],
        sampling: dict[str, Any],
        max_tokens: int | None,
        continue_last: bool,
        think: bool | None = None,
        stop: Sequence[str] = (),
        shift: int | None = None,
        free: bool = False,
        cache_file: Path | None = None,
        inspect: bool = False,
    ) -> None:
        super().__init__()
        self.message_id = message_id
        self._messages = messages
        self._sampling = dict(sampling)
        self._max_tokens = max_tokens
        self._stop = stop
        self._continue_last = continue_last
        self._think = think
        self._shift = shift
        self._free = free
        self._cache_file = cache_file
        self._inspect = inspect
        self._shared: Any = None
        self.seed = 0  # the one in use

    def set_sampling(self, values: dict[str, Any]) -> None:
        """Holds from the next token on. The seed belongs to a whole answer: it holds from the next one on."""
        live = {name: value for name, value in values.items() if name != "seed"}
        with self._lock:
            self._sampling.update(live)
            if self._shared is not None and live:
                self._shared.update(**live)

    def run(
        self,
        engine: EngineApi,
        opened: OpenModel,
        prompts: PromptBuilder,
        kept: KeptCaches,
        emit: Callable[[Event], None],
        profiling: Profiling,
    ) -> None:
        """Generates and reports everything up to AnswerFinished. Raises EngineError."""
        started = time.perf_counter()
        if self._cancelled:
            emit(AnswerFinished(self.message_id, "cancelled"))
            return
        prompt = prompts.build(self._messages, continue_last=self._continue_last, think=self._think)
        for note in prompts.untold(prompt.notes):
            emit(Notice(note, "information"))
        with self._lock:
            asked = self._sampling.get("seed", -1)
            self._sampling["seed"] = self.seed = asked if asked >= 0 else secrets.randbits(32)
            self._shared = engine.SharedSampling(engine.SamplingParams(**self._sampling))
            self._cancel = engine.Cancel()
            if self._cancelled:
                self._cancel.set()
        if self._cache_file is not None and (said := kept.recall(self._cache_file, prompt.ids)) is not None:
            emit(Notice(said, "information"))
        sequence = opened.branches.select(prompt.ids, shifted=self._shift is not None)
        if self._cache_file is not None:
            kept.answered(self._cache_file, sequence)
        reused = sequence.kept_by_truncating(_common_prefix(sequence.tokens, prompt.ids))
        clocks = Clocks(profiling, opened.runner, self.message_id, emit)
        writer = _Writer(self, engine, opened, prompt, reused, started, emit, clocks)
        emit(AnswerStarted(self.message_id, len(prompt.ids), reused, self.seed))
        writer.cache_state()
        events = engine.generate(
            sequence,
            prompt.ids,
            self._shared,
            stop=self._stop,
            cancel=self._cancel,
            max_tokens=self._max_tokens,
            show=prompts.shown_ids,
            grammar=None if self._free else opened.grammar,
            make_room=None if self._shift is None else partial(writer.make_room, self._shift),
            top_logprobs=SHOWN if self._inspect else 0,
        )
        try:
            for event in events:
                if isinstance(event, engine.Token):
                    writer.token(event.id, event.text, seen(event) if self._inspect else None)
                elif isinstance(event, engine.PrefillProgress):
                    writer.reading(event.done, event.total)
                elif isinstance(event, engine.Finished):
                    writer.finished(event.reason, event.text, event.stats)
        except Exception:
            writer.broken_off()
            raise
        finally:
            clocks.end(time.perf_counter())

    def sampling_change(self, seen: int) -> tuple[int, dict[str, Any] | None]:
        """The version of the sampling values that the next token sees, and the values if it is not `seen`."""
        version = self._shared.version
        if version == seen:
            return seen, None
        with self._lock:
            return version, dict(self._sampling)


def seen(token: Any) -> TokenChoice:
    """What the engine says a token was chosen from."""
    choice = token.choice
    others = tuple(Alternative(other.id, other.text, other.logprob, other.kind) for other in choice.alternatives)
    return TokenChoice(choice.text, token.logprob, choice.rank, choice.entropy, others)


class _Writer:
    """Turns what the engine yields into events, not more of them than a screen can use."""

    def __init__(
        self,
        answer: Answer,
        engine: EngineApi,
        opened: OpenModel,
        prompt: Prompt,
        reused: int,
        started: float,
        emit: Callable[[Event], None],
        clocks: Clocks,
    ) -> None:
        self._clocks = clocks
        self._answer = answer
        self._engine = engine
        self._opened = opened
        self._prompt = prompt
        self._segments = _joined(prompt.segments)
        self._reused = reused
        self._emit = emit
        self._started = started  # all times: seconds of perf_counter
        self._first_token: float | None = None
        self._last_delta = 0.0
        self._last_state = 0.0
        self._generated = 0
        self._rate = _Rate()
        self._text = ""
        self._ids: list[int] = []
        self._choices: list[TokenChoice] = []  # of all ids, or none
        self._reasoning = False  # text and ids are
        self._since = 0.0  # the tokens of the last event
        self._version, self._sampling = answer.sampling_change(-1)

    def reading(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if done < total and now - self._last_state < STATE_SECONDS:
            return
        seconds = now - self._started
        speed = (done - self._reused) / seconds if seconds > 0 else 0.0
        self._emit(ReadingPrompt(self._answer.message_id, done, total, max(0.0, speed)))
        self.cache_state()

    def token(self, id: int, text: str, choice: TokenChoice | None) -> None:
        now = time.perf_counter()
        if self._first_token is None:
            self._first_token = self._since = now
        self._generated += 1
        self._rate.add(now)
        self._clocks.token(now)
        self._split(id, text, now)
        if choice is not None:
            self._choices.append(choice)
        if now - self._last_delta >= DELTA_SECONDS:
            self._flush(now)
        if now - self._last_state >= STATE_SECONDS:
            self.cache_state()
        version, sampling = self._answer.sampling_change(self._version)
        if sampling is not None:
            # The tokens so far were drawn with the old values, the next one will be with the new.
            self._flush(now)
            self._version, self._sampling = version, sampling

    def finished(self, reason: str, text: str, stats: Any) -> None:
        """`text` was held back by the engine; `stats` are its own figures, without the time that events took."""
        now = time.perf_counter()
        self._add(text, now)
        if self._prompt.splitter is not None:
            self._add_parts(self._prompt.splitter.finish(), now)
        self._flush(now)
        self._clocks.end(now)
        self.cache_state()
        first = self._first_token
        figures = AnswerStats(
            prompt_tokens=stats.prompt_tokens,
            reused_tokens=stats.reused_tokens,
            generated_tokens=stats.generated_tokens,
            prefill_seconds=stats.prefill_seconds,
            decode_seconds=stats.decode_seconds,
            first_token_seconds=first - self._started if first is not None else 0.0,
            seed=stats.seed,
        )
        self._emit(AnswerFinished(self._answer.message_id, reason, figures))

    def broken_off(self) -> None:
        """No more comes: what was written so far is kept."""
        if self._prompt.splitter is not None:
            self._add_parts(self._prompt.splitter.finish(), time.perf_counter())
        self._flush(time.perf_counter())

    def cache_state(self) -> None:
        self._last_state = time.perf_counter()
        info, runner = self._opened.info, self._opened.runner
        used = self._opened.sequence.position
        self._emit(
            CacheState(
                used,
                info.context_length,
                runner.cache.bytes_in_use,
                info.full_cache_bytes,
                tuple(_cached(self._with_answer(), used, self._reused)),
                self._reused,
                len(self._prompt.ids) - self._reused,
                tuple(self._opened.sequence.held_rows) if runner.cache.windows.sizes else None,
            )
        )

    def make_room(self, keep: int) -> bool:
        """Takes the oldest turns out of the full cache; False if that is not possible."""
        segments = self._with_answer()
        tokens = [segment.tokens for segment in segments]
        roles = [segment.role for segment in segments]
        chosen = oldest_turns(roles, tokens, self._opened.info.context_length, keep)
        if chosen is None:
            return False
        begin = sum(tokens[: chosen.start])
        end = begin + sum(tokens[chosen.start : chosen.stop])
        try:
            # Both ends stand behind the template's words for a question: what is left reads as if nothing was missing.
            self._opened.sequence.remove(begin, end)
        except self._engine.EngineError as error:
            self._emit(Notice(f"the context is full and cannot be shifted: {error}"))
            return False
        del self._segments[chosen.start : chosen.stop]
        self._reused -= max(0, min(self._reused, end) - begin)
        first, following = segments[chosen.start], segments[chosen.stop]
        self._emit(ContextShifted(self._answer.message_id, first.message_id, following.message_id, end - begin))
        return True

    def _with_answer(self) -> list[Segment]:
        """One segment for each message, the tokens that were generated included."""
        if not self._generated:
            return self._segments
        return _joined([*self._segments, Segment(self._answer.message_id, "assistant", self._generated)])

    def _split(self, id: int, text: str, now: float) -> None:
        """A token of the answer, or of the reasoning before it. Marks between the two count as reasoning."""
        splitter = self._prompt.splitter
        before = splitter is not None and splitter.reasoning
        self._add(text, now)
        self._turn(before or (splitter is not None and splitter.reasoning), now)
        self._ids.append(id)

    def _add(self, text: str, now: float) -> None:
        if self._prompt.splitter is None:
            self._text += text
        else:
            self._add_parts(self._prompt.splitter.feed(text), now)

    def _add_parts(self, parts: Sequence[Any], now: float) -> None:
        for part in parts:
            self._turn(part.kind == "reasoning", now)
            self._text += part.text

    def _turn(self, reasoning: bool, now: float) -> None:
        """What comes next is of this kind: an event holds one."""
        if reasoning != self._reasoning:
            self._flush(now)
            self._reasoning = reasoning

    def _flush(self, now: float) -> None:
        if self._ids or self._text:
            seconds = now - self._since if self._reasoning else 0.0
            self._emit(
                TextDelta(
                    self._answer.message_id,
                    self._text,
                    tuple(self._ids),
                    self._rate.per_second(),
                    self._sampling,
                    self._reasoning,
                    seconds,
                    tuple(self._choices),
                )
            )
            self._text, self._ids, self._choices, self._sampling = "", [], [], None
            self._last_delta = now
        self._since = now


class _Rate:
    """Events per second over the last moments."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def add(self, now: float) -> None:
        self._times.append(now)
        while now - self._times[0] > RATE_SECONDS and len(self._times) > 2:
            self._times.popleft()

    def per_second(self) -> float:
        seconds = self._times[-1] - self._times[0] if len(self._times) > 1 else 0.0
        return (len(self._times) - 1) / seconds if seconds > 0 else 0.0


def _cached(segments: Sequence[Segment], used: int, reused: int) -> Iterator[CacheSegment]:
    """The segments as far as they are in the cache, cut where reused tokens end."""
    position = 0
    for segment in segments:
        end = min(position + segment.tokens, used)
        for start, stop in ((position, min(end, reused)), (max(position, reused), end)):
            if stop > start:
                yield CacheSegment(segment.message_id, segment.role, stop - start, reused=stop <= reused)
        position = end


def _joined(segments: Sequence[Segment]) -> list[Segment]:
    """Runs of one message as one segment."""
    joined: list[Segment] = []
    for segment in segments:
        if joined and joined[-1].message_id == segment.message_id:
            segment = Segment(segment.message_id, segment.role, joined.pop().tokens + segment.tokens)
        joined.append(segment)
    return joined


def _common_prefix(cached: Sequence[int], ids: Sequence[int]) -> int:
    """Tokens of `ids` that need not be evaluated again; at least one always is."""
    length = 0
    for left, right in zip(cached, ids[:-1], strict=False):
        if left != right:
            break
        length += 1
    return length
