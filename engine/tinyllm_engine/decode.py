"""Several tokens in one native call: evaluate, draw, evaluate what was drawn.

A call per token hands the GIL back and forth with the screen, and what Python needs has left the processor's caches
meanwhile: that costs more than the token's choice. A change of the sampling parameters still holds from the very next
token on: their version is compared before each, and where it has changed the call ends, to be told what the new ones
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.choices import Choice
from tinyllm_engine.jit import kernel, native, record
from tinyllm_engine.kernels.sample import PLACES, scan
from tinyllm_engine.kernels.top_tokens import TOKEN, find_top_tokens
from tinyllm_engine.recorder import State
from tinyllm_engine.sampling.native import NativeSampler
from tinyllm_engine.simd import (
    atomic_load,
    atomic_load_i32,
    call_kernel,
    item_f64,
    load_i64,
    load_u8,
    set_f64,
    set_i32,
    store_i64,
)
from tinyllm_engine.team import CANCEL, CLOCKS, LENGTH, PROGRAM, Team, nanoseconds, run_together

MANY = 16  # tokens a call at most
BUDGET = 40_000_000  # nanoseconds after which no further token is begun: a screen looks at 20 Hz

# How a call ended. With the last three the last token was evaluated, but the logits after it were not drawn from.
GOING_ON, END_OF_GENERATION, CANCELLED, CHANGED, REFUSED, UNDRAWN = range(6)

_LOGPROB, _CHOICE, _CHANCE, _RECENT, _RECENT_COUNT = (
    8 * PLACES[name] for name in ("logprob", "choice", "chance", "recent", "recent_count")
)
# Addresses unless said otherwise.
_WORDS = (
    "control",  # the team's control block, with a one-row program loaded
    "threads",  # a number
    "tokens",  # int64 [1], the program's row: the token to evaluate first...
    "positions",  # int64 [1] ...its place...
    "sources",  # int64 [1] ...and the states that the first pass reads...
    "targets",  # int64 [1] ...and writes
    "spare",  # the state to write after that
    "scanning",  # int64 [1, 3], a program of its own: `scan`
    "sample",  # the kernel that draws a token after `scan`
    "look",  # the kernel that looks at the logits a token was drawn from; 0: none does...
    "look_arguments",  # ...and its arguments, TOP, with room for `most` rows
    "arguments",  # SAMPLE for both, with random numbers and room behind the recent tokens for `most` draws
    "shared_version",  # int64: counts the changes of the sampling parameters
    "version",  # of those that the arguments have, a number
    "eog",  # bool [vocabulary]
    "most",  # tokens to draw, a number
    "budget",  # nanoseconds
    "ids",  # int32 [most], result
    "logprobs",  # float64 [most], result
    "drawn",  # result: how many tokens
    "end",  # result: how it ended
)
DECODE = np.dtype([(name, np.int64) for name in _WORDS], align=True)
_PLACES = {name: place for place, name in enumerate(_WORDS)}


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens drawn in a row, with the natural logs of their probabilities; fewer than asked for when cancelled.

    choices: what else could have been drawn for each, if the sampler looks at that
    """

    ids: list[int]
    logprobs: list[float]
    choices: list[Choice] = field(default_factory=list)


def draw_one(sampler: NativeSampler, logits: NDArray[np.float32], tokens: Sequence[int]) -> Drawn:
    """One token after `tokens`, drawn from logits, float32 [vocabulary]."""
    id, logprob = sampler.sample(logits, tokens)
    top = sampler.top_tokens
    return Drawn([id], [logprob], [] if top is None else [top.look(logits, id)])


