"""Perplexity against its definition."""

import math

import numpy as np
import pytest
from support.golden import toy_tokens, write_toy_model
from tinyllm_engine.errors import EngineError
from tinyllm_engine.model import Model
from tinyllm_engine.perplexity import perplexity, surprise_of
from tinyllm_engine.reference import ReferenceRunner


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    return ReferenceRunner(Model.open(write_toy_model(tmp_path_factory.mktemp("toy"), "llama-gqa")))


def expected(runner, windows):
    """exp of the mean surprise of the tokens behind each first half, one window at a time."""
    surprises = []
    for window in windows:
        logits = runner.sequence().forward(window, all_logits=True).astype(np.float64)
        for i in range(len(window) // 2, len(window) - 1):
            surprises.append(math.log(np.exp(logits[i]).sum()) - logits[i][window[i + 1]])
    return math.exp(sum(surprises) / len(surprises)), len(surprises)


@pytest.mark.parametrize("context", [4, 20, 31, 64])
def test_second_halves_of_whole_windows_are_scored(runner, context):
    ids = toy_tokens(64)
    found = perplexity(runner, ids, context)
    value, scored = expected(runner, [ids[at : at + context] for at in range(0, 64 - context + 1, context)])
    assert found.value == pytest.approx(value, rel=1e-4)
    assert (found.tokens, found.windows) == (scored, 64 // context)


def test_a_bos_token_replaces_the_first_of_each_window(runner):
    ids = toy_tokens(40)
    value, _ = expected(runner, [[1, *ids[1:20]], [1, *ids[21:40]]])
    assert perplexity(runner, ids, 20, bos_id=1).value == pytest.approx(value, rel=1e-4)


def test_more_rows_than_are_scored_at_a_time(runner):
    ids = toy_tokens(200)
    assert perplexity(runner, ids, 200).value == pytest.approx(expected(runner, [ids])[0], rel=1e-4)


def test_surprise_of_extreme_logits_is_finite():
    assert surprise_of(np.array([[500, -500], [0, 0]], np.float32), [1, 0]) == pytest.approx(1000 + math.log(2))


@pytest.mark.parametrize(
    ("count", "context", "message"),
    [(64, 3, "found 3"), (64, 257, "expected a context of 4 to 256 tokens, found 257"), (19, 20, "at least 20 tokens")],
)
def test_what_cannot_be_measured_is_refused(runner, count, context, message):
    with pytest.raises(EngineError, match=message):
        perplexity(runner, toy_tokens(count), context)


def test_progress_counts_windows(runner):
    seen = []
    perplexity(runner, toy_tokens(60), 20, progress=lambda *said: seen.append(said))
    assert seen == [("scoring", done, 3) for done in (1, 2, 3)]
