"""One-layer models whose matrices are all of one type, against the answer with those weights as float32."""

import numpy as np
import pytest
from support.engines import running
from support.golden import GOLDEN, nmse, toy_tokens

pytestmark = pytest.mark.golden
QUANTS = GOLDEN / "quants"
TYPES = ["base-F32", *(f"llama-{name}" for name in ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q6_K"))]
TOKENS = toy_tokens(32)
SLACK = 1.1  # of llama.cpp's own distance from the exact answer
FLOAT32 = 1e-6


@pytest.fixture(scope="module")
def exact():
    return np.load(QUANTS / "exact.npz")


@pytest.fixture(scope="module")
def llamacpp():
    return np.load(QUANTS / "llamacpp.npz")


@pytest.mark.parametrize("name", TYPES)
def test_reference_is_exact(name, exact):
    with running("reference", QUANTS / f"{name}.gguf") as runner:
        assert nmse(runner.sequence().forward(TOKENS, all_logits=True), exact[name]) <= FLOAT32


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("name", TYPES)
def test_native_is_no_farther_from_exact_than_llamacpp(name, batch, exact, llamacpp):
    with running("native", QUANTS / f"{name}.gguf") as runner:
        sequence = runner.sequence()
        parts = [sequence.forward(TOKENS[at : at + batch], all_logits=True) for at in range(0, len(TOKENS), batch)]
    assert nmse(np.concatenate(parts), exact[name]) <= max(FLOAT32, SLACK * nmse(llamacpp[name], exact[name]))
