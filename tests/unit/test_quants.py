"""Every tensor type against an independent decoder: the reference package's where it has one, else a slow one here."""

import subprocess
import sys

import gguf as gguf_package
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tinyllm_engine.quants import QUANT_TYPES, codebook, lookup4
from tinyllm_engine.quants.base import quant_type

# id, name, values per block, bytes per block
FORMAT = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
]
NOT_WEIGHTS = {"I8", "I16", "I32", "I64", "Q8_1", "Q8_K"}
BY_NAME = {t.name: t for t in QUANT_TYPES.values()}
IN_PACKAGE = [name for _, name, *_ in FORMAT if name not in NOT_WEIGHTS | {"F64", "Q1_0", "Q2_0"}]


def random_blocks(kind, count, seed=0):
    return np.random.default_rng([seed, kind.id]).integers(0, 256, (count, kind.block_bytes), np.uint8)


def bits(values):
    """The bit patterns; any NaN counts as the same."""
    values = np.ascontiguousarray(values, np.float32)
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))


def assert_same_bits(found, expected):
    np.testing.assert_array_equal(bits(found), bits(expected))


def test_the_table_is_the_formats():
    assert sorted((t.id, t.name, t.block_elements, t.block_bytes) for t in QUANT_TYPES.values()) == FORMAT
    assert all(t.layout.itemsize == t.block_bytes for t in QUANT_TYPES.values())
    assert all(number == t.id for number, t in QUANT_TYPES.items())
    assert {t.name for t in QUANT_TYPES.values() if not t.weight} == NOT_WEIGHTS


@pytest.mark.parametrize("name", IN_PACKAGE)
def test_values_are_bit_equal_to_the_reference_package(name):
    kind = BY_NAME[name]
    blocks = random_blocks(kind, 500)
    with np.errstate(all="ignore"):
        expected = gguf_package.quants.dequantize(blocks, gguf_package.GGMLQuantizationType[name])
    found = kind.dequantize(blocks)
    assert found.dtype == np.float32
    assert found.shape == (500, kind.block_elements)
    assert_same_bits(found, expected)


def f16(raw):
    return np.frombuffer(bytes(raw), "<f2")[0].astype(np.float32)