@kernel(DECODE)
def decode_tokens(thread, threads, pointer):
    """Fills ids, logprobs, drawn and end. Every drawn token but the last is evaluated."""
    d = record(pointer)
    control, a = d.control, d.arguments
    program, length, clocks = load_i64(control + PROGRAM), load_i64(control + LENGTH), load_i64(control + CLOCKS)
    start = nanoseconds()
    d.drawn, d.end = 0, GOING_ON
    while d.drawn < d.most:
        load(control, program, length, clocks)
        run_together(control, d.threads)
        if is_cancelled(control):
            d.end = CANCELLED
            return
        written = load_i64(d.targets)
        store_i64(d.sources, written)
        store_i64(d.targets, d.spare)
        d.spare = written
        if atomic_load(d.shared_version) != d.version:
            d.end = CHANGED
            return
        load(control, d.scanning, 1, 0)
        run_together(control, d.threads)
        if is_cancelled(control):
            d.end = UNDRAWN
            return
        call_kernel(d.sample, 0, 1, a)
        choice = load_i64(a + _CHOICE)
        if choice < 0:
            d.end = REFUSED
            return
        if d.look != 0:
            store_i64(d.look_arguments + TOKEN, choice)
            call_kernel(d.look, 0, 1, d.look_arguments)
        set_i32(d.ids, d.drawn, np.int32(choice))
        set_f64(d.logprobs, d.drawn, item_f64(a + _LOGPROB, 0))
        d.drawn += 1
        if load_u8(d.eog + choice) != 0:
            d.end = END_OF_GENERATION
            return
        count = load_i64(a + _RECENT_COUNT)
        set_i32(load_i64(a + _RECENT), count, np.int32(choice))
        store_i64(a + _RECENT_COUNT, count + 1)
        store_i64(a + _CHANCE, load_i64(a + _CHANCE) + 8)
        store_i64(d.tokens, choice)
        store_i64(d.positions, load_i64(d.positions) + 1)
        elapsed = nanoseconds() - start
        if elapsed + elapsed // d.drawn > d.budget:
            return


@native
def load(control, program, length, clocks):
    store_i64(control + PROGRAM, program)
    store_i64(control + LENGTH, length)
    store_i64(control + CLOCKS, clocks)


@native
def is_cancelled(control):
    return atomic_load_i32(load_i64(control + CANCEL)) != 0


class Decoder:
    """Calls `decode_tokens` for one team and the first row of a state."""

    def __init__(self, team: Team, state: State) -> None:
        self._ids, self._logprobs = np.zeros(MANY, np.int32), np.zeros(MANY, np.float64)
        self._scanning = np.array([[scan.address, 0, 1]], np.int64)
        self._words = np.zeros(len(_WORDS), np.int64)
        self._address = self._words.ctypes.data
        self._set(
            control=team.address(0),
            threads=team.threads,
            tokens=state.tokens.ctypes.data,
            positions=state.positions.ctypes.data,
            sources=state.sources.ctypes.data,
            targets=state.targets.ctypes.data,
            scanning=self._scanning.ctypes.data,
            budget=BUDGET,
            ids=self._ids.ctypes.data,
            logprobs=self._logprobs.ctypes.data,
        )

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._words[_PLACES[name]] = value

    def run(
        self,
        logits: NDArray[np.float32],
        spare: int,
        sampler: NativeSampler,
        tokens: Sequence[int],
        eog: NDArray[np.bool_],
        most: int,
    ) -> tuple[Drawn, int]:
        """Up to `most` tokens of the program that is loaded, which writes `logits`, and how it ended.

        spare: the recurrent state to write after those that the row names
        tokens: all so far, with the one to evaluate first
        """
        most = min(most, MANY)
        sample, arguments = sampler.prepare(logits, tokens, most)
        self._scanning[0, 1] = arguments
        top = sampler.top_tokens
        self._set(
            spare=spare,
            sample=sample.address,
            arguments=arguments,
            look=0 if top is None else find_top_tokens.address,
            look_arguments=0 if top is None else top.prepare(logits, most),
            shared_version=sampler.shared.address,
            version=sampler.version,
            eog=eog.ctypes.data,
            most=most,
        )
        decode_tokens(0, 1, self._address)
        count, end = int(self._words[_PLACES["drawn"]]), int(self._words[_PLACES["end"]])
        sampler.drawn += count
        ids = self._ids[:count].tolist()
        return Drawn(ids, self._logprobs[:count].tolist(), [] if top is None else top.take(ids)), end
