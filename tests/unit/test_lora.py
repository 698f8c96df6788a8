"""LoRA adapters: an adapted model computes what a merged one would, and a file that does not fit says so."""

import numpy as np
import pytest
from support import lora_files, tiny_model
from support.gguf_files import Tensor, build
from support.golden import FEEDS, GOLDEN, nmse, toy_tokens, write_toy_model
from support.llamacpp import WITHOUT_LLAMACPP, LlamaCpp, oracle_python
from tinyllm_engine.errors import EngineError, ModelError, UnsupportedModelError
from tinyllm_engine.lora import open_adapter
from tinyllm_engine.model import Model
from tinyllm_engine.reference import ReferenceRunner
from tinyllm_engine.runner import Runner
from tinyllm_engine.twins import check_pass

QUANTIZED = GOLDEN / "quants" / "llama-Q4_0.gguf"
RANK, ALPHA, SCALE = 6, 16.0, 0.25
FACTOR = SCALE * ALPHA / RANK
IDS = toy_tokens(30)


def adapter_for(folder, model, names=None, rank=RANK, seed=3, **changes):
    """(path, values) of a random adapter of all the model's matrices, or of these."""
    values = lora_files.pairs(model, lora_files.matrices(model) if names is None else names, rank, seed)
    keys = lora_files.metadata(model.metadata["general.architecture"], ALPHA, **changes)
    return lora_files.write(folder / f"adapter-{seed}.gguf", values, keys), values


def logits(model, feed=FEEDS[-1], **options):
    runner = Runner(model, context_length=64, kv_type="f32", **options)
    try:
        return feed(runner.sequence(), IDS)
    finally:
        runner.close()


# --- what is computed -------------------------------------------------------------------------------------------------


# matrices apart; q, k and v in one, with biases; gate and up in one; scales of the residual, and an embedding scale
@pytest.mark.parametrize("name", ["llama-dense", "phi2-dense", "phi3-dense", "granite-dense", "gemma2-dense"])
def test_an_adapted_model_computes_what_a_merged_one_does(tmp_path, name):
    path = write_toy_model(tmp_path, name)
    adapter, values = adapter_for(tmp_path, Model.open(path))
    adapted = Model.open(path, adapters=[(adapter, SCALE)])
    expected = ReferenceRunner(lora_files.merge(Model.open(path), values, FACTOR)).sequence().forward(IDS, True)
    assert nmse(ReferenceRunner(adapted).sequence().forward(IDS, True), expected) <= 1e-9
    assert nmse(logits(adapted, FEEDS[0]), expected) <= 1e-9
    assert nmse(logits(adapted), expected) <= 1e-9
    assert nmse(ReferenceRunner(Model.open(path)).sequence().forward(IDS, True), expected) > 1e-3


def test_recurrent_layers_are_adapted_too(tmp_path):
    path = write_toy_model(tmp_path, "falcon-h1-dense")
    names = [name for name in Model.open(path).tensors if name.endswith(("ssm_in.weight", "ssm_out.weight"))]
    adapter, values = adapter_for(tmp_path, Model.open(path), names)
    expected = logits(lora_files.merge(Model.open(path), values, FACTOR))
    assert names
    assert nmse(logits(Model.open(path, adapters=[(adapter, SCALE)])), expected) <= 1e-9


def test_several_adapters_add_up(tmp_path):
    path = tiny_model.write(tmp_path / "m.gguf")
    one, a = adapter_for(tmp_path, Model.open(path), seed=1)
    two, b = adapter_for(tmp_path, Model.open(path), ["blk.1.attn_q.weight"], seed=2, alpha=None)
    merged = lora_files.merge(lora_files.merge(Model.open(path), a, FACTOR), b, -0.5)
    adapted = Model.open(path, adapters=[(one, SCALE), (two, -0.5)])
    assert nmse(logits(adapted), logits(merged)) <= 1e-9


def test_the_bits_depend_on_neither_batch_nor_threads_nor_fusing(tmp_path):
    adapter, _ = adapter_for(tmp_path, Model.open(QUANTIZED))
    model = Model.open(QUANTIZED, adapters=[(adapter, SCALE)])
    expected = logits(model, threads=2)
    assert not np.array_equal(expected, logits(Model.open(QUANTIZED), threads=2))
    for feed in FEEDS[:2]:
        assert np.array_equal(logits(model, feed, threads=2), expected), feed.__name__
    assert np.array_equal(logits(model, threads=3), expected)
    assert np.array_equal(logits(model, FEEDS[0], threads=1, fuse=False), expected)
    assert np.array_equal(logits(model, threads=2, fuse=False), expected)


@pytest.mark.parametrize("rank", [1, 8, 70])
def test_kernels_compute_what_their_twins_say(tmp_path, rank):
    adapter, _ = adapter_for(tmp_path, Model.open(QUANTIZED), rank=rank)
    runner = Runner(Model.open(QUANTIZED, adapters=[(adapter, SCALE)]), context_length=64, threads=2)
    try:
        for ids in ([1, 2, 3, 4, 5], [6]):
            check_pass(runner, ids)
    finally:
        runner.close()


def test_llama_cpp_answers_the_same(tmp_path):
    python = oracle_python()
    if python is None:
        pytest.skip(WITHOUT_LLAMACPP)
    path = tmp_path / "m.gguf"
    output = np.random.default_rng(8).normal(0, 0.3, (258, tiny_model.EMBEDDING)).astype(np.float32)
    path.write_bytes(build(tiny_model.metadata(), [*tiny_model.tensors(), Tensor.of("output.weight", output)]))
    adapter, values = adapter_for(tmp_path, Model.open(path))
    assert {"token_embd.weight.lora_a", "output.weight.lora_b"} <= set(values)
    with LlamaCpp(python) as llamacpp:
        expected = llamacpp.logits(path, IDS, adapter, SCALE)
    assert nmse(logits(Model.open(path, adapters=[(adapter, SCALE)])), expected) <= 1e-6


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    return Model.open(tiny_model.write(tmp_path / "model.gguf"))


