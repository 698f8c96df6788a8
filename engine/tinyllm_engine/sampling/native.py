"""A sampler whose chain is machine code; draws the tokens that `sampling.Sampler` draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.agreed import GREEDY_BELOW
from tinyllm_engine.errors import SamplingError
from tinyllm_engine.jit import Kernel
from tinyllm_engine.kernels.sample import BLOCK, PLACES, SAMPLE, sample_few, sample_many, scan
from tinyllm_engine.sampling.chain import active, latest
from tinyllm_engine.sampling.params import SamplingParams, SharedSampling
from tinyllm_engine.sampling.sampler import Constraint, Sampler, check_finite, uniform

if TYPE_CHECKING:
    from tinyllm_engine.top_tokens import TopTokens

_LOGITS, _CHANCE, _RECENT, _RECENT_COUNT, _CHOICE, _LOGPROB = (
    PLACES[name] for name in ("logits", "chance", "recent", "recent_count", "choice", "logprob")
)
AHEAD = 256  # random numbers made at a time


class NativeSampler(Sampler):
    """A Sampler whose chain runs as machine code where that has all that is asked for.

    top_tokens: what whoever draws shall have look at the logits of each token
    """

    def __init__(
        self,
        params: SamplingParams | SharedSampling,
        tokenizer: Any = None,
        never: Sequence[int] = (),
        constraint: Constraint | None = None,
        top_tokens: TopTokens | None = None,
    ) -> None:
        self.top_tokens = top_tokens
        self._arguments = np.zeros(1, SAMPLE)
        self._words, self._numbers = self._arguments.view(np.int64), self._arguments.view(np.float64)
        self._address = self._arguments.ctypes.data
        self._vocabulary = 0
        self._memory: dict[str, NDArray[Any]] = {}
        self._recent = np.zeros(0, np.int32)
        self._chances, self._first_chance = np.zeros(0), 0
        self._logits: NDArray[np.float32] | None = None
        super().__init__(params, tokenizer, never, constraint)

    @property
    def alone(self) -> bool:
        """Whether native code may draw several tokens without coming back."""
        self._refresh()
        return self.native and self.constraint is None

    @property
    def version(self) -> int:
        """Of the parameters that the arguments have."""
        return self._version

    def prepare(
        self, logits: NDArray[np.float32], tokens: Sequence[int] | NDArray[np.int32], draws: int = 1
    ) -> tuple[Kernel, int]:
        """The kernel that draws from these logits, writable ones, after `scan`, and the address of their arguments.

        For `draws` tokens in a row there are random numbers, and room behind the recent tokens.
        """
        words = self._words
        if logits is not self._logits:
            self._set_logits(logits)
        words[_CHANCE] = self._chance_address(draws)
        seen: Sequence[int] | NDArray[np.int32] = ()
        if self._last_n:
            seen = latest(tokens, self._last_n)
        if self._recent.size < len(seen) + draws:
            self._recent = np.zeros(2 * (len(seen) + draws), np.int32)
            words[_RECENT] = self._recent.ctypes.data
        self._recent[: len(seen)] = seen
        words[_RECENT_COUNT] = len(seen)
        return sample_few if self._few else sample_many, self._address

    def refuse(self, logits: NDArray[np.float32]) -> NoReturn:
        """Raises what the native chain found wrong with these logits."""
        check_finite(logits)
        raise SamplingError("sampling: every token is ruled out")

    def _draw(self, logits: NDArray[np.float32], tokens: Sequence[int] | NDArray[np.int32]) -> tuple[int, float]:
        if not self.native:
            return super()._draw(logits, tokens)
        logits = np.require(logits, np.float32, ["C", "W"])
        sample, arguments = self.prepare(logits, tokens)
        scan(0, 1, arguments)
        sample(0, 1, arguments)
        choice = int(self._words[_CHOICE])
        if choice < 0:
            self.refuse(logits)
        return choice, float(self._numbers[_LOGPROB])

    def _chance_address(self, draws: int) -> int:
        """Where the random numbers of the next draws are."""
        place = self.drawn - self._first_chance
        if not 0 <= place <= self._chances.size - draws:
            self._chances = np.array([uniform(self.seed, self.drawn + i) for i in range(max(draws, AHEAD))])
            self._first_chance, place = self.drawn, 0
        return self._chances.ctypes.data + 8 * place

    def _refresh(self) -> bool:
        if not super()._refresh():
            return False
        params, arguments = self.params, self._arguments
        on = active(params)
        self._last_n = params.repeat_last_n if "penalties" in on else 0
        self._bias_ids = np.array([id for id, _ in self.bias], np.int32)
        self._biases = np.array([bias for _, bias in self.bias], np.float32)
        values = {
            "temperature": params.temperature if "temperature" in params.samplers else 1.0,
            "top_k": params.top_k if "top_k" in on else 0,
            "top_p": params.top_p if "top_p" in on else 1.0,
            "min_p": params.min_p if "min_p" in on else 0.0,
            "last_n": self._last_n,
            "repeat": params.repeat_penalty,
            "presence": params.presence_penalty,
            "frequency": params.frequency_penalty,
            "bias_ids": self._bias_ids.ctypes.data,
            "biases": self._biases.ctypes.data,
            "bias_count": len(self.bias),
        }
        for name, value in values.items():
            arguments[name] = value
        self._choose_kernel()
        return True

    def _choose_kernel(self) -> None:
        arguments = self._arguments[0]
        self._few = 0 < arguments["top_k"] < self._vocabulary or arguments["temperature"] < GREEDY_BELOW

    def _set_logits(self, logits: NDArray[np.float32]) -> None:
        self._logits = logits
        self._words[_LOGITS] = logits.ctypes.data
        size = logits.size
        if size == self._vocabulary:
            return
        self._vocabulary = size
        blocks = -(-size // (8 * BLOCK)) * 8
        self._memory = {
            "peaks": np.zeros(blocks, np.float32),
            "sums": np.zeros(blocks, np.float32),
            "counts": np.zeros(size, np.int32),
            "changed": np.zeros(2 * size, np.int32),
            "before": np.zeros(2 * size, np.float32),
            "ids": np.zeros(size, np.int32),
            "value": np.zeros(size, np.float32),
            "weight": np.zeros(size),
        }
        self._arguments["vocabulary"] = size
        for name, array in self._memory.items():
            self._arguments[name] = array.ctypes.data
        self._choose_kernel()
