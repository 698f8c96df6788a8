"""The perplexity of a recorded text, by llama-perplexity's method, against its figure."""

import json

import pytest
from support.engines import running
from support.golden import GOLDEN
from support.models import WITHOUT_SMOLLM2, smollm2_path
from tinyllm_engine.perplexity import perplexity

pytestmark = pytest.mark.golden
RECORDED = json.loads((GOLDEN / "perplexity.json").read_text())
EXACT = RECORDED["exact"]["Q4_1 dequantized to float32"]


def test_perplexity_lies_between_the_exact_one_and_half_a_percent_above_llamacpps():
    path = smollm2_path() or pytest.skip(WITHOUT_SMOLLM2)
    text = (GOLDEN / RECORDED["text"]).read_text(encoding="utf-8")
    with running("native", path, kv_type="f16", context_length=RECORDED["context"]) as runner:
        found = perplexity(runner, runner.model.tokenizer.encode(text), RECORDED["context"])
    assert EXACT * 0.999 <= found.value <= RECORDED["llama.cpp"]["Q4_1"] * 1.005
    assert found.tokens == found.windows * (RECORDED["context"] // 2 - 1)
