"""The perplexity of a recorded text's beginning, by llama-perplexity's method, against its figures."""

import json

import pytest
from support.engines import running
from support.golden import GOLDEN
from support.models import WITHOUT_SMOLLM2, smollm2_path
from tinyllm_engine.perplexity import perplexity

pytestmark = pytest.mark.golden
RECORDED = json.loads((GOLDEN / "perplexity.json").read_text())
CONTEXT, FIRST = RECORDED["context"], RECORDED["first windows"]  # all of the text takes a minute


def test_perplexity_lies_between_the_exact_one_and_half_a_percent_above_llamacpps():
    path = smollm2_path() or pytest.skip(WITHOUT_SMOLLM2)
    text = (GOLDEN / RECORDED["text"]).read_text(encoding="utf-8")
    with running("native", path, kv_type="f16", context_length=CONTEXT) as runner:
        ids = runner.model.tokenizer.encode(text)[: FIRST["count"] * CONTEXT]
        found = perplexity(runner, ids, CONTEXT)
    exact, llamacpp = FIRST["exact"]["Q4_1 dequantized to float32"], FIRST["llama.cpp"]["Q4_1"]
    assert exact * 0.999 <= found.value <= llamacpp * 1.005
    assert (found.windows, found.tokens) == (FIRST["count"], FIRST["count"] * (CONTEXT // 2 - 1))
