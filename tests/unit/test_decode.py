"""Several tokens in one native call are the tokens that single calls would have given."""

import numpy as np
import pytest
from support.golden import GOLDEN, toy_tokens
from tinyllm_engine.cancel import Cancel
from tinyllm_engine.errors import ContextFullError, NonFiniteLogitsError
from tinyllm_engine.memory import array_at
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.sampling import SamplingParams, SharedSampling
from tinyllm_engine.sampling.native import NativeSampler

GREEDY = SamplingParams(temperature=0)
NO_END = np.zeros(128, np.bool_)


@pytest.fixture(scope="module")
def model():
    return Model.open(GOLDEN / "quants" / "llama-Q4_0.gguf")


@pytest.fixture
def make(model):
    """Makes runners of the model that are closed at the end."""
    made = []

    def runner(context_length=256, threads=2):
        made.append(Runner(model, context_length=context_length, threads=threads))
        return made[-1]

    yield runner
    for one in made:
        one.close()


@pytest.fixture
def sequence(make):
    return make().sequence()


def decoded(sequence, last, count, params=GREEDY, eog=NO_END, cancel=None):
    """The next `count` tokens after `last`, fewer where an end is drawn. A call may give fewer than it is asked for."""
    sampler, ids, before = NativeSampler(params), [], list(sequence.tokens)
    while len(ids) < count:
        tokens = [*before, last, *ids]
        drawn = sequence.decode(tokens[-1], sampler, tokens, eog, count - len(ids), cancel)
        assert len(drawn.ids) == len(drawn.logprobs)
        ids += drawn.ids
        if not drawn.ids or eog[ids[-1]]:
            break
    return ids


def drawn_one_by_one(sequence, last, count, params=GREEDY):
    sampler, tokens = NativeSampler(params), [*sequence.tokens, last]
    for _ in range(count):
        tokens.append(sampler.sample(sequence.forward(tokens[-1:]), tokens)[0])
    return tokens[-count:]


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=1.5, top_k=0, seed=3, repeat_penalty=1.3)])
@pytest.mark.parametrize("threads", [1, 3])
def test_tokens_drawn_natively_are_those_drawn_one_by_one(make, threads, params):
    sequence = make(threads=threads).sequence()
    sequence.forward(toy_tokens(60))
    expected = drawn_one_by_one(sequence, 3, 12, params)
    sequence.truncate(60)
    found = decoded(sequence, 3, 12, params)
    assert found == expected
    evaluated = [*toy_tokens(60), 3, *found[:-1]]  # the last one is not
    assert sequence.tokens == evaluated
    assert sequence.runner.cache.pages_in_use == 2
    assert np.array_equal(sequence.forward([5]), make().forward([*evaluated, 5]))


def test_nothing_is_drawn_past_an_end(sequence):
    sequence.forward(toy_tokens(10))
    free = decoded(sequence, 3, 12)
    sequence.truncate(10)
    eog = NO_END.copy()
    eog[free[5]] = True
    found = decoded(sequence, 3, 12, eog=eog)
    assert found == free[: free.index(free[5]) + 1]
    assert sequence.tokens == [*toy_tokens(10), 3, *found[:-1]]


def test_tokens_are_drawn_up_to_the_end_of_the_context(make):
    sequence = make(context_length=70).sequence()
    sequence.forward(toy_tokens(66))
    with pytest.raises(ContextFullError, match="0 of 70 are free"):
        decoded(sequence, 3, 12)
    assert sequence.position == 70


def test_a_flag_that_is_set_draws_nothing(sequence):
    sequence.forward(toy_tokens(10))
    cancel = Cancel()
    cancel.set()
    assert decoded(sequence, 3, 5, cancel=cancel) == []
    assert sequence.tokens == toy_tokens(10)
    cancel.clear()
    assert len(decoded(sequence, 3, 5, cancel=cancel)) == 5


def test_a_change_of_parameters_ends_the_call_with_a_token_drawn_by_the_new_ones(sequence):
    sequence.forward(toy_tokens(10))
    expected = drawn_one_by_one(sequence, 3, 1, SamplingParams(temperature=0, logit_bias={7: 100.0}))
    sequence.truncate(10)
    shared = SharedSampling(GREEDY)
    sampler = NativeSampler(shared)
    tokens = [*sequence.tokens, 3]
    assert sampler.alone
    shared.update(logit_bias={7: 100.0})  # after the sampler has looked: as if native code were under way
    drawn = sequence.decode(3, sampler, tokens, NO_END, 5, None)
    assert drawn.ids == expected == [7]
    assert sequence.tokens == [*toy_tokens(10), 3]
    assert sampler.drawn == 1
    assert sampler.alone
    assert sequence.decode(7, sampler, [*tokens, 7], NO_END, 5, None).ids[0] == 7


def test_logits_that_are_not_finite_are_an_error_with_a_name(sequence):
    """A value in the cache that has become no number reaches the logits, and those are no token."""
    sequence.forward(toy_tokens(10))
    cache, page = sequence.runner.cache, int(sequence.pages.table[0])
    array_at(cache.v_address(0) + page * cache.v_page_bytes[0], np.float16, 64)[:] = np.nan
    with pytest.raises(NonFiniteLogitsError):
        decoded(sequence, 3, 5)
