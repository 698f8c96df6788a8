"""Toy models with a quantized cache: near the recorded logits, whatever their way of attention is."""

import pytest
from support.engines import running
from support.golden import FEEDS, nmse, recorded_logits, toy_tokens, write_toy_model

pytestmark = pytest.mark.golden
# (name, folder, type of the cache, error allowed); experts are chosen by what is left of small differences
CASES = [
    ("deepseek2-yarn", "more", "q8_0", 1.5e-2),  # one latent key for all heads
    ("deepseek2-kvb", "more", "q8_0", 6e-3),
    ("gpt-oss-yarn", "more", "q8_0", 7e-3),  # sinks and windows
    ("gemma2-dense", "archs", "q8_0", 5e-6),  # softcap and windows
    ("gemma2-dense", "archs", "q4_0", 7e-4),
    ("bloom-dense", "archs", "q8_0", 1.5e-3),  # ALiBi
    ("bloom-dense", "archs", "q4_0", 0.15),
]


@pytest.mark.parametrize(("name", "folder", "kind", "allowed"), CASES)
def test_logits(name, folder, kind, allowed, tmp_path):
    path, expected = write_toy_model(tmp_path, name, folder), recorded_logits(folder, name)
    with running("native", path, kv_type=kind) as runner:
        for feed in FEEDS:
            runner.truncate(0)
            assert nmse(feed(runner.sequence(), toy_tokens(len(expected))), expected) <= allowed
