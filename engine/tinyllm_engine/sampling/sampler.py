"""Draws the tokens of one generation."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.agreed import GREEDY_BELOW
from tinyllm_engine.errors import NonFiniteLogitsError, SamplingError
from tinyllm_engine.sampling.chain import Candidates, Surroundings, add_bias, draw, is_native, run_chain, temper
from tinyllm_engine.sampling.dry import Breakers, find_breakers
from tinyllm_engine.sampling.mirostat import mirostat_1, mirostat_2
from tinyllm_engine.sampling.params import MASK64, SamplingParams, SharedSampling

# Independent random numbers for one token. A second draw of it must not use the number that led to the first.
DRAW, XTC, SECOND_DRAW, SECOND_XTC = range(4)


class Constraint(Protocol):
    """What a text must obey, e.g. a grammar."""

    def allows(self, id: int) -> bool:
        """Whether the token may come next."""

    def mask(self) -> NDArray[np.bool_]:
        """bool [vocabulary]: all tokens that may come next; never none."""

    def accept(self, id: int) -> None:
        """Moves on behind an allowed token."""

    @property
    def is_over(self) -> bool:
        """Whether no token can come next but one that ends the text."""


def fresh_seed() -> int:
    """A seed of 32 random bits: short enough to be read off a screen and typed again."""
    return secrets.randbits(32)


def uniform(seed: int, index: int, stream: int = DRAW) -> float:
    """The index-th random number of a stream of a seed, in [0, 1): SplitMix64 (Steele et al., 2014), seed mixed."""

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK64
        return z ^ (z >> 31)

    start = mix(seed ^ stream * 0xD1B54A32D192ED03 & MASK64)
    return (mix((start + (index + 1) * 0x9E3779B97F4A7C15) & MASK64) >> 11) * 2.0**-53


class Sampler:
    """`seed` is the one in use, `drawn` the number of tokens drawn so far.

    tokenizer: names the tokens that `ignore_eos` excludes and those that DRY's breakers consist of; None: neither
    never: ids that are not to be drawn whatever the parameters say
    constraint: what the tokens must obey. One is drawn without regard to it; only if that is not allowed, the others
        that are not are ruled out and another one is drawn. So what obeys anyway keeps its probability.
    """

    def __init__(
        self,
        params: SamplingParams | SharedSampling,
        tokenizer: Any = None,
        never: Sequence[int] = (),
        constraint: Constraint | None = None,
    ) -> None:
        self.shared = params if isinstance(params, SharedSampling) else SharedSampling(params)
        seed = self.shared.params.seed
        self.seed = fresh_seed() if seed is None else seed
        self.drawn = 0
        self.constraint = constraint
        self._tokenizer = tokenizer
        self._never = tuple(never)
        self._mu: float | None = None  # of mirostat: the surprise it aims at now
        self._breakers: Breakers = {}
        self._breaker_texts: tuple[str, ...] = ()
        self._version = -1
        self._refresh()

    def sample(self, logits: NDArray[np.float32], tokens: Sequence[int] | NDArray[np.int32]) -> tuple[int, float]:
        """Returns (id, natural log of its probability before penalties, crops and temperature).

        `logits` is float32 [vocab] and stays as it is; `tokens` are the ids so far, prompt included, for the penalties.
        Raises NonFiniteLogitsError, and SamplingError where every token is ruled out.
        """
        self._refresh()
        mu = self._mu
        id, logprob = self._draw(logits, tokens)
        if self.constraint is not None:
            if not self.constraint.allows(id):
                self._mu = mu
                id = self._draw_allowed(logits, tokens, self.constraint.mask())
                logprob = log_probability(logits, id)
            self.constraint.accept(id)
        self.drawn += 1
        return id, logprob

    def _refresh(self) -> bool:
        """Looks at the parameters; True if they have changed."""
        if self._version == self.shared.version:
            return False
        self._version, self.params = self.shared.snapshot()
        self.native = is_native(self.params)
        ends = self._tokenizer.eog_ids if self.params.ignore_eos and self._tokenizer is not None else ()
        ruled_out = dict.fromkeys((*self._never, *ends), -math.inf)
        self.bias = tuple(sorted((dict(self.params.logit_bias) | ruled_out).items()))
        if self.params.dry_multiplier and self._tokenizer is not None:
            self._find_breakers(self.params.dry_sequence_breakers)
        return True

    def _find_breakers(self, texts: tuple[str, ...]) -> None:
        """Looks through the vocabulary, once for the same texts."""
        if self._breaker_texts != texts:
            self._breaker_texts = texts
            self._breakers = find_breakers(self._tokenizer, texts)

    def _draw(self, logits: NDArray[np.float32], tokens: Sequence[int] | NDArray[np.int32]) -> tuple[int, float]:
        """A token by the chain, whatever the constraint says, and the log of its probability."""
        check_finite(logits)
        id = self._choose(logits.astype(np.float64), tokens, DRAW, XTC)
        return id, log_probability(logits, id)

    def _draw_allowed(
        self, logits: NDArray[np.float32], tokens: Sequence[int] | NDArray[np.int32], allowed: NDArray[np.bool_]
    ) -> int:
        scores = np.full(logits.size, -np.inf)
        count = min(logits.size, allowed.size)
        np.copyto(scores[:count], logits[:count], where=allowed[:count])
        return self._choose(scores, tokens, SECOND_DRAW, SECOND_XTC)

    def _choose(
        self, scores: NDArray[np.float64], tokens: Sequence[int] | NDArray[np.int32], drawing: int, xtc: int
    ) -> int:
        """scores: float64 [vocab], -inf for tokens that are ruled out; drawing, xtc: the random streams to use"""
        possible = np.flatnonzero(scores > -np.inf)
        candidates = (
            Candidates(possible, scores[possible])
            if possible.size < scores.size
            else Candidates(np.arange(scores.size), scores)
        )
        if self.bias and candidates.ids.size:
            candidates = add_bias(candidates, self.bias)
        if not candidates.possible:
            raise SamplingError("sampling: every token is ruled out")
        u = uniform(self.seed, self.drawn, drawing)
        if self.params.mirostat:
            return self._steer(candidates, scores.size, u)
        around = Surroundings(tokens, self._breakers, uniform(self.seed, self.drawn, xtc))
        candidates = run_chain(candidates, self.params, around)
        return int(candidates.ids[draw(candidates, u, scores.size)])

    def _steer(self, candidates: Candidates, vocab_size: int, u: float) -> int:
        tau, eta = self.params.mirostat_tau, self.params.mirostat_eta
        if self._mu is None:
            self._mu = 2 * tau
        candidates = temper(candidates, self.params.temperature)
        if self.params.temperature < GREEDY_BELOW:
            return int(candidates.ids[draw(candidates, u, vocab_size)])
        if self.params.mirostat == 1:
            id, surprise = mirostat_1(candidates, vocab_size, self._mu, u)
        else:
            id, surprise = mirostat_2(candidates, vocab_size, self._mu, u)
        self._mu -= eta * (surprise - tau)
        return id


def log_probability(logits: NDArray[np.float32], id: int) -> float:
    highest = logits.max()
    with np.errstate(over="ignore"):
        total = float(np.exp(logits - highest).sum(dtype=np.float64))
    return float(logits[id]) - float(highest) - math.log(total)


def check_finite(logits: NDArray[np.floating]) -> None:
    """Raises NonFiniteLogitsError if any of the logits is NaN or infinite."""
    bad = logits.size - int(np.count_nonzero(np.isfinite(logits)))
    if bad:
        raise NonFiniteLogitsError(f"logits: expected finite numbers, found {bad} of {logits.size} NaN or infinite")
