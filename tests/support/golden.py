"""The recorded answers under tests/golden, and models to compare with them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.loading import module_at

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@cache
def toy_models() -> ModuleType:
    """The generator of the toy models, loaded from its own folder."""
    return module_at(GOLDEN / "archs" / "toy_models.py")


@cache
def family_toys() -> ModuleType:
    """The dense decoders of `families`, written down by what they are."""
    return module_at(GOLDEN / "families" / "toys.py")


def write_family_toy(folder: Path, name: str) -> Path:
    toys, path = family_toys(), folder / f"{name}.gguf"
    toy_models().write(str(path), toys.TOYS[name].spec(), toys.seed_of(name))
    return path


@cache
def toy_specs(collection: str = "archs") -> dict[str, Any]:
    """The toy models of a folder."""
    return json.loads((GOLDEN / collection / "specs.json").read_text())


def write_toy_model(folder: Path, name: str, collection: str = "archs", **metadata: Any) -> Path:
    """Writes the toy model of this name; `metadata` replaces values, under the keys' last part (`block_count=1`)."""
    spec = json.loads(json.dumps(toy_specs(collection)[name]))
    for pair in spec["kv"]:
        pair[2] = metadata.get(pair[0].rsplit(".", 1)[-1], pair[2])
    path = folder / f"{name}.gguf"
    toy_models().write(str(path), spec, spec.get("seed", 1))
    return path


def toy_tokens(count: int = 64) -> list[int]:
    return toy_models().tokens(count)


def one_by_one(sequence: Any, tokens: list[int]) -> NDArray[np.float32]:
    return np.stack([sequence.forward([id]) for id in tokens])


def in_batches_of_7(sequence: Any, tokens: list[int]) -> NDArray[np.float32]:
    batches = [tokens[at : at + 7] for at in range(0, len(tokens), 7)]
    return np.concatenate([sequence.forward(batch, all_logits=True) for batch in batches])


def at_once(sequence: Any, tokens: list[int]) -> NDArray[np.float32]:
    return sequence.forward(tokens, all_logits=True)


def recorded_logits(collection: str, name: str) -> NDArray[np.float32]:
    """llama.cpp's answer to a toy model: [tokens, vocabulary]."""
    with np.load(GOLDEN / collection / "logits.npz") as recorded:
        return recorded[name]


FEEDS = (one_by_one, in_batches_of_7, at_once)  # logits [tokens, vocabulary], the same however tokens are fed


def nmse(found: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    """Normalized mean squared error: mse(found, expected) / mse(expected, 0)."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    return float(np.mean((found - expected) ** 2) / np.mean(expected**2))
