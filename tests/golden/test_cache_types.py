"""What each type of the cache costs in perplexity, on a recorded text, against a cache in f16."""

import json
import math

import pytest
from support.golden import GOLDEN
from support.models import WITHOUT_SMOLLM2, smollm2_path
from tinyllm_engine.model import Model
from tinyllm_engine.perplexity import perplexity
from tinyllm_engine.runner import Runner

pytestmark = pytest.mark.golden
WINDOW = 320  # tokens; half of them are scored
# nats a token, either way: so few of them are as near as 0.01 where nothing but the rounding of a pass differs
ALLOWED = {("bf16", "bf16"): 0.02, ("q8_0", "q8_0"): 0.02, ("q8_0", "q4_0"): 0.03, ("q4_0", "q4_0"): 0.04}


@pytest.fixture(scope="module")
def surprise():
    """Of a pair of types: nats for each token."""
    model = Model.open(smollm2_path() or pytest.skip(WITHOUT_SMOLLM2))
    text = (GOLDEN / json.loads((GOLDEN / "perplexity.json").read_text())["text"]).read_text(encoding="utf-8")
    ids = model.tokenizer.encode(text[: 8 * WINDOW])[:WINDOW]

    def measured(k_type, v_type):
        runner = Runner(model, context_length=WINDOW, k_type=k_type, v_type=v_type)
        try:
            return math.log(perplexity(runner, ids, WINDOW).value)
        finally:
            runner.close()

    return measured


@pytest.fixture(scope="module")
def usual(surprise):
    return surprise("f16", "f16")


@pytest.mark.parametrize("types", ALLOWED, ids="/".join)
def test_perplexity(types, surprise, usual):
    assert surprise(*types) == pytest.approx(usual, abs=ALLOWED[types])
