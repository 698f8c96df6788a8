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

from tinyllm_engine.batch_state import State
from tinyllm_engine.choices import Choice
from tinyllm_engine.kernels.decode import PLACES, decode_tokens
from tinyllm_engine.kernels.sample import scan
from tinyllm_engine.kernels.top_tokens import find_top_tokens
from tinyllm_engine.sampling.native import NativeSampler
from tinyllm_engine.team import Team

MANY = 16  # tokens a call at most
BUDGET = 40_000_000  # nanoseconds after which no further token is begun: a screen looks at 20 Hz


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


class Decoder:
    """Calls `decode_tokens` for one team and the first row of a state."""

    def __init__(self, team: Team, state: State) -> None:
        self._ids, self._logprobs = np.zeros(MANY, np.int32), np.zeros(MANY, np.float64)
        self._scanning = np.array([[scan.address, 0, 1]], np.int64)
        self._words = np.zeros(len(PLACES), np.int64)
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
            self._words[PLACES[name]] = value

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
        count, end = int(self._words[PLACES["drawn"]]), int(self._words[PLACES["end"]])
        sampler.drawn += count
        ids = self._ids[:count].tolist()
        return Drawn(ids, self._logprobs[:count].tolist(), [] if top is None else top.take(ids)), end
