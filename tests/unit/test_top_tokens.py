"""What could have been drawn instead: the native search finds what NumPy's log-softmax and a sort find."""

import math

import numpy as np
import pytest
from support.golden import GOLDEN, toy_tokens
from tinyllm_engine.choices import END, MOST, top_tokens
from tinyllm_engine.errors import EngineError, SamplingError
from tinyllm_engine.generation import Token, generate
from tinyllm_engine.hindsight import look_back
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.sampling import SamplingParams, SharedSampling
from tinyllm_engine.top_tokens import TopTokens, text_and_kind

RNG = np.random.default_rng(11)
CASES = {
    "one token": np.zeros(1),
    "less than a block": RNG.standard_normal(40) * 3,
    "equal": np.full(300, -2.5),
    "steps": np.repeat([1.0, 3.0, 2.0], 70),
    "rising": np.arange(1000.0) / 50,
    "falling": -np.arange(1000.0) / 50,
    "huge": np.array([3e38, -3e38, 0, 1]),
    "a vocabulary": RNG.standard_normal(49_152) * 4,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("most", [1, 5, MOST])
def test_the_kernel_finds_what_numpy_finds(name, most):
    logits = CASES[name].astype(np.float32)
    looking = TopTokens(most)
    for token in {0, logits.size // 2, logits.size - 1, int(logits.argmax())}:
        ids, logprobs, rank, entropy = top_tokens(logits, token, most)
        found = looking.look(logits, token)
        assert [other.id for other in found.alternatives] == ids.tolist()
        assert [other.logprob for other in found.alternatives] == pytest.approx(logprobs, rel=1e-6, abs=2e-6)
        assert (found.rank, found.entropy) == (rank, pytest.approx(entropy, abs=1e-5))


@pytest.fixture(scope="module")
def model():
    return Model.open(GOLDEN / "quants" / "llama-Q4_0.gguf")


@pytest.fixture
def sequence(model):
    runner = Runner(model, context_length=128, threads=2)
    yield runner.sequence()
    runner.close()


def tokens_of(sequence, params, **options):
    events = generate(sequence, toy_tokens(20), params, max_tokens=40, **options)
    return [event for event in events if isinstance(event, Token)]


@pytest.mark.parametrize(
    "options",
    [{}, {"mirostat": 2}, {"top_k": 0, "repeat_penalty": 1.4}],
    ids=["several a call", "one a call", "penalties"],
)
def test_the_tokens_are_the_same_with_and_without_looking(sequence, options):
    params = SamplingParams(seed=4, temperature=1.3, **options)
    plain = tokens_of(sequence, params)
    looked = tokens_of(sequence, params, top_logprobs=4)
    assert [(token.id, token.logprob) for token in looked] == [(token.id, token.logprob) for token in plain]
    assert all(token.choice is None for token in plain)
    ids = toy_tokens(20)
    for token in looked:
        sequence.truncate(len(ids) - 1)
        logits = sequence.forward(ids[len(ids) - 1 :])
        likeliest, logprobs, rank, entropy = top_tokens(logits, token.id, 4)
        choice = token.choice
        assert [other.id for other in choice.alternatives] == likeliest.tolist()
        assert [other.logprob for other in choice.alternatives] == pytest.approx(logprobs, abs=3e-6)
        assert (choice.rank, choice.entropy) == (rank, pytest.approx(entropy, abs=1e-5))
        for other in choice.alternatives:
            assert other.id != token.id or other.logprob == pytest.approx(token.logprob, abs=3e-6)
        ids.append(token.id)


def test_a_look_back_tells_what_was_told_while_the_tokens_were_drawn(sequence):
    written = tokens_of(sequence, SamplingParams(seed=4, temperature=1.3), top_logprobs=4)
    ids = [*toy_tokens(20), *(token.id for token in written)]
    sequence.truncate(7)
    seen = list(look_back(sequence, ids, 20, 4))
    assert [(token.id, token.choice) for token in seen] == [(token.id, token.choice) for token in written]
    assert [token.logprob for token in seen] == pytest.approx([token.logprob for token in written], abs=3e-6)
    assert sequence.tokens == ids[:-1]
    with pytest.raises(EngineError, match="look_back: expected a start of 1 to 60, found 0"):
        next(look_back(sequence, ids, 0, 4))


def test_a_token_drawn_after_a_change_of_parameters_is_looked_at_too(sequence):
    shared = SharedSampling(SamplingParams(seed=1, temperature=0))
    events = generate(sequence, toy_tokens(20), shared, max_tokens=30, top_logprobs=2)
    seen = []
    for event in events:
        if isinstance(event, Token):
            shared.update(temperature=0.5 + len(seen) / 100)
            seen.append(event)
    assert len(seen) == 30
    assert all(len(token.choice.alternatives) == 2 for token in seen)


def test_how_many_are_wanted_is_checked_at_once(sequence):
    for wrong in (-1, MOST + 1):
        with pytest.raises(SamplingError, match=f"top_logprobs: expected 0 to {MOST}, found {wrong}"):
            generate(sequence, [1], SamplingParams(), top_logprobs=wrong)


class Pieces:
    vocab_size = 4
    eog_ids = frozenset({2})

    def piece(self, id):
        return [b" is", "é".encode()[:1], b"", b"\n"][id]

    def token_text(self, id):
        return "<|im_end|>"


def test_texts_keep_the_bytes_of_characters_that_are_not_whole():
    assert [text_and_kind(Pieces(), id)[0] for id in range(5)] == [" is", "\udcc3", "<|im_end|>", "\n", ""]
    choice = TopTokens(4, Pieces()).look(np.array([1, 4, 3, 2], np.float32), 0)
    assert (choice.text, choice.rank) == (" is", 4)
    assert [other.text for other in choice.alternatives] == ["\udcc3", "<|im_end|>", "\n", " is"]
    assert [other.kind for other in choice.alternatives] == ["", END, "", ""]
    assert math.fsum(math.exp(other.logprob) for other in choice.alternatives) == pytest.approx(1, abs=1e-6)
