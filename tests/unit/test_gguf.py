"""Reading well-formed GGUF files."""

import gc
import struct
import warnings

import gguf as gguf_package
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gguf_files as files
from support.gguf_files import Raw, Tensor, Typed, build
from tinyllm_engine.gguf import open_gguf
from tinyllm_engine.gguf_header import parse_header


def write(tmp_path, data, name="model.gguf"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def read_metadata(pairs):
    return parse_header(build(pairs), "x.gguf").metadata


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_are_read(tmp_path, version):
    with open_gguf(write(tmp_path, build({"a": 1}, version=version))) as file:
        assert file.version == version
        assert file.metadata == {"a": 1}
        assert file.tensors == {}


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (files.UINT8, 255),
        (files.INT8, -128),
        (files.UINT16, 65535),
        (files.INT16, -32768),
        (files.UINT32, 2**32 - 1),
        (files.INT32, -(2**31)),
        (files.UINT64, 2**64 - 1),
        (files.INT64, -(2**63)),
        (files.FLOAT32, 0.5),
        (files.FLOAT64, 0.1),
        (files.BOOL, True),
        (files.BOOL, False),
        (files.STRING, "naïve 🙂"),
        (files.STRING, ""),
    ],
)
def test_scalars_of_every_type_become_python_values(kind, number):
    found = read_metadata({"key": Typed(kind, number)})["key"]
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "b1"])
def test_arrays_of_numbers_become_read_only_arrays(dtype):
    values = np.array([0, 1, 1, 0, 1], dtype)
    found = read_metadata({"before": "x", "key": values})["key"]
    np.testing.assert_array_equal(found, values)
    assert found.dtype == values.dtype
    assert not found.flags.writeable
    assert len(read_metadata({"key": values[:0]})["key"]) == 0


def test_bytes_that_are_not_utf8_survive_as_surrogates():
    raw = b"caf\xe9 \xff\x00 end"
    found = read_metadata({"one": raw, "many": [b"\xe2\x82", raw, "plain"]})
    assert found["one"].encode("utf-8", "surrogateescape") == raw
    assert [s.encode("utf-8", "surrogateescape") for s in found["many"]] == [b"\xe2\x82", raw, b"plain"]


@given(st.lists(st.binary(max_size=20) | st.text(max_size=300)))
def test_any_list_of_strings_is_read_back(texts):
    expected = [files.string(t)[8:].decode("utf-8", "surrogateescape") for t in texts]
    assert read_metadata([("a", texts), ("after", 7)]) == {"a": expected, "after": 7}


def test_strings_with_zeros_in_them_do_not_run_together():
    texts = ["a\0", "\0" * 8, "", "\0b", "c" * 300]
    assert read_metadata({"a": texts})["a"] == texts


