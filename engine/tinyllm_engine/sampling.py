"""From logits to a token: the parameters, the block of memory they are live in, and the chain in plain NumPy.

The chain is llama.cpp's: penalties, top-k, typical, top-p, min-p, temperature, draw. `kernels/sample.py` is its native
twin and must choose the same tokens; this one is the text to read and the oracle of the tests.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.errors import NonFiniteLogitsError, SamplingError

F32_MAX = float(np.finfo(np.float32).max)
GREEDY_BELOW = 1e-5  # a temperature under this always takes the highest logit: dividing by it would overflow
MASK64 = (1 << 64) - 1

# name: (lowest, highest), both allowed
FLOAT_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repeat_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
}
INT_RANGES: dict[str, tuple[int, int]] = {
    "seed": (-1, MASK64),
    "top_k": (-1, 2**31 - 1),
    "repeat_last_n": (-1, 2**31 - 1),
}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What decides the next token. Raises SamplingError for a value outside its range.

    The defaults are llama.cpp's. Off: top_k <= 0, top_p 1, min_p 0, typical_p 1, repeat_penalty 1, the others 0.
    """

    seed: int | None = None  # None or -1: fresh entropy for each generation
    temperature: float = 0.8  # 0: always the highest logit
    top_k: int = 40  # at most so many candidates
    top_p: float = 0.95  # the fewest candidates with this much probability together
    min_p: float = 0.05  # candidates with at least this fraction of the best one's probability
    typical_p: float = 1.0  # as top_p, taking those first whose surprise is nearest to the expected one
    repeat_penalty: float = 1.0  # divides positive logits of recent tokens, multiplies the others
    repeat_last_n: int = 64  # how many recent tokens the three penalties look at; -1: all
    presence_penalty: float = 0.0  # subtracted from the logit of each recent token
    frequency_penalty: float = 0.0  # subtracted once per occurrence

    def __post_init__(self) -> None:
        if self.seed is None or self.seed == -1:
            object.__setattr__(self, "seed", None)
        for name, (low, high) in INT_RANGES.items():
            value = getattr(self, name)
            if value is None and name == "seed":
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
                raise SamplingError(f"{name}: expected a whole number from {low} to {high}, found {value!r}")
            object.__setattr__(self, name, int(value))
        for name, (floor, ceiling) in FLOAT_RANGES.items():
            value = getattr(self, name)
            number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
            if not number or not floor <= value <= ceiling:
                raise SamplingError(f"{name}: expected a number from {floor:g} to {ceiling:g}, found {value!r}")
            object.__setattr__(self, name, float(value))


# One record of it is what native code reads at every token. Eight bytes a field: each is written in one piece.
SHARED_DTYPE = np.dtype(
    [
        ("version", np.int64),  # counts the changes
        ("temperature", np.float64),
        ("top_k", np.int64),  # 0: off
        ("top_p", np.float64),
        ("min_p", np.float64),
        ("typical_p", np.float64),
        ("repeat_penalty", np.float64),
        ("repeat_last_n", np.int64),  # -1: all
        ("presence_penalty", np.float64),
        ("frequency_penalty", np.float64),
    ],
    align=True,
)


class SharedSampling:
    """Parameters that one thread changes while another samples; a change holds from the next token on.

    Values are written one by one, so a token may see some of the values of one `update` and not yet the others; each
    value it sees is valid. The seed is read once, where a generation begins.
    """

    def __init__(self, params: SamplingParams | None = None) -> None:
        self.record = np.zeros(1, SHARED_DTYPE)  # [1]
        self._lock = threading.Lock()
        self._params = params or SamplingParams()
        self._write()

    @property
    def params(self) -> SamplingParams:
        return self._params

    @property
    def version(self) -> int:
        """Goes up by one with every update."""
        return int(self.record["version"][0])

    @property
    def address(self) -> int:
        """Address of the SHARED_DTYPE record; valid as long as this object lives."""
        return self.record.ctypes.data

    def update(self, **changes: Any) -> SamplingParams:
        """Changes the named parameters and returns all of them. SamplingError: nothing was changed."""
        unknown = sorted(changes.keys() - {field.name for field in fields(SamplingParams)})
        if unknown:
            raise SamplingError(f"{unknown[0]}: no such sampling parameter")
        with self._lock:
            self._params = replace(self._params, **changes)
            self._write()
            return self._params

    def _write(self) -> None:
        values = asdict(self._params)
        values["top_k"] = max(0, values["top_k"])
        for name in SHARED_DTYPE.names or ():
            if name != "version":
                self.record[name] = values[name]
        self.record["version"] += 1


def fresh_seed() -> int:
    """A seed of 32 random bits: short enough to be read off a screen and typed again."""
    return secrets.randbits(32)


def uniform(seed: int, index: int) -> float:
    """The index-th random number of a seed, in [0, 1): SplitMix64 (Steele et al., 2014) of a mixed seed."""

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK64
        return z ^ (z >> 31)

    return (mix((mix(seed) + (index + 1) * 0x9E3779B97F4A7C15) & MASK64) >> 11) * 2.0**-53


