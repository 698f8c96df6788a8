"""Toy models of every architecture: the logits that llama.cpp recorded, to a float32's precision."""

import numpy as np
import pytest
from support.engines import ENGINES, running
from support.golden import GOLDEN, nmse, toy_specs, toy_tokens, write_toy_model
from tinyllm_engine.architectures import architecture_of
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import UnsupportedModelError

pytestmark = pytest.mark.golden
TOKENS = toy_tokens()

# Recorded models whose architecture the engine does not have: a name that is in neither list, or in both, is an error.
MISSING = {
    "bailingmoe2-moe",
    "deepseek2-moe",
    "glm4moe-moe",
    "gpt-oss-moe",
    "granitemoe-moe",
    "lfm2moe-moe",
    "llama-moe",
    "olmoe-moe",
    "qwen2moe-moe",
    "qwen3moe-moe",
    "qwen3next-moe",
}


def is_known(name):
    spec = toy_specs()[name]
    metadata = {key: np.array(value) if isinstance(value, list) else value for key, _, value in spec["kv"]}
    try:
        architecture_of(ModelConfig.from_metadata(metadata))
    except UnsupportedModelError:
        return False
    return True


NAMES = [name for name in toy_specs() if is_known(name)]


def test_every_recorded_model_is_run_or_known_to_be_missing():
    assert set(toy_specs()) - set(NAMES) == MISSING


@pytest.fixture(scope="module")
def recorded():
    return np.load(GOLDEN / "archs" / "logits.npz")


CASES = [(name, engine) for name in NAMES for engine in ENGINES if engine == "native" or name.startswith("llama-")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request, tmp_path_factory):
    name, engine = request.param
    with running(engine, write_toy_model(tmp_path_factory.mktemp("toy"), name)) as runner:
        yield name, runner


def one_by_one(sequence):
    return np.stack([sequence.forward([id]) for id in TOKENS])


def in_batches_of_7(sequence):
    return np.concatenate([sequence.forward(TOKENS[at : at + 7], all_logits=True) for at in range(0, len(TOKENS), 7)])


def at_once(sequence):
    return sequence.forward(TOKENS, all_logits=True)


@pytest.mark.parametrize("feed", [one_by_one, in_batches_of_7, at_once])
def test_logits(case, feed, recorded):
    name, runner = case
    sequence = runner.sequence()
    sequence.truncate(0)
    assert nmse(feed(sequence), recorded[name]) <= 1e-6
