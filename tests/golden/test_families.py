"""Dense decoders in many shapes: odd layer counts, absent keys, optional tensors, keys that a family ignores."""

import numpy as np
import pytest
from support.engines import ENGINES, running
from support.golden import GOLDEN, family_toys, nmse, toy_specs, write_family_toy
from tinyllm_engine.architectures import ARCHITECTURES

pytestmark = pytest.mark.golden
TOYS = family_toys()
TOKENS = TOYS.tokens()


@pytest.fixture(scope="module")
def recorded():
    return np.load(GOLDEN / "families" / "logits.npz")


def test_every_model_has_its_answer(recorded):
    assert set(recorded) == set(TOYS.TOYS)


def test_every_architecture_has_a_recorded_model():
    specs = [spec for collection in ("archs", "more") for spec in toy_specs(collection).values()]
    recorded = {value for spec in specs for key, _, value in spec["kv"] if key == "general.architecture"}
    recorded |= {toy.architecture for toy in TOYS.TOYS.values()}
    assert set(ARCHITECTURES) - recorded == set()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", TOYS.TOYS)
def test_logits(name, engine, tmp_path, recorded):
    """One by one, then in batches."""
    with running(engine, write_family_toy(tmp_path, name)) as runner:
        sequence = runner.sequence()
        found = [sequence.forward([id])[None] for id in TOKENS[:7]]
        found += [sequence.forward(TOKENS[at : at + 9], all_logits=True) for at in range(7, len(TOKENS), 9)]
    assert nmse(np.concatenate(found), recorded[name]) <= 1e-6
