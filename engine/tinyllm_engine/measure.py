"""How well a model predicts a text, and how fast it runs here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.cancel import Cancel
from tinyllm_engine.errors import EngineError
from tinyllm_engine.sampling import Sampler, SamplingParams

LOGIT_ROWS = 64  # scored at a time: a row of a large vocabulary takes half a megabyte
Progress = Callable[[str, int, int], None]  # stage in plain words, done, total


@dataclass(frozen=True, slots=True)
class Perplexity:
    value: float  # exp of the mean surprise
    tokens: int  # scored
    windows: int
    seconds: float


def perplexity(
    runner: Any,
    ids: Sequence[int],
    context: int = 512,
    bos_id: int | None = None,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> Perplexity:
    """The perplexity of a text by the method of llama-perplexity, so that figures can be compared.

    `ids` is the text tokenized once. It is cut into windows of `context` tokens, a shorter rest is left out; each is
    evaluated from an empty cache, and the tokens of its second half are scored, so that each has at least half a window
    before it. `bos_id`, for models that begin with one, replaces the first token of every window.

    Raises EngineError if not one window comes together or it does not fit the runner's context, and CancelledError.
    """
    if not 4 <= context <= runner.context_length:
        raise EngineError(f"perplexity: expected a context of 4 to {runner.context_length} tokens, found {context}")
    windows = len(ids) // context
    if windows == 0:
        raise EngineError(f"perplexity: expected a text of at least {context} tokens, found {len(ids)}")
    started = time.perf_counter()
    sequence = runner.sequence()
    surprise, scored, half = 0.0, 0, context // 2
    for window in range(windows):
        tokens = list(ids[window * context : (window + 1) * context])
        if bos_id is not None:
            tokens[0] = bos_id
        sequence.truncate(0)
        sequence.forward(tokens[:half], cancel=cancel)
        for start in range(half, context - 1, LOGIT_ROWS):
            end = min(start + LOGIT_ROWS, context - 1)
            logits = sequence.forward(tokens[start:end], all_logits=True, cancel=cancel)  # [rows, vocab]
            surprise += surprise_of(logits, tokens[start + 1 : end + 1])
            scored += end - start
        if progress is not None:
            progress("scoring", window + 1, windows)
    return Perplexity(math.exp(surprise / scored), scored, windows, time.perf_counter() - started)


def surprise_of(logits: NDArray[np.float32], ids: Sequence[int]) -> float:
    """Sum of -ln p(id) over rows: logits float32 [rows, vocab], one id for each row."""
    highest = logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(logits - highest).sum(axis=1, dtype=np.float64))  # [rows]
    chosen = logits[np.arange(len(ids)), ids] - highest[:, 0]
    return float((log_sums - chosen).sum())


@dataclass(frozen=True, slots=True)
class Prefill:
    tokens: int
    tokens_per_second: float  # median
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Decode:
    tokens: int
    tokens_per_second: float  # median
    gb_per_second: float  # weights read for one token, times tokens_per_second
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """Medians of several runs, and the runs. `dataclasses.asdict` makes the JSON of it."""

    prefill: Prefill
    decode: Decode
    first_token_seconds: float  # a prompt of that many tokens, and one token drawn
    weight_bytes_per_token: int


def bench(
    runner: Any,
    prompt: int = 512,
    predict: int = 128,
    runs: int = 3,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> Bench:
    """Measures reading a prompt and writing token by token, each from an empty cache, the way llama-bench does.

    Decoding is measured without drawing tokens (some 0.1 ms each for a vocabulary of 50 000). Raises EngineError for
    numbers below 1 or beyond the context, and CancelledError.
    """
    for name, count in (("prompt", prompt), ("predict", predict)):
        if not 1 <= count <= runner.context_length:
            raise EngineError(f"bench: expected {name} from 1 to {runner.context_length} tokens, found {count}")
    if runs < 1:
        raise EngineError(f"bench: expected at least one run, found {runs}")
    sequence = runner.sequence()
    vocabulary = runner.model.tensors["token_embd.weight"].rows
    ids = np.random.default_rng(0).integers(0, vocabulary, max(prompt, predict)).tolist()
    sampler = Sampler(SamplingParams(seed=0))

    def timed(work: Callable[[], object]) -> float:
        sequence.truncate(0)
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    def read() -> NDArray[np.float32]:
        return sequence.forward(ids[:prompt], cancel=cancel)

    def write() -> None:
        for id in ids[:predict]:
            sequence.forward([id], cancel=cancel)

    def answer() -> None:
        sampler.sample(read(), ids[:prompt])

    seconds: dict[str, list[float]] = {"reading": [], "writing": [], "first token": []}
    works = {"reading": read, "writing": write, "first token": answer}
    timed(answer)  # pages of the file, caches and clocks are cold the first time
    for run in range(runs):
        for step, (stage, work) in enumerate(works.items()):
            seconds[stage].append(timed(work))
            if progress is not None:
                progress(stage, run * len(works) + step + 1, runs * len(works))

    weight_bytes = weight_bytes_per_token(runner.model)
    prefill_runs = tuple(prompt / s for s in seconds["reading"])
    decode_runs = tuple(predict / s for s in seconds["writing"])
    return Bench(
        prefill=Prefill(prompt, median(prefill_runs), prefill_runs),
        decode=Decode(predict, median(decode_runs), median(decode_runs) * weight_bytes / 1e9, decode_runs),
        first_token_seconds=median(seconds["first token"]),
        weight_bytes_per_token=weight_bytes,
    )


def weight_bytes_per_token(model: Any) -> int:
    """Bytes of weights that one decoded token reads: all, but of the embedding one row unless it is the output too."""
    total = sum(tensor.nbytes for tensor in model.tensors.values())
    embedding = model.tensors["token_embd.weight"]
    return total if "output.weight" not in model.tensors else total - embedding.nbytes + embedding.row_bytes
