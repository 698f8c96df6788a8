"""Tokens removed from the middle: keys turn to their new positions, everything else stays; models that forbid it."""

import numpy as np
import pytest
from support.golden import write_toy_model
from tinyllm_engine.cached_rows import read_keys
from tinyllm_engine.cached_types import unpack_v
from tinyllm_engine.errors import EngineError, UnsupportedModelError
from tinyllm_engine.memory import array_at
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.shift import check_shift, rotation_of

CONTEXT = 512  # what layers with a window still have is another matter: see test_windows
# Pairs side by side; pairs half a head apart, and two ways to turn; keys of which only the end turns.
# (Quantized keys are quantized once more where they land.)
MODELS = [
    ("llama-dense", "archs", "f32"),
    ("gemma3-dense", "archs", "f16"),
    ("deepseek2-lite-mla", "more", "f16"),
    ("llama-gqa", "archs", "q8_0"),
]
ERRORS = {"f32": 2e-5, "f16": 2e-3, "q8_0": 2e-2}


def ids_of(count, seed=1):
    return np.random.default_rng(seed).integers(0, 64, count).tolist()


def rows(sequence, layer):
    """Keys and values of a layer, as numbers: [heads, size, rows], [heads, rows, size]."""
    cache, table = sequence.runner.cache, sequence.pages.table[: sequence.pages.count]
    n, size = sequence.position, cache.layers[layer].v_size
    stored = array_at(
        cache.v_address(layer), np.uint8, cache.pages, cache.layers[layer].heads, cache.v_type.head_bytes(size)
    )
    values = np.swapaxes(unpack_v(cache.v_type, stored[table], size), 0, 1).reshape(stored.shape[1], -1, size)
    return read_keys(cache, layer, table)[:, :, :n], values[:, :n]


def turned(keys, old, new, rotation, context):
    """The twin: pairs are complex numbers, turned in double precision by the exact difference of the angles."""
    if rotation is None:
        return keys
    rope, first = rotation
    frequencies, _ = rope.frequencies(context)
    pairs = len(frequencies)
    turning = keys[:, first : first + 2 * pairs].astype(np.float64)
    if rope.interleaved:
        z = turning[:, ::2] + 1j * turning[:, 1::2]
    else:
        z = turning[:, :pairs] + 1j * turning[:, pairs:]
    z = z * np.exp(1j * np.outer(frequencies.astype(np.float64), np.array(new) - np.array(old)))
    result = keys.astype(np.float64)
    if rope.interleaved:
        result[:, first : first + 2 * pairs : 2], result[:, first + 1 : first + 2 * pairs : 2] = z.real, z.imag
    else:
        result[:, first : first + 2 * pairs] = np.concatenate((z.real, z.imag), axis=1)
    return result


@pytest.fixture(scope="module", params=MODELS, ids=lambda case: case[0])
def runner(request, tmp_path_factory):
    name, collection, kv_type = request.param
    path = write_toy_model(tmp_path_factory.mktemp("shift"), name, collection, sliding_window=CONTEXT)
    made = Runner(Model.open(path), context_length=CONTEXT, kv_type=kv_type, threads=2)
    yield made
    made.close()


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (5, 64), (10, 138), (64, 128), (63, 200), (240, 249), (3, 250)])
def test_keys_are_those_of_their_new_positions(runner, begin, end):
    runner.truncate(0)
    sequence = runner.sequence()
    ids = ids_of(250)
    sequence.forward(ids)
    before = [rows(sequence, layer) for layer in range(len(runner.cache.layers))]
    sequence.remove(begin, end)
    assert sequence.tokens == ids[:begin] + ids[end:]
    assert sequence.exact == (begin if end < 250 else sequence.position)
    assert runner.cache.pages_in_use == -(-sequence.position // 64)
    kept = np.r_[:begin, end:250]
    allowed = ERRORS[runner.k_type]
    for layer, (keys, values) in enumerate(before):
        k, v = rows(sequence, layer)
        rotation = rotation_of(runner.model.weights.layers[layer])
        expected = turned(keys[:, :, kept], kept, np.arange(len(kept)), rotation, CONTEXT)
        assert np.abs(k - expected).max() <= allowed * np.abs(keys).max()
        assert np.array_equal(v, values[:, kept])
    sequence.forward([1, 2, 3])  # and it goes on


def test_the_first_layer_is_that_of_a_fresh_evaluation(runner):
    """Its keys and values know nothing but their token and position."""
    ids = ids_of(200)
    sequence, fresh = runner.new_sequence(), runner.new_sequence()
    runner.truncate(0)
    sequence.forward(ids)
    sequence.remove(20, 150)
    fresh.forward(sequence.tokens)
    (k, v), (fresh_k, fresh_v) = rows(sequence, 0), rows(fresh, 0)
    allowed = ERRORS[runner.k_type]
    assert np.abs(k - fresh_k).max() <= allowed * np.abs(fresh_k).max()
    assert np.abs(v - fresh_v).max() <= allowed * np.abs(fresh_v).max()
    sequence.close()
    fresh.close()


def test_pages_of_others_stay_as_they_are(runner):
    runner.truncate(0)
    one = runner.new_sequence()
    one.forward(ids_of(100))
    other = one.fork(100)
    before = [rows(other, layer) for layer in range(len(runner.cache.layers))]
    one.remove(10, 30)
    for layer, pair in enumerate(before):
        for now, then in zip(rows(other, layer), pair, strict=True):
            assert np.array_equal(now, then)
    fork = one.fork(50)
    assert (fork.exact, one.exact, other.exact) == (10, 10, 100)
    fork.truncate(10)
    fork.forward([5])
    assert fork.exact == 11
    for sequence in (one, other, fork):
        sequence.close()
    assert runner.cache.pages_in_use == 0


@pytest.mark.parametrize(("begin", "end"), [(-1, 3), (3, 2), (0, 11)])
def test_what_is_not_there_cannot_be_removed(runner, begin, end):
    runner.truncate(0)
    runner.forward(ids_of(10))
    with pytest.raises(EngineError, match=f"remove: expected tokens within 0 to 10, found {begin} to {end}"):
        runner.sequence().remove(begin, end)


# --- which models permit it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpt2-dense", "position_embd.weight has put their positions"),
        ("mamba2-dense", "block 0 is recurrent"),
        ("falcon-h1-dense", "is recurrent"),
        ("hunyuan-dense-dense", "attn_k_norm norms keys that have been rotated"),
    ],
)
def test_models_that_forbid_it_say_why(tmp_path, name, why):
    with pytest.raises(UnsupportedModelError, match=why):
        check_shift(Model.open(write_toy_model(tmp_path, name)))
