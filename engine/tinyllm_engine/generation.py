"""Generation as a stream of events: reads a prompt, then draws and evaluates one token after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.answer_text import AnswerText
from tinyllm_engine.cancel import Cancel
from tinyllm_engine.choices import MOST, Choice
from tinyllm_engine.decode import MANY, Drawn, draw_one
from tinyllm_engine.errors import (
    CancelledError,
    ContextFullError,
    EngineError,
    ModelError,
    NonFiniteLogitsError,
    SamplingError,
    TokenizerError,
    UnsupportedModelError,
)
from tinyllm_engine.gguf_header import shown
from tinyllm_engine.grammar import Grammar
from tinyllm_engine.sampling import SamplingParams, SharedSampling
from tinyllm_engine.sampling.native import NativeSampler
from tinyllm_engine.tensor import first_not_finite
from tinyllm_engine.top_tokens import TopTokens

# Prompt tokens between two progress events: few at first, since on a slow machine many would look like a standstill;
# more where that is quick, since a long batch unpacks each weight for more tokens.
PREFILL_PIECES = (128, 512)
QUICK = 0.2  # seconds for a piece

Reason = Literal["eog", "stop", "length", "context_full", "cancelled"]


@dataclass(frozen=True, slots=True)
class Stats:
    """What one generation took. Seconds are the engine's own: what the caller does between two events is left out."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, found in the cache
    generated_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0  # after the first token
    first_token_seconds: float = 0.0  # until the first token; 0 if there was none
    seed: int = 0  # the one used


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """How much of the prompt has been read. The first one tells what was found in the cache.

    >>> sequence = runner.sequence()
    >>> sequence.truncate(0)
    0
    >>> _ = sequence.forward(prompt[:9])
    >>> next(generate(sequence, prompt, SamplingParams()))
    PrefillProgress(done=9, total=24, reused=9)
    """

    done: int  # prompt tokens in the cache, reused ones included
    total: int  # prompt tokens
    reused: int


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the answer, as soon as it was drawn.

    >>> events = generate(runner.sequence(), prompt, SamplingParams(), grammar='root ::= "yes"')
    >>> [(event.text, event.logprob < 0) for event in events if isinstance(event, Token)]
    [('y', True), ('e', True), ('s', True)]
    """

    id: int
    text: str  # what can be shown now; empty while a character or a possible stop string is incomplete
    logprob: float  # natural log of its probability before penalties, crops and temperature
    choice: Choice | None = None  # what else could have come, where `top_logprobs` asks for it


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer, and what it took.

    >>> *_, end = generate(runner.sequence(), prompt, SamplingParams(), max_tokens=4)
    >>> end.reason, end.stats.prompt_tokens, end.stats.generated_tokens
    ('length', 24, 4)
    """

    reason: Reason
    stats: Stats
    text: str = ""  # held back so far and now known to be text: belongs behind the last token's


Event = PrefillProgress | Token | Finished


class _Runner(Protocol):
    @property
    def model(self) -> Any: ...
    @property
    def context_length(self) -> int: ...


class _Sequence(Protocol):
    @property
    def runner(self) -> _Runner: ...
    @property
    def tokens(self) -> list[int]: ...
    def truncate(self, n: int) -> int: ...
    def forward(self, ids: Sequence[int], *, cancel: Cancel | None = None) -> NDArray[np.float32]: ...


@runtime_checkable
class DrawsMany(Protocol):
    """A sequence that evaluates and draws several tokens in one call."""

    def decode(
        self,
        last: int,
        sampler: NativeSampler,
        tokens: Sequence[int],
        eog: NDArray[np.bool_],
        count: int,
        cancel: Cancel | None,
    ) -> Drawn: ...


@runtime_checkable
class MayGoBackToTurns(Protocol):
    """A sequence that says whether `truncate` can only go back to where its turns began."""

    @property
    def is_recurrent(self) -> bool: ...


