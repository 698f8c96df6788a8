"""What decides the next token: the parameters, their ranges, and the live values of a running generation."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tinyllm_engine.errors import SamplingError

MASK64 = (1 << 64) - 1

# name: (lowest, highest), both allowed
FLOAT_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "dynatemp_range": (0.0, 100.0),
    "dynatemp_exponent": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1.0, 100.0),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "repeat_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (0.0, 100.0),
    "mirostat_tau": (0.0, 100.0),
    "mirostat_eta": (0.0, 1.0),
}
MOST = 2**31 - 1
INT_RANGES: dict[str, tuple[int, int]] = {
    "seed": (-1, MASK64),
    "top_k": (-1, MOST),
    "repeat_last_n": (-1, MOST),
    "dry_allowed_length": (0, MOST),
    "dry_penalty_last_n": (-1, MOST),
    "mirostat": (0, 2),
}
# llama.cpp's names of the samplers, in its order.
SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
_ALIASES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical": "typ_p"}
_BIAS = re.compile(r"([0-9]{1,10})([+-](?:inf|[0-9]{1,9}(?:[.][0-9]{0,9})?))")
MANY_SAMPLERS = 32  # in one chain: the same one may be there twice


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What decides the next token. Raises SamplingError for a value outside its range.

    The defaults are llama.cpp's. Off: top_k <= 0, top_p 1, min_p 0, typical_p 1, top_n_sigma <= 0, xtc_probability 0
    or xtc_threshold > 0.5, repeat_penalty 1, dynatemp_exponent as it is, the others 0.

    >>> SamplingParams(samplers="top_k;temp", logit_bias={15: -1.5}).samplers  # by any of llama.cpp's names
    ('top_k', 'temperature')
    >>> SamplingParams(top_p=1.5)
    Traceback (most recent call last):
    tinyllm_engine.errors.SamplingError: top_p: expected a number from 0 to 1, found 1.5
    """

    seed: int | None = None  # None or -1: fresh entropy for each generation
    temperature: float = 0.8  # 0: always the highest logit
    dynatemp_range: float = 0.0  # the temperature varies by so much, lower where the model is sure
    dynatemp_exponent: float = 1.0  # of the normalized entropy that it varies with
    top_k: int = 40  # at most so many candidates
    top_p: float = 0.95  # the fewest candidates with this much probability together
    min_p: float = 0.05  # candidates with at least this fraction of the best one's probability
    typical_p: float = 1.0  # as top_p, taking those first whose surprise is nearest to the expected one
    top_n_sigma: float = -1.0  # logits within so many standard deviations of the highest
    xtc_probability: float = 0.0  # how often the best candidates are excluded...
    xtc_threshold: float = 0.1  # ...all but the last that has at least this probability
    repeat_penalty: float = 1.0  # divides positive logits of recent tokens, multiplies the others
    repeat_last_n: int = 64  # how many recent tokens the three penalties look at; -1: all
    presence_penalty: float = 0.0  # subtracted from the logit of each recent token
    frequency_penalty: float = 0.0  # subtracted once per occurrence
    dry_multiplier: float = 0.0  # multiplier * base ** (repeated tokens - allowed length) is subtracted from the logit
    dry_base: float = 1.75  # of a token that would make a repeated sequence longer; below 1: off
    dry_allowed_length: int = 2  # repeated tokens that cost nothing
    dry_penalty_last_n: int = 64  # how many recent tokens are searched; -1: all
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")  # a repetition does not reach over them
    mirostat: int = 0  # 1 or 2: holds the surprise at tau, in place of all other samplers but the temperature
    mirostat_tau: float = 5.0  # bits a token
    mirostat_eta: float = 0.1  # how fast it learns
    samplers: tuple[str, ...] = SAMPLERS  # which ones, in what order; also a text: "top_k;temperature"
    logit_bias: tuple[tuple[int, float], ...] = ()  # (id, added to its logit; -inf: never); also a dict or texts
    ignore_eos: bool = False  # the tokens that end an answer are never drawn

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        if self.seed == -1:
            put("seed", None)
        for name, (low, high) in INT_RANGES.items():
            value = getattr(self, name)
            if value is None and name == "seed":
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
                raise SamplingError(f"{name}: expected a whole number from {low} to {high}, found {value!r}")
            put(name, int(value))
        for name, (floor, ceiling) in FLOAT_RANGES.items():
            value = getattr(self, name)
            if not _is_number(value) or not floor <= value <= ceiling:
                raise SamplingError(f"{name}: expected a number from {floor:g} to {ceiling:g}, found {value!r}")
            put(name, float(value))
        if not isinstance(self.ignore_eos, bool):
            raise SamplingError(f"ignore_eos: expected True or False, found {self.ignore_eos!r}")
        put("samplers", sampler_names(self.samplers))
        put("logit_bias", _biases(self.logit_bias))
        put("dry_sequence_breakers", _texts("dry_sequence_breakers", self.dry_sequence_breakers))


