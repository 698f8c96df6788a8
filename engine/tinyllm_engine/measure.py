"""How fast a model runs here: reading a prompt, writing behind it, and where the time of either goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.decode import MANY
from tinyllm_engine.errors import EngineError
from tinyllm_engine.model import Progress
from tinyllm_engine.profile import SAMPLING, Pass, Profile, profile_of
from tinyllm_engine.sampling import SamplingParams
from tinyllm_engine.sampling.native import NativeSampler


@dataclass(frozen=True, slots=True)
class Prefill:
    """Reading a prompt from an empty cache."""

    tokens: int
    tokens_per_second: float  # median
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Decode:
    """Writing token by token what is known already: nothing is drawn."""

    tokens: int
    tokens_per_second: float  # median
    gb_per_second: float  # weights read for one token, times tokens_per_second
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Writing as a chat does: each token drawn from the logits of the one before, several in one native call."""

    tokens: int
    tokens_per_second: float  # median
    sampling_percent: float | None  # of the time; None where there are no clocks
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a runner takes in megabytes, the mapped model file not included."""

    private_mb: float | None  # what the process has for itself beyond `cache_mb`; None where the system does not say
    cache_mb: float  # pages of the KV cache in use


@dataclass(frozen=True, slots=True)
class Bench:
    """Medians of several runs, and the runs. `dataclasses.asdict` makes the JSON of it."""

    prefill: Prefill
    decode: Decode
    sampled: Sampled
    first_token_seconds: float  # a prompt of that many tokens, and one token drawn
    depth: int  # tokens in the cache before `decode` and `sampled`
    weight_bytes_per_token: int
    memory: Memory


@dataclass(frozen=True, slots=True)
class Profiles:
    """Reading a prompt, and writing as `Sampled` does: of several runs those of median time."""

    prefill: Profile
    decode: Profile


def bench(
    runner: Any,
    prompt: int = 512,
    predict: int = 128,
    runs: int = 3,
    depth: int = 0,
    progress: Progress | None = None,
) -> Bench:
    """Measures reading a prompt from an empty cache and writing behind `depth` tokens, the way llama-bench does.

    Raises EngineError for numbers below 1 or beyond the context.
    """
    work = Workload(runner, prompt, predict, depth, runs)
    stages = {
        "reading": (work.read, 0),
        "writing": (work.write, depth),
        "drawing": (work.draw, depth),
        "first token": (work.answer, 0),
    }
    seconds: dict[str, list[float]] = {stage: [] for stage in stages}
    work.seconds(work.answer, 0)  # pages of the file, caches and clocks are cold the first time
    for run in range(runs):
        for step, (stage, (do, position)) in enumerate(stages.items()):
            seconds[stage].append(work.seconds(do, position))
            if progress is not None:
                progress(stage, run * len(stages) + step + 1, runs * len(stages))

    memory = memory_of(runner)
    weight_bytes = weight_bytes_per_token(runner.model)
    prefill_runs = tuple(prompt / s for s in seconds["reading"])
    decode_runs = tuple(predict / s for s in seconds["writing"])
    sampled_runs = tuple(predict / s for s in seconds["drawing"])
    return Bench(
        prefill=Prefill(prompt, median(prefill_runs), prefill_runs),
        decode=Decode(predict, median(decode_runs), median(decode_runs) * weight_bytes / 1e9, decode_runs),
        sampled=Sampled(predict, median(sampled_runs), _sampling_percent(work.profile_draw()), sampled_runs),
        first_token_seconds=median(seconds["first token"]),
        depth=depth,
        weight_bytes_per_token=weight_bytes,
        memory=memory,
    )


def profiles(
    runner: Any,
    prompt: int = 512,
    predict: int = 128,
    runs: int = 3,
    depth: int = 0,
    progress: Progress | None = None,
) -> Profiles:
    """Where the time of `bench` goes. Raises as `bench` does, and EngineError on systems without clocks."""
    work = Workload(runner, prompt, predict, depth, runs)
    reading, writing = [], []
    for run in range(runs):
        reading.append(work.profile_read())
        writing.append(work.profile_draw())
        if progress is not None:
            progress("profiling", run + 1, runs)
    return Profiles(_middle(reading), _middle(writing))


class Workload:
    """What is measured. Raises EngineError for what cannot be."""

    def __init__(self, runner: Any, prompt: int, predict: int, depth: int, runs: int):
        room = runner.context_length
        if not 0 <= depth < room:
            raise EngineError(f"bench: expected depth from 0 to {room - 1} tokens, found {depth}")
        for name, count, most in (("prompt", prompt, room), ("predict", predict, room - depth)):
            if not 1 <= count <= most:
                raise EngineError(f"bench: expected {name} from 1 to {most} tokens, found {count}")
        if runs < 1:
            raise EngineError(f"bench: expected at least one run, found {runs}")
        self.runner, self.sequence = runner, runner.sequence()
        self.prompt, self.predict, self.depth = prompt, predict, depth
        self.vocabulary = runner.model.tensors["token_embd.weight"].rows
        self.ids = np.random.default_rng(0).integers(0, self.vocabulary, max(prompt, predict, depth)).tolist()

    def read(self) -> NDArray[np.float32]:
        """The whole prompt."""
        return self.sequence.forward(self.ids[: self.prompt])

    def write(self) -> None:
        """Tokens that are known already, one by one."""
        for id in self.ids[: self.predict]:
            self.sequence.forward([id])

    def draw(self) -> None:
        """Tokens drawn with the default sampling; none of them ends it."""
        sampler, never = NativeSampler(SamplingParams(seed=0)), np.zeros(self.vocabulary, np.bool_)
        tokens = self.ids[:1]
        while (left := self.predict + 1 - len(tokens)) > 0:
            drawn = self.sequence.decode(tokens[-1], sampler, tokens, never, min(MANY, left), None)
            tokens += drawn.ids

    def answer(self) -> None:
        """The prompt, and the first token of an answer to it."""
        NativeSampler(SamplingParams(seed=0)).sample(self.read(), self.ids[: self.prompt])

    def seconds(self, do: Callable[[], object], position: int) -> float:
        """How long it takes with so many tokens in the cache."""
        self._fill(position)
        started = time.perf_counter()
        do()
        return time.perf_counter() - started

    def profile_read(self) -> Profile:
        """Where the time of `read` goes."""
        step = self.runner.state.max_rows
        passes = [Pass(start, min(step, self.prompt - start)) for start in range(0, self.prompt, step)]
        return self._profile(self.read, 0, passes, "calls")

    def profile_draw(self) -> Profile:
        """Where the time of `draw` goes."""
        passes = [Pass(self.depth + i, 1) for i in range(self.predict)]
        return self._profile(self.draw, self.depth, passes, SAMPLING)

    def _profile(self, do: Callable[[], object], position: int, passes: list[Pass], rest: str) -> Profile:
        self._fill(position)
        self.runner.profile(True)
        try:
            started = time.perf_counter()
            do()
            seconds = time.perf_counter() - started
        finally:
            measured = self.runner.profile(False)  # of the program for one row, and of the one for a batch
        by_program = [one for one in passes if one.rows == 1], [one for one in passes if one.rows > 1]
        return profile_of(measured, by_program, self.runner.state.outputs_address, seconds, rest)

    def _fill(self, position: int) -> None:
        self.sequence.truncate(0)
        if position:
            self.sequence.forward(self.ids[:position])


def _middle(found: list[Profile]) -> Profile:
    """The one of median time; of two in the middle the shorter one."""
    if _sampling_percent(found[0]) is None:
        raise EngineError("profile: native code can read no clock on this system")
    return sorted(found, key=lambda profile: profile.seconds)[(len(found) - 1) // 2]


def _sampling_percent(profile: Profile) -> float | None:
    """The share of sampling; None if the clocks stood still."""
    if len(profile.costs) < 2:
        return None
    return sum(cost.percent for cost in profile.costs if cost.name == SAMPLING)


def weight_bytes_per_token(model: Any) -> int:
    """Bytes of weights that one decoded token reads: all, but of the embedding one row unless it is the output too."""
    total = sum(tensor.nbytes for tensor in model.tensors.values())
    embedding = model.tensors["token_embd.weight"]
    return total if "output.weight" not in model.tensors else total - embedding.nbytes + embedding.row_bytes


def memory_of(runner: Any) -> Memory:
    """What this process has in memory for itself, the mapped model file not included."""
    cache = runner.cache.bytes_in_use
    private = private_bytes()
    return Memory(None if private is None else (private - cache) / 1e6, cache / 1e6)


def private_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Anonymous memory of this process; None where the system does not say."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("RssAnon:")]
    return kilobytes[0] * 1024 if kilobytes else None
