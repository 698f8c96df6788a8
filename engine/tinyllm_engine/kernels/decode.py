"""Several tokens in one native call: evaluate, draw, evaluate what was drawn (see decode.py)."""

import numpy as np

from tinyllm_engine.jit import kernel, native, record
from tinyllm_engine.kernels.sample import PLACES as SAMPLE_PLACES
from tinyllm_engine.kernels.top_tokens import TOKEN
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
from tinyllm_engine.system_calls import nanoseconds
from tinyllm_engine.team import CANCEL, CLOCKS, LENGTH, PROGRAM, run_together

# How a call ended. With the last three the last token was evaluated, but the logits after it were not drawn from.
GOING_ON, END_OF_GENERATION, CANCELLED, CHANGED, REFUSED, UNDRAWN = range(6)

_LOGPROB, _CHOICE, _CHANCE, _RECENT, _RECENT_COUNT = (
    8 * SAMPLE_PLACES[name] for name in ("logprob", "choice", "chance", "recent", "recent_count")
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
PLACES = {name: place for place, name in enumerate(_WORDS)}


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