def sampler_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """llama.cpp's names, of a text with semicolons or of several texts; it spells some in several ways.

    Raises SamplingError for a name that is not known.
    """
    found = []
    for part in ";".join([names] if isinstance(names, str) else _texts("samplers", names)).split(";"):
        name = part.strip().lower().replace("-", "_")
        if not name:
            continue
        name = _ALIASES.get(name, name)
        name = next((known for known in SAMPLERS if name in (known, known.replace("_", ""))), name)
        if name not in SAMPLERS:
            raise SamplingError(f"samplers: expected some of {', '.join(SAMPLERS)}; found {part.strip()[:40]!r}")
        found.append(name)
    if len(found) > MANY_SAMPLERS:
        raise SamplingError(f"samplers: expected at most {MANY_SAMPLERS}, found {len(found)}")
    return tuple(found)


def _biases(given: Any) -> tuple[tuple[int, float], ...]:
    """(id, bias) by rising id; of several for one token the sum."""
    sums: dict[int, float] = {}
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        for pair in pairs:
            id, bias = _bias_of_text(pair) if isinstance(pair, str) else pair
            valid = isinstance(id, int | np.integer) and not isinstance(id, bool) and 0 <= id <= MOST
            if not valid or not _is_number(bias) or math.isnan(bias) or bias == math.inf:
                raise SamplingError(f"logit_bias: expected a token id and a number or -inf, found {id!r} and {bias!r}")
            sums[int(id)] = sums.get(int(id), 0.0) + float(bias)
    except (TypeError, ValueError) as error:
        if isinstance(error, SamplingError):
            raise
        raise SamplingError(f"logit_bias: expected pairs of a token id and a number, found {given!r:.80}") from None
    return tuple(sorted(sums.items()))


def _bias_of_text(text: str) -> tuple[int, float]:
    match = _BIAS.fullmatch(text.strip())
    if match is None:
        raise SamplingError(f"logit_bias: expected ID+BIAS or ID-BIAS, such as 15043-1.5, found {text!r:.40}")
    return int(match[1]), float(match[2])


def _texts(name: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(text, str) for text in given):
        raise SamplingError(f"{name}: expected a list of texts, found {given!r:.80}")
    return tuple(given)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


class SharedSampling:
    """Parameters that one thread changes while another samples; a change holds from the next token on.

    Native code that draws several tokens in a row compares the version before each, and leaves where it has changed.
    The seed is read once, where a generation begins.

    >>> shared = SharedSampling(SamplingParams(temperature=0.8))
    >>> shared.update(temperature=0.2, top_k=20).temperature
    0.2
    >>> shared.params.top_k, shared.version
    (20, 1)
    """

    def __init__(self, params: SamplingParams | None = None) -> None:
        self._counter = np.zeros(1, np.int64)
        self._lock = threading.Lock()
        self._params = params or SamplingParams()

    @property
    def params(self) -> SamplingParams:
        """Those in force."""
        return self._params

    @property
    def version(self) -> int:
        """Goes up by one with every update."""
        return int(self._counter[0])

    @property
    def address(self) -> int:
        """Address of the version, an int64; valid as long as this object lives."""
        return self._counter.ctypes.data

    def snapshot(self) -> tuple[int, SamplingParams]:
        """A version and the parameters that belong to it."""
        with self._lock:
            return self.version, self._params

    def update(self, **changes: Any) -> SamplingParams:
        """Changes the named parameters and returns all of them. SamplingError: nothing was changed."""
        unknown = sorted(changes.keys() - {field.name for field in fields(SamplingParams)})
        if unknown:
            raise SamplingError(f"{unknown[0]}: no such sampling parameter")
        with self._lock:
            self._params = replace(self._params, **changes)
            self._counter += 1
            return self._params
