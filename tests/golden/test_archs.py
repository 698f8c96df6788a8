"""Toy models of every architecture: the logits that llama.cpp recorded, to a float32's precision."""

import numpy as np
import pytest
from support.engines import ENGINES, running
from support.golden import FEEDS, in_batches_of_7, nmse, recorded_logits, toy_specs, toy_tokens, write_toy_model
from tinyllm_engine.architectures import architecture_of
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import UnsupportedModelError

pytestmark = pytest.mark.golden
TOKENS = toy_tokens()

# Recorded models whose architecture the engine does not have: a name that is in neither list, or in both, is an error.
MISSING: set[str] = set()


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


# ... that the reference has no text for: experts, and layers that remember
NATIVE_ONLY = {name for name in NAMES if name.endswith("-moe")} - {"ernie4_5-moe"}
NATIVE_ONLY |= {"falcon-h1-dense", "granitehybrid-dense", "lfm2-dense", "mamba2-dense"}
CASES = [(name, engine) for name in NAMES for engine in ENGINES if engine == "native" or name not in NATIVE_ONLY]
RUNS = [
    pytest.param(case, feed, id=f"{'-'.join(case)}-{feed.__name__}")
    for case in CASES
    for feed in (FEEDS if case[1] == "native" else (in_batches_of_7,))
]


@pytest.fixture(scope="module")
def case(request, tmp_path_factory):
    name, engine = request.param
    with running(engine, write_toy_model(tmp_path_factory.mktemp("toy"), name)) as runner:
        yield name, runner


@pytest.mark.parametrize(("case", "feed"), RUNS, indirect=["case"], scope="module")
def test_logits(case, feed):
    name, runner = case
    sequence = runner.sequence()
    sequence.truncate(0)
    assert nmse(feed(sequence, TOKENS), recorded_logits("archs", name)) <= 1e-6


@pytest.mark.parametrize("name", toy_specs("more"))
def test_logits_of_other_shapes(name, tmp_path):
    expected = recorded_logits("more", name)
    with running("native", write_toy_model(tmp_path, name, "more")) as runner:
        sequence = runner.sequence()
        for feed in FEEDS:
            sequence.truncate(0)
            assert nmse(feed(sequence, TOKENS[: len(expected)]), expected) <= 1e-6, feed.__name__
