"""Files that are no language models say what they are; odd ones that are run all the same."""

import numpy as np
import pytest
from support import gguf_files, tiny_model
from support.gguf_files import Tensor, llama_metadata
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.kinds import other_kind
from tinyllm_engine.model import Model
from tinyllm_engine.reference import ReferenceRunner

ONE = Tensor.of("x.weight", np.ones(4, np.float32))


def written(tmp_path, metadata, tensors=(ONE,)):
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_files.build(metadata, tensors))
    return path


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"general.architecture": "clip"}, "this is a projector for images or sound (mmproj)"),
        ({"general.architecture": "llama", "general.type": "mmproj"}, "this is a projector for images"),
        ({"general.architecture": "bert"}, "this is a model for embeddings"),
        ({"general.architecture": "nomic-bert-moe"}, "this is a model for embeddings"),
        (llama_metadata(attention__causal=False), "this is a model for embeddings"),
        ({"general.architecture": "t5"}, "this is an encoder with a decoder"),
        ({"general.architecture": "llada"}, "this is a diffusion model"),
        ({"general.type": "imatrix"}, "this is an importance matrix"),
        ({"general.architecture": "controlvector"}, "this is a control vector"),
        ({"general.architecture": "llama", "general.type": "adapter"}, "this is a LoRA adapter for 'llama' models"),
        ({"general.type": "adapter", "adapter.type": "other"}, "this is an adapter: it changes"),
    ],
)
def test_what_is_no_language_model_is_refused_by_what_it_is(metadata, said, tmp_path):
    model = Model.open(written(tmp_path, metadata))
    for part in ("config", "architecture", "weights"):
        with pytest.raises(UnsupportedModelError) as error:
            getattr(model, part)
        assert str(error.value).startswith(f"{model.path}: {said}")
        assert str(error.value).isprintable()


def test_an_adapter_that_does_not_say_so_has_its_tensors():
    assert "a LoRA adapter" in other_kind({"general.architecture": "llama"}, ["blk.0.attn_q.weight.lora_a"])


@pytest.mark.parametrize("value", [3, "adapter\n", ["clip"], None])
def test_values_that_mean_nothing(value):
    assert other_kind({"general.type": value, "general.architecture": value}, []) is None


def test_a_vocabulary_has_a_tokenizer_and_no_weights(tmp_path):
    model = Model.open(written(tmp_path, tiny_model.metadata(), ()))
    assert model.config.block_count == 2
    assert model.tokenizer.encode("a")
    with pytest.raises(UnsupportedModelError, match="this is a vocabulary without weights"):
        _ = model.weights


def test_tensors_and_keys_that_nobody_knows_change_nothing(tmp_path):
    plain = Model.open(tiny_model.write(tmp_path / "plain.gguf"))
    extra = [
        Tensor.of("blk.0.attn_q.input_scale", np.full(1, 7, np.float32)),
        Tensor.of("something.else", np.ones((3, 5), np.float16)),
        Tensor.of("blk.9.attn_q.weight", np.ones((2, 2), np.float32)),
        Tensor.of("none.weight", np.zeros((0, 64), np.float32)),
        Tensor.of("counts", np.arange(4, dtype=np.int32)),
    ]
    metadata = tiny_model.metadata() | {
        "llama.rope.of.tomorrow": 5,
        "general.tags": ["a", "b"],
        "x.y": np.zeros(3, np.float64),
        "general.quantized_by": "",
    }
    odd = Model.open(written(tmp_path, metadata, [*tiny_model.tensors(), *extra]))
    ids = [1, 200, 30]
    expected = ReferenceRunner(plain, 64).sequence().forward(ids)
    assert np.array_equal(ReferenceRunner(odd, 64).sequence().forward(ids), expected)