def generate(
    sequence: _Sequence,
    ids: Sequence[int],
    params: SamplingParams | SharedSampling,
    stop: Sequence[str] = (),
    cancel: Cancel | None = None,
    max_tokens: int | None = None,
    show: Collection[int] = (),
    grammar: Grammar | str | None = None,
    make_room: Callable[[], bool] | None = None,
    top_logprobs: int = 0,
) -> Iterator[Event]:
    """Continues a prompt. Yields PrefillProgress*, Token*, and exactly one Finished at the end.

    `ids` is the whole prompt: its longest common prefix with what the sequence holds is kept, and at least its last id
    is evaluated. Reasons to finish:

        eog           the model ended its answer; that token is not among the events
        stop          a stop string appeared; it and what follows are not in the text, though its tokens are events
        length        max_tokens were generated
        context_full  the prompt does not fit (nothing was changed), or the next token does not
        cancelled     cancel was set

    `show`: control tokens whose text shall be seen, such as the marks around reasoning.
    `grammar`: what the answer must look like, in GBNF, or as a Grammar, which keeps from answer to answer what it finds
    out. Where nothing can follow, the answer ends with `eog`; the model can end it only where it is complete.

    `make_room`: called where the next token does not fit; if it has removed tokens from the sequence and returns True,
    the answer goes on.

    `top_logprobs`: each token tells so many of the likeliest, with their probabilities in the model's own distribution,
    before penalties, crops and temperature. The tokens drawn are the same; 0, the default, costs nothing.

    Parameters that are shared can be changed while it runs, and hold from the next token on:

    >>> shared = SharedSampling(SamplingParams(seed=7))
    >>> for event in generate(runner.sequence(), prompt, shared, max_tokens=3, top_logprobs=2):
    ...     match event:
    ...         case PrefillProgress(done, total):
    ...             percent = 100 * done // total
    ...         case Token(id, text, logprob, choice):
    ...             likeliest = choice.alternatives[0].id
    ...             _ = shared.update(temperature=0)
    ...         case Finished(reason, stats):
    ...             print(reason, stats.generated_tokens, stats.seed)
    length 3 7

    The last token of an answer is drawn but not evaluated. A model without a usable tokenizer gives tokens without
    text, and never `eog`. Raises EngineError (SamplingError for a parameter) at once for bad arguments,
    NonFiniteLogitsError on the way.
    """
    if not len(ids):
        raise EngineError("generate: expected at least one prompt id, found none")
    if max_tokens is not None and max_tokens < 0:
        raise SamplingError(f"max_tokens: expected 0 or more, found {max_tokens}")
    if isinstance(stop, str) or not all(isinstance(text, str) and text for text in stop):
        raise SamplingError(f"stop: expected a list of texts, none empty, found {stop!r}")
    if not 0 <= top_logprobs <= MOST:
        raise SamplingError(f"top_logprobs: expected 0 to {MOST}, found {top_logprobs}")
    tokenizer = tokenizer_of(sequence)
    if stop and tokenizer is None:
        raise SamplingError("stop: the model has no usable tokenizer, so its tokens have no text")
    if isinstance(grammar, str):
        if tokenizer is None:
            raise SamplingError("grammar: the model has no usable tokenizer, so its tokens have no text")
        grammar = Grammar(grammar, tokenizer)
    constraint = grammar.constraint() if grammar is not None else None
    top = TopTokens(top_logprobs, tokenizer) if top_logprobs else None
    sampler = NativeSampler(params, tokenizer, suppressed_tokens(sequence.runner.model), constraint, top)
    text = AnswerText(tokenizer, stop, show)
    text.follow(ids)
    return _Generation(sequence, list(ids), sampler, text, cancel or Cancel(), max_tokens, make_room).events()


def suppressed_tokens(model: Any) -> list[int]:
    """Tokens that the file says are never to be drawn."""
    ids = getattr(model, "metadata", {}).get("tokenizer.ggml.suppress_tokens")
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        return []
    return [id for id in ids.tolist() if 0 <= id < 1 << 31]