class Sampler:
    """Draws the tokens of one generation. `seed` is the one in use, `drawn` the number of tokens drawn so far."""

    def __init__(self, params: SamplingParams | SharedSampling) -> None:
        self.shared = params if isinstance(params, SharedSampling) else SharedSampling(params)
        seed = self.shared.params.seed
        self.seed = fresh_seed() if seed is None else seed
        self.drawn = 0

    def sample(self, logits: NDArray[np.float32], tokens: Sequence[int] | NDArray[np.int32]) -> tuple[int, float]:
        """Returns (id, natural log of its probability before penalties, crops and temperature).

        `logits` is float32 [vocab] and stays as it is; `tokens` are the ids so far, prompt included, for the penalties.
        Raises NonFiniteLogitsError.
        """
        params = self.shared.params
        raw = logits.astype(np.float64)  # [vocab]
        check_finite(raw)
        scores = penalize(logits, tokens, params).astype(np.float64)  # [vocab]
        kept = survivors(scores, params)  # [candidates], ids in rising order
        choice = int(kept[draw(scores[kept], params.temperature, uniform(self.seed, self.drawn))])
        self.drawn += 1
        highest = raw.max()
        return choice, float(raw[choice] - highest - math.log(np.exp(raw - highest).sum()))


def check_finite(logits: NDArray[np.floating]) -> None:
    """Raises NonFiniteLogitsError if any of the logits is NaN or infinite."""
    bad = logits.size - int(np.count_nonzero(np.isfinite(logits)))
    if bad:
        raise non_finite(bad, logits.size)


def non_finite(bad: int, total: int) -> NonFiniteLogitsError:
    return NonFiniteLogitsError(f"logits: expected finite numbers, found {bad} of {total} NaN or infinite")


def penalize(
    logits: NDArray[np.float32], tokens: Sequence[int] | NDArray[np.int32], params: SamplingParams
) -> NDArray[np.float32]:
    """float32 [vocab]: the logits with those of the recent tokens made less likely."""
    off = (params.repeat_penalty, params.presence_penalty, params.frequency_penalty) == (1.0, 0.0, 0.0)
    if off or params.repeat_last_n == 0 or len(tokens) == 0:
        return logits
    recent = tokens[-params.repeat_last_n :] if params.repeat_last_n > 0 else tokens
    ids, counts = np.unique(np.asarray(recent, np.int64), return_counts=True)
    inside = (ids >= 0) & (ids < logits.size)
    ids, counts = ids[inside], counts[inside]
    value = logits[ids].astype(np.float64)
    value = np.where(value <= 0, value * params.repeat_penalty, value / params.repeat_penalty)
    value -= counts * params.frequency_penalty + params.presence_penalty
    penalized = logits.copy()
    penalized[ids] = np.clip(value, -F32_MAX, F32_MAX)
    return penalized


def survivors(scores: NDArray[np.float64], params: SamplingParams) -> NDArray[np.int64]:
    """Ids that top-k, typical, top-p and min-p leave, in rising order; never none. Ties: the lower id stays."""
    kept = largest(scores, params.top_k) if 0 < params.top_k < scores.size else np.arange(scores.size)
    if params.typical_p < 1:
        value, weight, total = weigh(scores[kept])
        log_p = value - math.log(total)
        entropy = -float(weight @ log_p) / total
        target = np.nextafter(params.typical_p * total, np.inf)  # to be exceeded, not only reached
        kept = kept[heaviest(-np.abs(-log_p - entropy), weight, target)]
    if params.top_p < 1:
        value, weight, total = weigh(scores[kept])
        kept = kept[heaviest(value, weight, params.top_p * total)]
    if params.min_p > 0:
        value, _, _ = weigh(scores[kept])
        kept = kept[value >= math.log(params.min_p)]
    return kept


def draw(scores: NDArray[np.float64], temperature: float, u: float) -> int:
    """Index of one of the scores: the first highest at temperature 0, else softmax(scores / temperature) at u."""
    if temperature < GREEDY_BELOW:
        return int(scores.argmax())
    sums = np.cumsum(np.exp((scores - scores.max()) / temperature))
    return min(int(np.searchsorted(sums, u * sums[-1], side="right")), scores.size - 1)


def weigh(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """(scores relative to the highest, their probabilities times the third value, the sum of those)."""
    value = scores - scores.max()
    weight = np.exp(value)
    return value, weight, float(weight.sum())


def largest(scores: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Indices of the k highest scores (0 < k <= size), in rising order; of equals the first."""
    bound = np.partition(scores, scores.size - k)[scores.size - k]
    above = np.flatnonzero(scores > bound)
    equal = np.flatnonzero(scores == bound)[: k - above.size]
    return np.sort(np.concatenate((above, equal)))


def heaviest(scores: NDArray[np.float64], weight: NDArray[np.float64], target: float) -> NDArray[np.int64]:
    """Indices of the fewest highest scores whose weights together reach the target, in rising order.

    All, if rounding keeps even the sum of all below the target.
    """
    head = 1024  # a sort of the whole vocabulary takes milliseconds, and a handful usually holds the target
    if scores.size > head:
        top = largest(scores, head)
        if weight[top].sum() > target:
            return top[heaviest(scores[top], weight[top], target)]
    order = np.argsort(-scores, kind="stable")
    count = int(np.searchsorted(np.cumsum(weight[order]), target)) + 1
    return np.sort(order[:count])
