"""Toy models of every variant of an architecture: the logits that llama.cpp recorded, to a float32's precision."""

import numpy as np
import pytest
from support.engines import ENGINES, running
from support.golden import GOLDEN, nmse, toy_specs, toy_tokens, write_toy_model

pytestmark = pytest.mark.golden
NAMES = [name for name in toy_specs() if name.startswith("llama-") and name != "llama-moe"]
TOKENS = toy_tokens()


@pytest.fixture(scope="module")
def recorded():
    return np.load(GOLDEN / "archs" / "logits.npz")


@pytest.fixture(scope="module")
def toy_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    return lambda name: path if (path := folder / f"{name}.gguf").exists() else write_toy_model(folder, name)


def one_by_one(sequence):
    return np.stack([sequence.forward([id]) for id in TOKENS])


def in_batches_of_7(sequence):
    return np.concatenate([sequence.forward(TOKENS[at : at + 7], all_logits=True) for at in range(0, len(TOKENS), 7)])


def at_once(sequence):
    return sequence.forward(TOKENS, all_logits=True)


@pytest.mark.parametrize("feed", [one_by_one, in_batches_of_7, at_once])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", ENGINES)
def test_logits(engine, name, feed, toy_path, recorded):
    with running(engine, toy_path(name)) as runner:
        assert nmse(feed(runner.sequence()), recorded[name]) <= 1e-6
