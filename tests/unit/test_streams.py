"""Several residual streams: the kernels of a pass against their twins; and whose keys the last blocks use."""

from types import SimpleNamespace

import pytest
from support.golden import toy_tokens, write_toy_model
from tinyllm_engine.architectures import ARCHITECTURES
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.twins import check_pass


@pytest.mark.parametrize("threads", [1, 3])
def test_kernels_compute_what_their_twins_say(tmp_path, threads):
    model = Model.open(write_toy_model(tmp_path, "gemma3n-few", "more"))
    runner = Runner(model, context_length=64, threads=threads)
    try:
        for ids in (toy_tokens(5), [7]):
            check_pass(runner, ids)
    finally:
        runner.close()


def test_gemma_3n_has_keys_in_twenty_blocks():
    shared = ARCHITECTURES["gemma3n"].shared_keys
    assert [shared(SimpleNamespace(block_count=count)) for count in (5, 20, 30, 35)] == [0, 0, 10, 15]


def test_blocks_without_keys_use_those_of_the_last_block_of_their_kind(tmp_path):
    weights = Model.open(write_toy_model(tmp_path, "gemma4-small", "more")).weights
    attention = [layer.mixers[0] for layer in weights.layers]
    assert [part.source for part in attention] == [None, None, None, None, 2, 3]
    assert [part.key_length for part in attention] == [16, 32, 16, 32, 16, 32]
    assert [layer.cached.heads for layer in weights.layers] == [2, 1, 2, 1, 0, 0]
