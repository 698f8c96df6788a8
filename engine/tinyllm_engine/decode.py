"""Several tokens in one native call: evaluate, draw, evaluate what was drawn.

A call per token hands the GIL back and forth with the screen, which costs more than the token. Sampling parameters are
read from shared memory at every draw, so a change still holds from the very next token on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import types

from tinyllm_engine.jit import compiled
from tinyllm_engine.kernels.sample import SCRATCH, SHARED, choose
from tinyllm_engine.simd import atomic_load_i32, load_i64
from tinyllm_engine.team import CANCEL, nanoseconds, run_together

MANY = 8  # tokens a call at most
BUDGET = 20_000_000  # nanoseconds after which no further token is begun: a screen looks at 20 Hz

# How a call ended; non-finite logits are reported as their number, negated.
GOING_ON, END_OF_GENERATION, CANCELLED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens drawn in a row, with the natural logs of their probabilities; fewer than asked for when cancelled."""

    ids: list[int]
    logprobs: list[float]


I64, U64 = types.int64, types.uint64


@compiled(
    types.UniTuple(I64, 2)(
        I64, I64, I64[::1], I64[::1], I64[::1], I64[::1], I64,
        types.float32[::1], SHARED, U64, U64, types.int32[::1], I64,
        types.boolean[::1], SCRATCH, I64, types.int32[::1], types.float64[::1],
    )
)  # fmt: skip
def decode_tokens(
    control,
    threads,
    tokens,
    positions,
    sources,
    targets,
    spare,
    logits,
    shared,
    seed,
    index,
    recent,
    count,
    eog,
    scratch,
    budget,
    ids,
    logprobs,
):
    """Fills ids and logprobs; returns (tokens drawn, how it ended). Every drawn token but the last is evaluated.

    control: the team's control block, with a one-row program loaded
    tokens, positions: int64, the program's row: the token to evaluate first and its place
    sources, targets, spare: int64, the states that the first pass reads and writes, and the one to write after that
    recent: int32, `count` latest tokens and room for the drawn ones; eog: bool [vocabulary]
    """
    start = nanoseconds()
    for drawn in range(ids.size):
        run_together(control, threads)
        if atomic_load_i32(load_i64(control + CANCEL)) != 0:
            return drawn, CANCELLED
        sources[0], targets[0], spare = targets[0], spare, targets[0]
        choice, logprob = choose(logits, shared, seed, index + np.uint64(drawn), recent[: count + drawn], scratch)
        if choice < 0:
            return drawn, choice
        ids[drawn], logprobs[drawn] = choice, logprob
        if eog[choice]:
            return drawn + 1, END_OF_GENERATION
        recent[count + drawn] = choice
        tokens[0] = choice
        positions[0] += 1
        elapsed = nanoseconds() - start
        if elapsed + elapsed // (drawn + 1) > budget:
            return drawn + 1, GOING_ON
    return ids.size, GOING_ON
