"""One-layer models whose matrices are all of one type, or of nine, against the answer with those weights as float32."""

import gguf as gguf_package
import numpy as np
import pytest
from support.gguf_files import Tensor, build
from support.golden import nmse
from support.measured_types import BATCHES, FLOAT32, QUANTS, SLACK, logits, measured, type_names
from tinyllm_engine.model import Model
from tinyllm_engine.quants import QUANT_TYPES
from tinyllm_engine.quants.lookup4 import FP4_VALUES, UE4M3_HALVES

pytestmark = pytest.mark.golden
NAMES = type_names()
ACTIVATIONS = 5e-4  # what 8 bits for them cost at most: llama.cpp's distance where there is no exact answer
IDS = {kind.name: kind.id for kind in QUANT_TYPES.values()}


@pytest.fixture(scope="module")
def exact():
    return np.load(QUANTS / "exact.npz")


@pytest.fixture(scope="module")
def llamacpp():
    return np.load(QUANTS / "llamacpp.npz")


def test_there_is_a_model_of_every_type():
    names = {kind.name for kind in QUANT_TYPES.values() if kind.weight} - {"F64", "NVFP4"}  # which are made below
    assert {name.split("-")[1].removesuffix("_MOE") for name in NAMES} == names


@pytest.mark.parametrize("name", NAMES)
def test_reference_is_exact(name, exact, llamacpp):
    found = logits("reference", QUANTS / f"{name}.gguf")
    if name in exact:
        assert nmse(found, exact[name]) <= FLOAT32
    else:
        assert nmse(llamacpp[name], found) <= ACTIVATIONS


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", NAMES)
def test_native_is_no_farther_from_exact_than_llamacpp(name, batch):
    found = measured(name, batch)
    assert found.ours <= found.limit


# --- models made here -------------------------------------------------------------------------------------------------


def write_model(path, matrix):
    """base-F32 with other matrices: matrix(name, float32 [rows, columns]) -> (name of the type, its bytes)."""
    base = Model.open(QUANTS / "base-F32.gguf")
    tensors = []
    for tensor in base.tensors.values():
        kind, data = "F32", tensor.data.tobytes()
        if len(tensor.dims) == 2:
            kind, data = matrix(tensor.name, tensor.dequantize())
        tensors.append(Tensor(tensor.name, tensor.dims, IDS[kind], data))
    path.write_bytes(build(base.metadata, tensors))
    return path


@pytest.mark.parametrize("batch", [1, 32])
def test_doubles(batch, exact, tmp_path):
    path = write_model(tmp_path / "F64.gguf", lambda name, values: ("F64", values.astype("<f8").tobytes()))
    assert nmse(logits("native", path, batch), exact["base-F32"]) <= FLOAT32


def nvfp4(values):
    """uint8 [n, 36]: each 16 values under the scale that makes their largest 6, or the next larger one there is."""
    groups = values.reshape(-1, 4, 16)
    needed = np.abs(groups).max(axis=2) / FP4_VALUES.max()
    codes = np.searchsorted(UE4M3_HALVES[:0x7F], needed).astype(np.uint8)
    scaled = groups / UE4M3_HALVES[codes][..., None]
    nearest = np.abs(scaled[..., None] - FP4_VALUES).argmin(axis=-1).astype(np.uint8)
    packed = nearest[..., :8] | nearest[..., 8:] << 4
    return np.concatenate([codes, packed.reshape(len(groups), 32)], axis=1)


def nvfp4_as_float32(values):
    blocks = gguf_package.quants.dequantize(nvfp4(values), gguf_package.GGMLQuantizationType.NVFP4)
    return blocks.astype("<f4").tobytes()


@pytest.mark.parametrize("batch", [1, 32])
def test_nvfp4(batch, exact, llamacpp, tmp_path):
    """The other type of four-bit floats, whose scales are coarser, says how near is near enough."""
    path = write_model(tmp_path / "NVFP4.gguf", lambda name, values: ("NVFP4", nvfp4(values).tobytes()))
    plain = write_model(tmp_path / "F32.gguf", lambda name, values: ("F32", nvfp4_as_float32(values)))
    truth, name = logits("reference", plain), "llama-MXFP4_MOE"
    assert nmse(truth, exact["base-F32"]) <= nmse(exact[name], exact["base-F32"])
    assert nmse(logits("native", path, batch), truth) <= SLACK * nmse(llamacpp[name], exact[name])


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("first", range(0, len(NAMES), 9))
def test_a_type_for_each_matrix(first, batch, tmp_path):
    names = iter([*NAMES[first:], *NAMES][:9])

    def matrix(name, values):
        tensor = Model.open(QUANTS / f"{next(names)}.gguf").tensors[name]
        return tensor.type.name, tensor.data.tobytes()

    path = write_model(tmp_path / "mixed.gguf", matrix)
    assert nmse(logits("native", path, batch), logits("reference", path)) <= ACTIVATIONS
