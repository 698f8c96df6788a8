"""ModelConfig: what is read from the metadata, what is assumed, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gguf_files import llama_metadata
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import EngineError, ModelError, UnsupportedModelError

SPECS = json.loads((Path(__file__).parents[1] / "golden/archs/specs.json").read_text(encoding="utf-8"))


def config(**changes):
    return ModelConfig.from_metadata(llama_metadata(**changes), "m.gguf")


def test_keys_of_a_small_llama():
    c = config()
    assert (c.architecture, c.name) == ("llama", "")
    assert (c.block_count, c.context_length, c.embedding_length, c.vocab_size) == (2, 256, 64, 32)
    assert c.feed_forward_length == (96, 96)
    assert c.head_count == (4, 4)
    assert c.head_count_kv == (2, 2)
    assert (c.norm_rms_epsilon, c.norm_epsilon) == (1e-5, None)


def test_defaults():
    c = config(attention__head_count_kv=None)
    assert c.head_count_kv == c.head_count
    assert (c.key_length, c.value_length) == (16, 16)
    assert (c.expert_count, c.expert_used_count, c.sliding_window) == (0, 0, None)
    r = c.rope
    assert (r.dimension_count, r.freq_base, r.scaling_type, r.scaling_factor) == (16, 10000.0, "linear", 1.0)
    assert (r.original_context_length, r.attn_factor, r.ext_factor, r.beta_fast, r.beta_slow) == (256, 1, 0, 32, 1)


def test_every_other_key():
    c = config(
        attention__key_length=24,
        attention__value_length=8,
        attention__layer_norm_epsilon=1e-6,
        rope__dimension_count=12,
        rope__freq_base=5e5,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=64,
        rope__scaling__attn_factor=0.5,
        expert_count=8,
        expert_used_count=2,
        attention__sliding_window=128,
    )
    assert (c.key_length, c.value_length, c.norm_epsilon) == (24, 8, 1e-6)
    r = c.rope
    assert (r.dimension_count, r.freq_base, r.scaling_type, r.scaling_factor) == (12, 5e5, "yarn", 4.0)
    assert (r.original_context_length, r.attn_factor, r.ext_factor) == (64, 0.5, 1.0)
    assert (c.expert_count, c.expert_used_count, c.sliding_window) == (8, 2, 128)


def test_numbers_per_block():
    c = config(
        feed_forward_length=np.array([96, 0], np.int32),
        attention__head_count=np.array([4, 0], np.uint32),
        attention__head_count_kv=np.array([2, 0], np.uint64),
    )
    assert (c.feed_forward_length, c.head_count, c.head_count_kv) == ((96, 0), (4, 0), (2, 0))
    assert all(type(n) is int for n in c.head_count)
    assert c.key_length == 16


def test_a_model_without_attention_has_no_heads():
    c = config(attention__head_count=0, attention__head_count_kv=0, rope__dimension_count=64)
    assert (c.head_count, c.key_length, c.rope.dimension_count) == ((0, 0), 0, 0)


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({"rope__scaling__factor": 0.0}, 1.0),
        ({"rope__scaling__factor": 4.0}, 4.0),
        ({"rope__scale_linear": 2.0}, 2.0),
        ({"rope__scale_linear": 2.0, "rope__scaling__factor": 4.0}, 4.0),
        ({"rope__scale_linear": 2.0, "rope__scaling__factor": 0.0}, 1.0),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, 1.0),
    ],
)
def test_scaling_factor(changes, factor):
    assert config(**changes).rope.scaling_factor == factor


def test_keys_of_some_families_are_read_when_they_are_asked_for():
    keys = config(
        logit_scale=8,
        final_logit_softcapping=0.0,
        residual_scale=float("inf"),
        attention__sliding_window_pattern=np.array([True, False]),
        rope__dimension_sections=np.array([8, 8, 0, 0], np.int32),
        use_parallel_residual=False,
    ).keys
    assert keys.scale("logit_scale") == 8.0
    assert type(keys.scale("logit_scale")) is float
    assert keys.scale("final_logit_softcapping") is None  # 0 means off
    assert keys.scale("embedding_scale") is None
    assert keys.integers("attention.sliding_window_pattern", 1) == (1, 0)
    assert keys.integers("rope.dimension_sections", 64) == (8, 8, 0, 0)
    assert keys.integers("logit_scale", 9) is None  # no array
    assert not keys.flag("use_parallel_residual", True)
    assert keys.flag("swin_norm", True)
    for wrong in (
        lambda: keys.scale("residual_scale"),
        lambda: keys.integers("rope.dimension_sections", 7),
        lambda: keys.flag("logit_scale", True),
        lambda: keys.numbers("llama.logit_scales", 2),
    ):
        with pytest.raises(ModelError, match=r"'llama\.[a-z_.]+': expected "):
            wrong()


def test_layers_of_multi_token_prediction_are_not_counted():
    c = config(
        block_count=3,
        nextn_predict_layers=1,
        attention__head_count=np.array([4, 2, 1], np.uint32),
        attention__head_count_kv=np.array([2, 2, 1], np.uint32),
        feed_forward_length=96,
    )
    assert (c.block_count, c.head_count, c.head_count_kv, c.feed_forward_length) == (2, (4, 2), (2, 2), (96, 96))


def test_yarn_keys_that_only_grok_reads_change_nothing():
    plain = config(rope__scaling__type="yarn", rope__scaling__factor=4.0)
    keys = {f"rope__scaling__yarn_{k}": 3.0 for k in ("ext_factor", "attn_factor", "beta_fast", "beta_slow")}
    assert config(rope__scaling__type="yarn", rope__scaling__factor=4.0, **keys) == plain


def test_vocab_size_is_the_number_of_tokens_where_there_are_some():
    metadata = llama_metadata() | {"tokenizer.ggml.tokens": ["a", "b", "c"]}
    assert ModelConfig.from_metadata(metadata).vocab_size == 3
    del metadata["llama.vocab_size"]
    assert ModelConfig.from_metadata(metadata).vocab_size == 3


def test_the_name_of_the_model():
    assert ModelConfig.from_metadata(llama_metadata() | {"general.name": "Tiny"}).name == "Tiny"
    assert ModelConfig.from_metadata(llama_metadata() | {"general.name": 5}).name == ""


def test_keys_of_another_architecture_do_not_count():
    with pytest.raises(ModelError, match=r"'qwen2.block_count'.*no such key"):
        ModelConfig.from_metadata(llama_metadata() | {"general.architecture": "qwen2"})


@pytest.mark.parametrize("name", ["block_count", "context_length", "embedding_length", "feed_forward_length",
                                  "attention.head_count", "vocab_size"])  # fmt: skip
def test_a_missing_key_is_named(name):
    with pytest.raises(ModelError) as caught:
        config(**{name.replace(".", "__"): None})
    assert re.fullmatch(f"m.gguf: 'llama.{name}': expected an integer from [01] to [0-9]+, found no such key",
                        str(caught.value))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("block_count", 0, "expected an integer from 1 to 4096, found 0"),
        ("block_count", 4097, "expected an integer from 1 to 4096, found 4097"),
        ("block_count", "32", "expected an integer from 1 to 4096, found the string '32'"),
        ("block_count", 2.0, "expected an integer from 1 to 4096, found 2.0"),
        ("block_count", True, "expected an integer from 1 to 4096, found True"),
        ("block_count", np.array([2, 2]), "expected an integer from 1 to 4096, found an array of 2 int64 values"),
        ("block_count", ["2"], "expected an integer from 1 to 4096, found an array of 1 strings"),
        ("context_length", 2**31 + 1, "found 2147483649"),
        ("embedding_length", -64, "found -64"),
        ("feed_forward_length", np.array([96, 96, 96]), "expected 2 values, one per block, found an array of 3"),
        ("feed_forward_length", np.array([96.0, 96.0]), "expected integers, found an array of 2 float64"),
        ("feed_forward_length", np.array([96, -1]), "found -1"),
        ("attention.head_count", np.array([], np.int32), "expected 2 values, one per block, found an array of 0"),
        ("attention.head_count", np.array([True, True]), "expected integers, found an array of 2 bool"),
        ("attention.head_count", 1 << 20, "found 1048576"),
        ("attention.head_count", 5, "'llama.attention.key_length': expected a head size, as embedding_length 64 is no"),
        ("attention.head_count_kv", 3, "expected a divisor of head_count 4 in block 0, found 3"),
        ("attention.head_count_kv", 8, "expected a divisor of head_count 4 in block 0, found 8"),
        ("attention.head_count_kv", 0, "expected an integer from 1 to 65536, found 0"),
        ("attention.head_count_kv", np.array([2, 3]), "expected a divisor of head_count 4 in block 1, found 3"),
        ("attention.key_length", 0, "found 0"),
        ("attention.value_length", 1 << 17, "found 131072"),
        ("attention.layer_norm_rms_epsilon", 0.0, "expected a number above 0, found 0.0"),
        ("attention.layer_norm_rms_epsilon", float("nan"), "expected a finite number, found nan"),
        ("attention.layer_norm_epsilon", "x", "expected a finite number, found the string 'x'"),
        ("rope.dimension_count", 15, "expected an even number, found 15"),
        ("rope.dimension_count", 32, "expected an integer from 0 to 16, found 32"),
        ("rope.freq_base", 0.0, "expected a number above 0, found 0.0"),
        ("rope.freq_base", float("inf"), "expected a finite number, found inf"),
        ("rope.freq_base", 1e300, "expected a finite number, found 1e+300"),
        ("rope.freq_base", True, "expected a finite number, found True"),
        ("rope.scaling.factor", -1.0, "expected a number of 0 or more, found -1.0"),
        ("rope.scaling.type", 3, "expected a string, found 3"),
        ("rope.scaling.original_context_length", -1, "found -1"),
        ("expert_count", 1 << 20, "found 1048576"),
        ("expert_used_count", 1, "expected 0, as there are no experts, found 1"),
        ("attention.sliding_window", -1, "found -1"),
        ("rope.scaling.attn_factor", float("inf"), "expected a finite number, found inf"),
        ("rope.scaling.factor", -2.0, "expected a number of 0 or more, found -2.0"),
        ("nextn_predict_layers", 2, "expected an integer from 0 to 1, found 2"),
        ("vocab_size", 0, "found 0"),
    ],
)
def test_a_wrong_value_is_named(name, value, message):
    with pytest.raises(ModelError) as caught:
        config(**{name.replace(".", "__"): value})
    text = str(caught.value)
    assert text.startswith("m.gguf: 'llama.")
    assert message in text
    assert message.startswith("'llama.") or f"'llama.{name}'" in text


@pytest.mark.parametrize("used", [0, 9, None])
def test_more_experts_used_than_there_are(used):
    with pytest.raises(ModelError, match="expected an integer from 1 to expert_count 8, found"):
        config(expert_count=8, expert_used_count=used)


def test_an_unknown_scaling_type_is_refused_by_name():
    with pytest.raises(UnsupportedModelError, match=r"'llama.rope.scaling.type': .* found 'dynamic'"):
        config(rope__scaling__type="dynamic")


@pytest.mark.parametrize("value", [None, 5, "", ["llama"]])
def test_an_unusable_architecture(value):
    with pytest.raises(ModelError, match=r"'general.architecture': expected the name of an architecture"):
        ModelConfig.from_metadata(llama_metadata() | {"general.architecture": value})


def test_messages_are_one_printable_line():
    with pytest.raises(ModelError) as caught:
        ModelConfig.from_metadata({"general.architecture": "a\x1b[31m\n" * 50}, "m.gguf")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", SPECS)
def test_every_toy_architecture_has_a_config(name):
    metadata = {key: np.array(value) if kinds[0] == "ARRAY" else value for key, kinds, value in SPECS[name]["kv"]}
    c = ModelConfig.from_metadata(metadata, name)
    assert c.architecture == metadata["general.architecture"]
    assert len(c.head_count) == c.block_count


@given(st.data())
def test_any_value_of_any_key_is_taken_or_refused(data):
    metadata = llama_metadata(rope__scaling__type="linear", expert_count=0)
    values = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.text(max_size=3), max_size=3)
        | st.lists(st.integers(-5, 70), max_size=3).map(np.array)
    )
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), min_size=1, max_size=3)):
        metadata[key] = data.draw(values)
    try:
        c = ModelConfig.from_metadata(metadata, "m.gguf")
    except EngineError:
        return
    assert len(c.head_count) == len(c.head_count_kv) == len(c.feed_forward_length) == c.block_count <= 4096