class _Generation:
    """One call of `generate`, its arguments checked."""

    def __init__(
        self,
        sequence: _Sequence,
        ids: list[int],
        sampler: NativeSampler,
        text: AnswerText,
        cancel: Cancel,
        max_tokens: int | None,
        make_room: Callable[[], bool] | None,
    ) -> None:
        self.sequence = sequence
        self.tokens = ids  # prompt, then also what was drawn
        self.text = text
        self.cancel = cancel
        self.max_tokens = max_tokens
        self.make_room = make_room
        self.sampler = sampler
        self.prompt_tokens = len(ids)
        self.reused = 0
        self.generated = 0
        self.prefill_seconds = self.decode_seconds = self.first_token_seconds = 0.0

    def events(self) -> Iterator[Event]:
        reason: Reason
        try:
            logits = yield from self._read_prompt()
            reason = yield from self._write(logits)
        except CancelledError:
            reason = "cancelled"
        except ContextFullError:
            reason = "context_full"
        except NonFiniteLogitsError as error:
            raise self._explained(error) from None
        yield Finished(reason, self._stats(), self.text.rest())

    def _explained(self, error: NonFiniteLogitsError) -> NonFiniteLogitsError:
        """Names the tensor that is the reason, where one is."""
        model = self.sequence.runner.model
        found = first_not_finite(getattr(model, "tensors", {}).values())
        if found is None:
            return error
        said = f"{model.path}: tensor {shown(found.name)} has weights that are no numbers"
        return NonFiniteLogitsError(f"{said}: {error}")

    def _read_prompt(self) -> Generator[Event, None, NDArray[np.float32]]:
        """Evaluates the prompt from where the cache differs; returns the logits after it."""
        ids, total = self.tokens, len(self.tokens)
        context_length = self.sequence.runner.context_length
        if total > context_length:
            raise ContextFullError(f"context: expected a prompt of at most {context_length} tokens, found {total}")
        self._stop_if_cancelled()
        self.reused = self.sequence.truncate(common_prefix(self.sequence.tokens, ids[:-1]))
        yield PrefillProgress(self.reused, total, self.reused)
        piece, start = PREFILL_PIECES[0], self.reused
        while start < total:
            end = min(start + piece, self._last_end(start, total))
            self._stop_if_cancelled()
            started = time.perf_counter()
            logits = self.sequence.forward(ids[start:end], cancel=self.cancel)
            seconds = time.perf_counter() - started
            self.prefill_seconds += seconds
            yield PrefillProgress(end, total, self.reused)
            start = end
            if seconds < QUICK:
                piece = min(2 * piece, PREFILL_PIECES[1])
        return logits

    def _last_end(self, start: int, total: int) -> int:
        """Where the pieces end. What only goes back to its turns must be able to go back to before the last token: a
        new answer to the same prompt begins with evaluating that again."""
        recurrent = isinstance(self.sequence, MayGoBackToTurns) and self.sequence.is_recurrent
        return total - 1 if recurrent and start < total - 1 else total

    def _write(self, logits: NDArray[np.float32]) -> Generator[Event, None, Reason]:
        """Draws and yields tokens, evaluating the last one before it draws the next; returns why it ended."""
        if self.max_tokens == 0:
            return "length"
        self._stop_if_cancelled()
        started = time.perf_counter()
        drawn = draw_one(self.sampler, logits, self.tokens)
        eog = self.text.eog_mask(logits.size)
        while True:
            seconds = time.perf_counter() - started
            for id, logprob, choice in zip(drawn.ids, drawn.logprobs, drawn.choices or repeat(None), strict=False):
                if eog[id]:
                    return "eog"
                self.generated += 1
                self.tokens.append(id)
                text = self.text.feed(id)
                self._add_time(seconds / len(drawn.ids))
                yield Token(id, text, logprob, choice)
                if self.text.stopped:
                    return "stop"
                if self.sampler.constraint is not None and self.sampler.constraint.is_over:
                    return "eog"
            if self.generated == self.max_tokens:
                return "length"
            self._stop_if_cancelled()
            started = time.perf_counter()
            drawn = self._draw(eog)
            if not drawn.ids:
                self._stop_if_cancelled()

    def _draw(self, eog: NDArray[np.bool_]) -> Drawn:
        try:
            return self._evaluate_and_draw(eog)
        except ContextFullError:
            if self.make_room is None or not self.make_room():
                raise
            return self._evaluate_and_draw(eog)

    def _evaluate_and_draw(self, eog: NDArray[np.bool_]) -> Drawn:
        """The next token, or the next few where nothing has to be looked at in between."""
        if not self.text.has_stops and self.sampler.alone and isinstance(self.sequence, DrawsMany):
            left = MANY if self.max_tokens is None else min(MANY, self.max_tokens - self.generated)
            return self.sequence.decode(self.tokens[-1], self.sampler, self.tokens, eog, left, self.cancel)
        logits = self.sequence.forward(self.tokens[-1:], cancel=self.cancel)
        self._stop_if_cancelled()
        return draw_one(self.sampler, logits, self.tokens)

    def _stop_if_cancelled(self) -> None:
        if self.cancel.is_set():
            raise CancelledError("generate: cancelled")

    def _add_time(self, seconds: float) -> None:
        if self.generated == 1:
            self.first_token_seconds = self.prefill_seconds + seconds
        else:
            self.decode_seconds += seconds

    def _stats(self) -> Stats:
        return Stats(
            prompt_tokens=self.prompt_tokens,
            reused_tokens=self.reused,
            generated_tokens=self.generated,
            prefill_seconds=self.prefill_seconds,
            decode_seconds=self.decode_seconds,
            first_token_seconds=self.first_token_seconds,
            seed=self.sampler.seed,
        )


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading ids are equal."""
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length


def tokenizer_of(sequence: _Sequence) -> Any:
    """The tokenizer of its model; None if that has none that can be used."""
    try:
        return sequence.runner.model.tokenizer
    except (UnsupportedModelError, TokenizerError, ModelError):
        return None