def slow_q1_0(block):
    d = f16(block[:2])
    return [d if block[2 + i // 8] >> i % 8 & 1 else -d for i in range(128)]


def slow_q2_0(block):
    return [f16(block[:2]) * np.float32((int(block[2 + i // 4]) >> i % 4 * 2 & 3) - 1) for i in range(64)]


def slow_q8_1(block):
    return [f16(block[:2]) * np.float32(q) for q in block[4:].view(np.int8)]


def slow_q8_k(block):
    return [block[:4].view("<f4")[0] * np.float32(q) for q in block[4:260].view(np.int8)]


@pytest.mark.parametrize("slow", [slow_q1_0, slow_q2_0, slow_q8_1, slow_q8_k])
def test_values_of_types_the_package_lacks(slow):
    kind = BY_NAME[slow.__name__.removeprefix("slow_").upper()]
    blocks = random_blocks(kind, 20)
    with np.errstate(all="ignore"):
        expected = np.array([slow(block) for block in blocks])
    assert_same_bits(kind.dequantize(blocks), expected)


@pytest.mark.parametrize(
    ("name", "dtype"), [("I8", "<i1"), ("I16", "<i2"), ("I32", "<i4"), ("I64", "<i8"), ("F64", "<f8")]
)
def test_plain_numbers_become_float32(name, dtype):
    values = np.array([0, 1, -2, 100], dtype)
    found = BY_NAME[name].dequantize(values.view(np.uint8).reshape(4, -1))
    assert found.tolist() == [[0.0], [1.0], [-2.0], [100.0]]
    assert found.dtype == np.float32


def test_known_values():
    one = np.float16(1).tobytes()
    block = np.frombuffer(one + bytes([0x80] * 16), np.uint8)[None]
    assert BY_NAME["Q4_0"].dequantize(block).tolist() == [[-8.0] * 16 + [0.0] * 16]
    mxfp4 = np.frombuffer(bytes([128, 0x7F] + [0] * 15), np.uint8)[None]
    assert BY_NAME["MXFP4"].dequantize(mxfp4)[0, [0, 1, 16]].tolist() == [-12.0, 0.0, 12.0]
    assert lookup4.UE4M3_HALVES[[0x00, 0x01, 0x08, 0x38, 0x7E, 0x7F]].tolist() == [0, 2**-10, 2**-7, 0.5, 224, 0]
    assert lookup4.E8M0_HALVES[[0, 128, 255]].tolist() == [2.0**-128, 1, 2.0**127]


@pytest.mark.parametrize(
    ("name", "reference"),
    [("iq1", "IQ1_S")] + [(n.lower(), n) for n in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")],
)
def test_codebooks_equal_the_reference_packages(name, reference):
    package = getattr(gguf_package.quants, reference)
    package.init_grid()
    found = codebook.grid(name)
    np.testing.assert_array_equal(found, package.grid.reshape(package.grid_shape))
    assert not found.flags.writeable


def test_signs_come_in_even_numbers():
    assert codebook.EVEN_SIGNS.tobytes() == gguf_package.quants.IQ2_XXS.ksigns


@pytest.mark.parametrize("kind", QUANT_TYPES.values(), ids=lambda t: t.name)
def test_blocks_do_not_depend_on_each_other_nor_on_their_place_in_memory(kind):
    blocks = random_blocks(kind, 7, seed=1)
    together = kind.dequantize(blocks)
    assert_same_bits(np.concatenate([kind.dequantize(blocks[i : i + 1]) for i in range(7)]), together)
    shifted = np.frombuffer(b"\0" + blocks.tobytes(), np.uint8)[1:].reshape(blocks.shape)
    assert_same_bits(kind.dequantize(shifted), together)
    every_other = np.repeat(blocks, 2, axis=0)[::2]
    assert_same_bits(kind.dequantize(every_other), together)
    assert kind.dequantize(blocks[:0]).shape == (0, kind.block_elements)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", QUANT_TYPES.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_extreme_bytes_give_values_without_warnings(kind, byte):
    blocks = np.full((2, kind.block_bytes), byte, np.uint8)
    assert kind.dequantize(blocks).shape == (2, kind.block_elements)


@given(st.data())
def test_every_type_reads_any_bytes_like_the_reference_package(data):
    name = data.draw(st.sampled_from(IN_PACKAGE))
    kind = BY_NAME[name]
    blocks = data.draw(arrays.arrays(np.uint8, (1, kind.block_bytes)))
    with np.errstate(all="ignore"):
        expected = gguf_package.quants.dequantize(blocks, gguf_package.GGMLQuantizationType[name])
    assert_same_bits(kind.dequantize(blocks), expected)


@pytest.mark.parametrize(
    "blocks",
    [np.zeros((1, 17), np.uint8), np.zeros((1, 18), np.int8), np.zeros(18, np.uint8), np.zeros((1, 1, 18), np.uint8)],
    ids=["size", "dtype", "1-D", "3-D"],
)
def test_blocks_of_a_wrong_shape_are_refused(blocks):
    with pytest.raises(ValueError, match=r"Q4_0: expected uint8 \[n, 18\]"):
        BY_NAME["Q4_0"].dequantize(blocks)


def test_a_layout_of_the_wrong_size_cannot_be_registered():
    with pytest.raises(AssertionError, match="X: the layout has 3 bytes, the format says 4"):
        quant_type(99, "X", 1, 4, [("d", "<f2"), ("q", "u1")], lambda b: b["q"])


def test_neither_numba_nor_the_reference_package_is_needed():
    code = "import sys, tinyllm_engine.gguf, tinyllm_engine.config; print({'numba', 'gguf'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"