def refusal(error, model, path, scale=1.0):
    with pytest.raises(error) as caught:
        model.adapt(open_adapter(path, scale))
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


Q = "blk.0.attn_q.weight"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architecture": "qwen2"}, "expected an adapter for 'llama' models"),
        ({"architecture": None}, "found one for nothing"),
        ({"type": "alora"}, "'general.type': expected adapter, found 'alora'"),
        ({"alpha": float("nan")}, "'adapter.lora.alpha': expected a number"),
        ({"alpha": "much"}, "'adapter.lora.alpha': expected a number, found 'much'"),
        ({"alpha": 3e38}, "too large"),
    ],
)
def test_metadata_that_does_not_fit(tmp_path, model, changes, said):
    path, _ = adapter_for(tmp_path, model, [Q], rank=1, **changes)
    assert said in refusal(EngineError, model, path, scale=2.0)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("adapter.type", "dora", "'adapter.type': expected lora, found 'dora'"),
        ("adapter.alora.invocation_tokens", np.array([1, 2], np.uint32), "acts from certain tokens on"),
    ],
)
def test_other_kinds_of_adapters(tmp_path, model, key, value, said):
    values = lora_files.pairs(model, [Q], 4)
    path = lora_files.write(tmp_path / "a.gguf", values, lora_files.metadata("llama", ALPHA) | {key: value})
    assert said in refusal(UnsupportedModelError, model, path)


def changed(values, **arrays):
    return values | {f"{Q}.{half}": array for half, array in arrays.items()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: changed(v, lora_a=np.zeros((4, 32), np.float32)), "attn_q.weight.lora_a': expected 64 x 4"),
        (lambda v: changed(v, lora_b=np.zeros((4, 64), np.float32)), "attn_q.weight.lora_b': expected 64 x 64"),
        (lambda v: changed(v, lora_a=np.zeros((5, 64), np.float32)), "expected 64 x 4, found 64 x 5"),
        (lambda v: changed(v, lora_a=np.full((4, 64), np.inf, np.float32)), "lora_a': expected finite numbers"),
        (lambda v: changed(v, lora_b=np.full((64, 4), np.nan, np.float16)), "lora_b': expected finite numbers"),
        (lambda v: {name: a for name, a in v.items() if name.endswith("b")}, "lora_a' is missing"),
        (lambda v: {}, "found none"),
        (lambda v: v | {"blk.0.attn_q.bias": np.zeros(64, np.float32)}, "expected a name that ends in .lora_a"),
        (lambda v: {f"blk.7{name[5:]}": a for name, a in v.items()}, "has no tensor 'blk.7.attn_q.weight'"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, model, change, said):
    values = change(lora_files.pairs(model, [Q], 4))
    path = lora_files.write(tmp_path / "a.gguf", values, lora_files.metadata("llama", ALPHA))
    assert said in refusal(ModelError, model, path)


def test_stacks_of_experts_and_what_is_no_matrix_are_refused_by_name(tmp_path):
    model = Model.open(write_toy_model(tmp_path, "olmoe-moe"))
    for name in ("blk.0.ffn_up_exps.weight", "blk.0.attn_norm.weight"):
        values = {f"{name}.lora_{half}": np.zeros((4, 4), np.float32) for half in "ab"}
        path = lora_files.write(tmp_path / "a.gguf", values, lora_files.metadata("olmoe", ALPHA))
        assert f"tensor '{name}.lora_a': adapting" in refusal(UnsupportedModelError, model, path)


def test_a_matrix_that_multiplies_no_rows_is_refused_by_name(tmp_path):
    model = Model.open(write_toy_model(tmp_path, "falcon-h1-dense"))
    path, _ = adapter_for(tmp_path, model, ["blk.0.ssm_conv1d.weight"], rank=1)
    model.adapt(open_adapter(path))
    with pytest.raises(
        UnsupportedModelError, match=r"blk\.0\.ssm_conv1d\.weight\.lora_a': adapting it is not supported"
    ):
        model.weights  # noqa: B018


def test_an_embedding_that_is_the_output_too_is_refused(tmp_path, model):
    path, _ = adapter_for(tmp_path, model, ["token_embd.weight"])
    assert "an embedding that is the output as well" in refusal(UnsupportedModelError, model, path)


def test_norms_beside_the_matrices_are_passed_over_with_a_note(tmp_path, model):
    values = lora_files.pairs(model, [Q], 4) | {"blk.0.attn_norm.weight": np.ones(64, np.float32)}
    path = lora_files.write(tmp_path / "a.gguf", values, lora_files.metadata("llama", ALPHA))
    model.adapt(adapter := open_adapter(path))
    assert adapter.notes == (f"{path}: 1 norms of the adapter are not used",)


def test_a_file_is_opened_as_what_it_is(tmp_path, model):
    path, _ = adapter_for(tmp_path, model, [Q])
    with pytest.raises(UnsupportedModelError, match="this is a LoRA adapter for 'llama' models"):
        Model.open(path).config  # noqa: B018
    assert "expected a LoRA adapter, found a model ('llama')" in refusal(UnsupportedModelError, model, model.path)
    vocabulary = tmp_path / "projector.gguf"
    vocabulary.write_bytes(build({"general.type": "mmproj"}))
    assert "found a projector" in refusal(UnsupportedModelError, model, vocabulary)
