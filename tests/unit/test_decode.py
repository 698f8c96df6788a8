"""Several tokens in one native call: the same tokens that one call at a time would draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.golden import write_toy_model
from tinyllm_engine import Cancel, Model, Runner, SamplingParams, SharedSampling
from tinyllm_engine.errors import ContextFullError, NonFiniteLogitsError
from tinyllm_engine.kernels.sample import NativeSampler

PROMPT = [5, 17, 3, 99, 42]
NONE = np.zeros(128, np.bool_)


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("decode")
    runner = Runner(Model.open(write_toy_model(folder, "llama-plain")), context_length=100, kv_type="f32")
    yield runner
    runner.close()


def one_by_one(runner, params: SamplingParams, count: int) -> list[tuple[int, float]]:
    sequence, sampler = runner.sequence(), NativeSampler(params)
    sequence.truncate(0)
    tokens, drawn = list(PROMPT), []
    logits = sequence.forward(tokens)
    for _ in range(count):
        id, logprob = sampler.sample(logits, tokens)
        drawn.append((id, logprob))
        tokens.append(id)
        logits = sequence.forward([id])
    return drawn


def start(runner, params) -> tuple:
    """The sequence after the prompt, the sampler, and the tokens with the first draw."""
    sequence, sampler = runner.sequence(), NativeSampler(params)
    sequence.truncate(0)
    first, _ = sampler.sample(sequence.forward(PROMPT), PROMPT)
    return sequence, sampler, [*PROMPT, first]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(seed=1),
        SamplingParams(seed=2, temperature=1.5, top_k=0, top_p=1, min_p=0),
        SamplingParams(seed=3, repeat_penalty=1.4, repeat_last_n=4, presence_penalty=0.5),
        SamplingParams(seed=4, frequency_penalty=0.7, repeat_last_n=-1, typical_p=0.8),
    ],
)
@pytest.mark.parametrize("many", [1, 3, 8])
def test_the_same_tokens_as_one_call_each(runner, params, many):
    expected = one_by_one(runner, params, 20)
    sequence, sampler, tokens = start(runner, params)
    logprobs = []
    while len(tokens) < len(PROMPT) + 20:
        drawn = sequence.decode(tokens[-1], sampler, tokens, NONE, many, None)
        assert sequence.tokens == [*tokens, *drawn.ids][:-1]
        tokens += drawn.ids
        logprobs += drawn.logprobs
    assert tokens[len(PROMPT) :][:20] == [id for id, _ in expected]
    assert logprobs[:19] == [logprob for _, logprob in expected[1:]]


def test_a_token_that_ends_the_generation_ends_the_call(runner):
    params = SamplingParams(temperature=0)
    third = one_by_one(runner, params, 3)[2][0]
    eog = NONE.copy()
    eog[third] = True
    sequence, sampler, tokens = start(runner, params)
    drawn = []
    while not drawn or not eog[drawn[-1]]:
        drawn += sequence.decode(tokens[-1], sampler, tokens, eog, 8, None).ids
        tokens = [*tokens[: len(PROMPT) + 1], *drawn]
    assert len(drawn) == 2
    assert sequence.tokens == tokens[:-1]


def test_a_change_of_sampling_holds_for_the_next_call(runner):
    shared = SharedSampling(SamplingParams(seed=9, temperature=2.0, top_k=0, top_p=1, min_p=0))
    sequence, sampler, tokens = start(runner, shared)
    shared.update(temperature=0)
    drawn = sequence.decode(tokens[-1], sampler, tokens, NONE, 1, None).ids
    sequence.truncate(len(tokens) - 1)
    assert drawn == [int(sequence.forward([tokens[-1]]).argmax())]


def test_cancelled_before_it_begins(runner):
    sequence, sampler, tokens = start(runner, SamplingParams(seed=1))
    cancel = Cancel()
    cancel.set()
    drawn = sequence.decode(tokens[-1], sampler, tokens, NONE, 8, cancel)
    assert drawn.ids == []
    assert sequence.tokens == PROMPT
    cancel.clear()
    assert sequence.decode(tokens[-1], sampler, tokens, NONE, 1, cancel).ids


def test_it_stays_inside_the_context(runner):
    sequence, sampler = runner.sequence(), NativeSampler(SamplingParams(seed=1))
    sequence.truncate(0)
    tokens = [i % 128 for i in range(97)]
    sequence.forward(tokens)
    tokens.append(7)
    drawn = []
    while len(drawn) < 3:
        drawn += sequence.decode([*tokens, *drawn][-1], sampler, [*tokens, *drawn], NONE, 8, None).ids
    assert len(drawn) == 3
    assert sequence.position == runner.context_length
    with pytest.raises(ContextFullError):
        sequence.decode(drawn[-1], sampler, [*tokens, *drawn], NONE, 8, None)
    assert sequence.position == runner.context_length


def test_logits_that_are_not_finite_are_an_error_with_a_name(tmp_path):
    model = Model.open(write_toy_model(tmp_path, "llama-plain"))
    broken = model.weights.output_norm.copy()
    broken[3] = np.nan
    object.__setattr__(model.weights, "output_norm", broken)
    runner = Runner(model, context_length=64, kv_type="f32")
    sequence, sampler = runner.sequence(), NativeSampler(SamplingParams(seed=1))
    with pytest.raises(NonFiniteLogitsError, match="128 of 128"):
        sequence.decode(5, sampler, [5], NONE, 4, None)
    assert sequence.tokens == [5]
    runner.close()
