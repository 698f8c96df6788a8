"""One-layer models whose matrices are all of one type: how far an answer is from the exact one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from support.engines import running
from support.golden import GOLDEN, nmse, toy_tokens

QUANTS = GOLDEN / "quants"
TOKENS = toy_tokens(32)
BATCHES = (1, 32)
SLACK = 1.1  # of llama.cpp's own distance from the exact answer
FLOAT32 = 1e-6


@dataclass(frozen=True, slots=True)
class Measured:
    """NMSE from the logits of the weights as float32."""

    ours: float
    llamacpp: float

    @property
    def limit(self) -> float:
        return max(FLOAT32, SLACK * self.llamacpp)


def type_names() -> list[str]:
    return sorted(path.stem for path in QUANTS.glob("*.gguf"))


def logits(engine: str, path: Path, batch: int = 32) -> NDArray[np.float32]:
    """[tokens, vocabulary]"""
    with running(engine, path) as runner:
        sequence = runner.sequence()
        parts = [sequence.forward(TOKENS[at : at + batch], all_logits=True) for at in range(0, len(TOKENS), batch)]
    return np.concatenate(parts)


def exact_logits(name: str) -> NDArray[np.float32]:
    """The recorded ones, or, for the types that have none, those of the reference in NumPy."""
    with np.load(QUANTS / "exact.npz") as recorded:
        if name in recorded:
            return recorded[name]
    return logits("reference", QUANTS / f"{name}.gguf")


def measured(name: str, batch: int) -> Measured:
    exact = exact_logits(name)
    with np.load(QUANTS / "llamacpp.npz") as recorded:
        llamacpp = nmse(recorded[name], exact)
    return Measured(nmse(logits("native", QUANTS / f"{name}.gguf", batch), exact), llamacpp)
