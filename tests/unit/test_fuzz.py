"""The short form of `python -m tests.fuzz models`, and what is refused by name before memory is taken for it."""

import contextlib
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny_model
from support.gguf_files import build
from tinyllm_engine import Model, Runner, SamplingParams, generate
from tinyllm_engine.errors import EngineError, ModelError, NonFiniteLogitsError, OutOfMemoryError
from tinyllm_engine.lora import open_adapter

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)
models = import_module("tests.fuzz.models")
isolation = import_module("tests.fuzz.isolation")
reading = import_module("tests.fuzz.reading")

FILES, PATIENCE, MEGABYTES = 80, 120.0, 300
TENSORS = {tensor.name: tensor for tensor in tiny_model.tensors()}


@pytest.mark.skipif(sys.platform != "linux", reason="limits a child's memory as Linux does")
def test_files_made_to_break_it_are_read_or_refused(tmp_path, monkeypatch):
    """Of one architecture, whose kernels few are: all others take the long form."""
    monkeypatch.setattr(models, "toy_names", lambda: ["tiny"])
    path = tmp_path / "model.gguf"
    path.write_bytes(models.toy("tiny").bytes())
    assert reading.read_model(path, 64) == "answered"

    def make(number):
        path.write_bytes(models.case(7, number)[1])

    def examine(number):
        return reading.read_model(path, 64)

    outcomes = list(isolation.run_isolated(make, examine, range(FILES), PATIENCE, MEGABYTES))
    assert [outcome for outcome in outcomes if outcome.fault] == []
    assert len(outcomes) == FILES
    assert {outcome.said for outcome in outcomes} >= {"refused", "opened", "answered"}


def crash(number):
    import os
    import signal

    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        raise ValueError("no\nsuch thing")
    if number == 3:
        bytearray(1 << 40)
    if number == 4:
        while True:
            pass
    return "well"


@pytest.mark.skipif(sys.platform != "linux", reason="limits a child's memory as Linux does")
def test_a_fault_is_seen_and_the_next_case_is_run():
    outcomes = list(isolation.run_isolated(lambda number: None, crash, range(6), 0.5, MEGABYTES))
    assert [outcome.fault for outcome in outcomes] == ["", "crash", "ValueError", "MemoryError", "hang", ""]
    assert "test_fuzz.py" in outcomes[2].said


NUMBERS = st.sampled_from([0, 1, 2**31, 10**9, 2**32 - 1]) | st.integers(0, 2**32 - 1)
KEYS = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"),
    *("attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count"),
    *("expert_count", "expert_used_count", "attention.sliding_window"),
)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(KEYS), NUMBERS, min_size=1, max_size=4))
def test_any_hyperparameters_fit_the_tensors_or_are_refused(tmp_path_factory, changes):
    """Nothing is taken for what a file only says: 10^9 layers, 0 heads, a context of 2^31."""
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    tiny_model.write(path, **{key.replace(".", "__"): value for key, value in changes.items()})
    model = Model.open(path)
    with contextlib.suppress(EngineError):
        layers, config = model.weights.layers, model.config
        assert len(layers) == config.block_count <= tiny_model.BLOCKS
        assert config.embedding_length == tiny_model.EMBEDDING


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attention__head_count": 0}, "head_count"),
        ({"block_count": 10**9}, "'llama.block_count': expected an integer from 1 to 4096, found 1000000000"),
        ({"attention__key_length": 1}, "rope.dimension_count|key_length|attn_q"),
        ({"context_length": 2**32 - 1}, "'llama.context_length': expected an integer from 1 to 2147483648"),
        ({"embedding_length": 0}, "'llama.embedding_length': expected an integer from 1"),
        ({"attention__head_count_kv": 3}, "expected a divisor of head_count 4"),
        ({"rope__freq_base": float("nan")}, "rope.freq_base': expected a finite number, found nan"),
        ({"attention__layer_norm_rms_epsilon": float("inf")}, "rms_epsilon': expected a finite number, found inf"),
    ],
)
def test_absurd_hyperparameters_are_refused_by_name(tmp_path, changes, said):
    model = Model.open(tiny_model.write(tmp_path / "model.gguf", **changes))
    with pytest.raises(EngineError, match=said):
        Runner(model, context_length=64, threads=1)


def test_a_context_of_two_thousand_millions_takes_no_memory_before_it_is_used(tmp_path):
    """Address space at most, and an error of the engine where there is not even that."""
    model = Model.open(tiny_model.write(tmp_path / "model.gguf", context_length=2**31))
    with contextlib.suppress(OutOfMemoryError):
        runner = Runner(model, threads=1)
        assert runner.cache.bytes_in_use == 0
        runner.close()


def with_weight(path, name, value):
    """The tiny model with one weight of a tensor replaced."""
    numbers = np.frombuffer(TENSORS[name].data, np.float32).copy()
    numbers[len(numbers) // 2] = value
    tensors = [replace(each, data=numbers.tobytes()) if each.name == name else each for each in TENSORS.values()]
    path.write_bytes(build(tiny_model.metadata(), tensors))
    return Model.open(path)


TEXTS = (
    *("general.architecture", "general.name", "general.type", "adapter.type", "tokenizer.chat_template"),
    *("tokenizer.ggml.model", "tokenizer.ggml.pre", "llama.rope.scaling.type", "general.basename", "split.count"),
)


@pytest.mark.parametrize("value", [np.arange(2, dtype=np.uint32), np.zeros(3, np.bool_), ["a", "b"], True, 5, 0.5])
@pytest.mark.parametrize("key", TEXTS)
def test_what_should_be_a_text_may_be_anything(tmp_path, key, value):
    """Among the rest an array, which is equal to nothing, and whose truth is an error of Python's."""
    path = tiny_model.write(tmp_path / "model.gguf", extra={key: value})
    assert reading.read_model(path, 64) in ("refused", "opened", "weights", "runner", "answered")
    if key not in ("split.count",):
        with pytest.raises(EngineError, match=r"model\.gguf: "):
            open_adapter(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["blk.1.attn_norm.weight", "output_norm.weight"])
def test_small_weights_that_are_no_numbers_are_refused_before_anything_is_computed(tmp_path, name, value):
    model = with_weight(tmp_path / "model.gguf", name, value)
    with pytest.raises(
        ModelError, match=f"model.gguf: tensor '{name}': expected finite numbers, found NaN or infinity"
    ):
        model.weights  # noqa: B018


@pytest.mark.parametrize("name", ["blk.1.ffn_down.weight", "token_embd.weight"])
def test_others_are_named_where_they_spoil_an_answer(tmp_path, name):
    model = with_weight(tmp_path / "model.gguf", name, np.nan)
    runner = Runner(model, context_length=64, threads=1)
    middle = tiny_model.tensors()[0].dims[1] // 2  # the token whose row has it
    with pytest.raises(NonFiniteLogitsError, match=f"model.gguf: tensor '{name}' has weights that are no numbers"):
        list(generate(runner.sequence(), [1, middle, 2], SamplingParams(temperature=0), max_tokens=3))
    runner.close()


def test_ids_out_of_range_are_refused(tmp_path):
    runner = Runner(Model.open(tiny_model.write(tmp_path / "model.gguf")), context_length=64, threads=1)
    for id in (-1, 258, 2**31, 2**63):
        with pytest.raises(EngineError, match=f"token id: expected 0 to 257, found {id}"):
            runner.forward([1, id])
    assert runner.tokens == []
    runner.close()