def test_tensors_are_views_into_the_file_in_its_order(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    ids = np.arange(5, dtype=np.int32)
    data = build({"general.architecture": "x"}, [Tensor.of("z", rows), Tensor.of("a", ids)])
    with open_gguf(write(tmp_path, data)) as file:
        assert list(file.tensors) == ["z", "a"]
        assert file.nbytes == len(data)
        z = file.tensors["z"]
        assert (z.dims, z.type.name, z.rows, z.nbytes) == ((4, 3), "F32", 3, 48)
        assert not z.data.flags.writeable
        np.testing.assert_array_equal(z.dequantize(), rows)
        np.testing.assert_array_equal(file.tensors["a"].dequantize(), ids[None].astype(np.float32))


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_the_alignment_of_the_file_is_used(tmp_path, alignment):
    first, second = np.arange(3, dtype=np.float32), np.arange(7, dtype=np.float32)
    data = build({"general.alignment": alignment}, [Tensor.of("a", first), Tensor.of("b", second)], alignment=alignment)
    with open_gguf(write(tmp_path, data)) as file:
        np.testing.assert_array_equal(file.tensors["a"].dequantize()[0], first)
        np.testing.assert_array_equal(file.tensors["b"].dequantize()[0], second)


def test_gaps_between_tensors_and_padding_at_the_end_are_legal(tmp_path):
    ones = np.ones(8, np.float32)
    last = Tensor("b", (8,), files.F32, bytes(96) + ones.tobytes(), offset=128)
    with open_gguf(write(tmp_path, build({}, [Tensor.of("a", ones), last]) + bytes(100))) as file:
        np.testing.assert_array_equal(file.tensors["b"].dequantize()[0], ones)


def test_tensors_without_elements_or_dimensions(tmp_path):
    tensors = [
        Tensor("empty", (32, 0), files.Q8_0, b""),
        Tensor("no-columns", (0, 5), files.F32, b""),
        Tensor("scalar", (), files.F32, struct.pack("<f", 3)),
    ]
    with open_gguf(write(tmp_path, build({}, tensors))) as file:
        assert file.tensors["empty"].dequantize().shape == (0, 32)
        assert file.tensors["no-columns"].dequantize().shape == (5, 0)
        assert file.tensors["scalar"].dims == (1,)
        assert file.tensors["scalar"].dequantize().tolist() == [[3]]


def test_a_file_written_by_the_reference_package_is_read(tmp_path):
    path = tmp_path / "model.gguf"
    weights = np.random.default_rng(5).standard_normal((6, 64)).astype(np.float32)
    packed = gguf_package.quants.quantize(weights, gguf_package.GGMLQuantizationType.Q5_0)
    writer = gguf_package.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_block_count(3)
    writer.add_array("words", ["a", "b", "ü"])
    writer.add_tensor("w", packed, raw_dtype=gguf_package.GGMLQuantizationType.Q5_0)
    writer.add_tensor("plain", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_gguf(path) as file:
        assert file.metadata["llama.block_count"] == 3
        assert file.metadata["words"] == ["a", "b", "ü"]
        assert file.tensors["w"].dims == (64, 6)
        assert file.tensors["w"].data.tobytes() == packed.tobytes()
        np.testing.assert_array_equal(file.tensors["plain"].dequantize(), weights)


def test_our_own_test_files_are_read_by_the_reference_package(tmp_path):
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    metadata = {"general.architecture": "llama", "n": -3, "words": ["x", "y"], "flags": np.array([True, False])}
    reader = gguf_package.GGUFReader(write(tmp_path, build(metadata, [Tensor.of("t", values)])))
    assert {key: reader.fields[key].contents() for key in metadata} == metadata | {"flags": [True, False]}
    np.testing.assert_array_equal(reader.tensors[0].data, values)


def test_closing_leaves_views_in_use_valid(tmp_path):
    file = open_gguf(write(tmp_path, build({}, [Tensor.of("t", np.ones(8, np.float32))])))
    view = file.tensors["t"]
    file.close()
    file.close()
    assert file.tensors == {}
    assert view.dequantize().tolist() == [[1.0] * 8]


def test_closing_unmaps_a_file_that_nobody_uses(tmp_path):
    file = open_gguf(write(tmp_path, build({"a": np.arange(3)}, [Tensor.of("t", np.ones(8, np.float32))])))
    metadata, mapping = file.metadata, file._parts[0].map
    file.close()
    assert mapping.closed
    assert metadata["a"].tolist() == [0, 1, 2]


def test_read_ahead_reports_every_byte(tmp_path, monkeypatch):
    monkeypatch.setattr("tinyllm_engine.gguf._READ_AHEAD_BYTES", 4096)
    parts = [[Tensor.of("a", np.ones(3000, np.float32))], [Tensor.of("b", np.ones(10, np.float32))]]
    with open_gguf(files.write_split(tmp_path, "m", parts, {})[0]) as file:
        seen = []
        file.read_ahead(lambda done, total: seen.append((done, total)))
        file.read_ahead()
    done = [d for d, _ in seen]
    assert done[0] == 0
    assert done == sorted(done)
    assert done[-1] == file.nbytes == sum(p.stat().st_size for p in tmp_path.iterdir())
    assert len(set(done)) >= 4
    assert {total for _, total in seen} == {file.nbytes}


def test_split_files_are_merged_in_order(tmp_path):
    parts = [[Tensor.of("a", np.full(8, 1.0, np.float32))], [], [Tensor.of("b", np.full(8, 2.0, np.float32))]]
    paths = files.write_split(tmp_path, "model", parts, {"general.name": "whole"})
    with open_gguf(paths[0]) as file:
        assert file.metadata["general.name"] == "whole"
        assert [t.dequantize()[0, 0] for t in file.tensors.values()] == [1.0, 2.0]
        assert list(file.tensors) == ["a", "b"]
        assert file.path == paths[0]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_split_model_is_opened_by_any_part(number, tmp_path):
    parts = [[Tensor.of(name, np.full(8, 1.0, np.float32))] for name in "abc"]
    paths = files.write_split(tmp_path, "model", parts, {"general.name": "whole"})
    with open_gguf(paths[number - 1]) as file:
        assert file.path == paths[0]
        assert file.metadata["general.name"] == "whole"
        assert list(file.tensors) == ["a", "b", "c"]


def test_a_split_count_of_one_is_a_whole_file(tmp_path):
    with open_gguf(write(tmp_path, build({"split.no": 0, "split.count": 1}))) as file:
        assert file.metadata["split.count"] == 1


def test_a_raw_value_reaches_the_reader_unchanged():
    assert read_metadata({"k": Raw(files.array(files.INT16, [1, -2]))})["k"].tolist() == [1, -2]


def test_a_forgotten_file_closes_itself_without_a_warning(tmp_path):
    path = write(tmp_path, build({"a": 1}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = open_gguf(path)
        handle = file._parts[0].file
        del file
        gc.collect()
    assert handle.closed
