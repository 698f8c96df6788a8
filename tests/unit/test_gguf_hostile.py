"""Malformed GGUF files and unusable paths: each is refused with one clear line, before anything large is allocated."""

import contextlib
import os
import re
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import gguf_files as files
from support.gguf_files import Raw, Tensor, Typed, build, string, tensor_info
from tinyllm_engine import gguf_header
from tinyllm_engine.errors import GGUFError
from tinyllm_engine.gguf import open_gguf
from tinyllm_engine.gguf_header import parse_header

HUGE = 1 << 60
ONE = Tensor.of("t", np.ones(8, np.float32))
GOOD = build(
    {
        "general.architecture": "llama",
        "general.alignment": 32,
        "words": ["a", "bc", "ü"],
        "numbers": np.arange(5, dtype=np.int16),
        "flags": np.array([True, False]),
        "x": 0.5,
    },
    [ONE, Tensor.of_zeros("q", (64, 2), files.Q8_0, 32, 34)],
)


def entry(*args, **kwargs) -> bytes:
    """A file with one entry in its tensor table and room for 64 KiB of data."""
    return build({}, [tensor_info(*args, **kwargs)]) + bytes(1 << 16)


def with_key(kind: int, raw: bytes) -> bytes:
    return build({"key": Raw(struct.pack("<i", kind) + raw)})


BAD_FILES = {
    # header
    "empty": (b"", "empty file"),
    "four bytes": (b"GGUF", "version: expected 4 bytes"),
    "half a magic": (b"GG", "expected a GGUF file"),
    "text": (b"Hello, I am a text file\n", "expected a GGUF file .* found b'Hello, I'"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "web page": (b"\n<!DOCTYPE html><html>", "web page"),
    "older format": (b"tjgg" + bytes(40), "before GGUF"),
    "zip": (b"PK\x03\x04" + bytes(40), "ZIP"),
    "version 0": (build(version=0), "version 0"),
    "version 1": (build(version=1), "version 1, which is no longer supported"),
    "version 4": (build(version=4), "version 4, which is newer"),
    "version 65539": (build(version=65539), "version 65539"),
    "big-endian": (b"GGUF" + struct.pack(">Iqq", 3, 0, 0), r"little-endian .* big-endian one \(version 3\)"),
    "no counts": (b"GGUF" + struct.pack("<I", 3), "tensor count: expected 8 bytes"),
    "no key count": (b"GGUF" + struct.pack("<Iq", 3, 0), "metadata count: expected 8 bytes"),
    "tensors negative": (build(tensor_count=-1), "tensor count: expected 0 or more, found -1"),
    "tensors huge": (build(tensor_count=HUGE), f"tensor count: found {HUGE}, but only 8 bytes follow"),
    "keys negative": (build(key_count=-5), "metadata count: expected 0 or more, found -5"),
    "keys huge": (build(key_count=HUGE), f"metadata count: found {HUGE}, but only 0 bytes follow"),
    "one key too many": (build({"a" * 50: 1}, key_count=2), "metadata key 1"),
    "one tensor too many": (
        build({"a": "b" * 100}, [tensor_info("t", (1,), 0, 0)], tensor_count=2),
        "name of tensor 1",
    ),
    # keys
    "key length huge": (build(key_count=1) + struct.pack("<Q", HUGE) + bytes(20), "metadata key 0: expected 65535"),
    "key cut off": (build(key_count=1) + struct.pack("<Q", 90) + bytes(20), "metadata key 0: expected 90 bytes"),
    "key empty": (build({"": 1}), "metadata key 0: expected a name, found an empty one"),
    "key twice": (build([("a.b", 1), ("c", 2), ("a.b", 1)]), "metadata key 2: 'a.b' occurs twice"),
    # values
    "value type 13": (with_key(13, bytes(8)), "'key', type: expected a value type 0 to 12, found 13"),
    "value type negative": (with_key(-1, bytes(8)), "'key', type: .* found -1"),
    "value cut off": (with_key(files.FLOAT64, bytes(4)), "'key': expected 8 bytes"),
    "bool 2": (with_key(files.BOOL, b"\2"), "'key': expected 0 or 1 for a bool, found 2"),
    "string cut off": (with_key(files.STRING, struct.pack("<Q", 10) + b"short"), "'key': expected 10 bytes"),
    "string huge": (with_key(files.STRING, struct.pack("<Q", 2**64 - 1) + b"x"), "'key': expected .* bytes at most"),
    "bools with 3": (
        build({"key": Raw(files.array(files.BOOL, [1, 3]))}),
        "'key': expected 0 or 1 for a bool, found 3",
    ),
    "array in array": (build({"key": Raw(files.array(files.ARRAY, [], 1) + bytes(40))}), "'key': arrays inside arrays"),
    "array of type 99": (build({"key": Raw(files.array(99, [], 1) + bytes(40))}), "'key', elements, type: .* found 99"),
    "array huge": (build({"key": Raw(files.array(files.UINT8, [1], HUGE))}), f"array length: found {HUGE}"),
    "array overflows": (build({"key": Raw(files.array(files.UINT64, [1], 2**61 + 1))}), "array length: found"),
    "array one too long": (build({"key": Raw(files.array(files.INT32, [1], 2))}), "array length: found 2, but only 4"),
    "strings huge": (build({"key": Raw(files.array(files.STRING, ["a"], HUGE))}), f"array length: found {HUGE}"),
    "strings cut off": (
        build({"key": Raw(files.array(files.STRING, ["a" * 40], 3))}),
        r"'key'\[1\], length: expected 8",
    ),
    "string in array huge": (
        build({"key": Raw(files.array(files.STRING, ["ok", "next"])[:-12] + struct.pack("<Q", 2**63) + b"next")}),
        r"'key'\[1\]: expected .* bytes at most, found a length of 9223372036854775808",
    ),
    "string in array too long": (
        build({"key": Raw(files.array(files.STRING, ["ok", "next"])[:-12] + struct.pack("<Q", 5) + b"next")}),
        r"'key'\[1\]: expected 5 bytes",
    ),
    "control characters in a key": (build([("a\x1b[31m\n", 1)] * 2), r"'a\\x1b\[31m\\n' occurs twice"),
    # alignment
    "alignment 0": (build({"general.alignment": 0}), "'general.alignment': expected a power of two, found 0"),
    "alignment 24": (build({"general.alignment": 24}), "'general.alignment': expected a power of two, found 24"),
    "alignment of another type": (
        build({"general.alignment": Typed(files.UINT64, 32)}),
        "'general.alignment': expected type UINT32, found UINT64",
    ),
    "alignment text": (build({"general.alignment": "32"}), "'general.alignment': expected type UINT32, found STRING"),
    "alignment beyond the file": (
        build({"general.alignment": 1 << 31}, [tensor_info("t", (1,), files.F32, 0)]),
        "tensor 't': expected 4 bytes at offset 2147483648, but the file has",
    ),
    # tensor table
    "name of 64 bytes": (
        entry("n" * 64, (1,), files.F32, 0),
        "name of tensor 0: expected 63 bytes at most, found .* 64",
    ),
    "name huge": (
        build(tensor_count=1) + struct.pack("<Q", HUGE) + bytes(64),
        f"name of tensor 0: expected 63 bytes at most, found a length of {HUGE}",
    ),
    "name empty": (entry("", (1,), files.F32, 0), "name of tensor 0: expected a name"),
    "name twice": (build({}, [ONE, ONE]), "name of tensor 1: 't' occurs twice"),
    "5 dimensions": (entry("t", (1,) * 5, files.F32, 0), "tensor 't': expected 4 dimensions at most, found 5"),
    "2^32-1 dimensions": (entry("t", (1,), files.F32, 0, n_dims=2**32 - 1), "expected 4 dimensions at most"),
    "dimension negative": (entry("t", (32, -1), files.F32, 0), r"tensor 't': .* found \[32, -1\]"),
    "two negative dimensions": (entry("t", (-32, -1), files.F32, 0), r"tensor 't': .* found \[-32, -1\]"),
    "dimension near 2^42": (entry("t", (2**42, 2**42), files.F32, 0), "overflow 64 bits"),
    "product wraps to 0": (entry("t", (2**32, 2**32), files.F32, 0), "overflow 64 bits"),
    "zero hides an overflow": (entry("t", (2**62, 2**62, 0), files.F32, 0), "overflow 64 bits"),
    "bytes overflow": (entry("t", (2**62,), files.F32, 0), f"expected {2**64} bytes at offset 64, but the file has"),
    "type 43": (entry("t", (32,), 43, 0), "tensor 't': expected a known tensor type, found 43"),
    "type negative": (entry("t", (32,), -1, 0), "tensor 't': expected a known tensor type, found -1"),
    "type removed": (entry("t", (32,), 4, 0), "tensor 't': type 4 was removed"),
    "part of a block": (entry("t", (48,), files.Q8_0, 0), "tensor 't': .* multiple of 32 for Q8_0, found 48"),
    "offset not aligned": (entry("t", (8,), files.F32, 8), "tensor 't': .* multiple of 32, found 8"),
    "offset behind the end": (entry("t", (8,), files.F32, 1 << 20), "tensor 't': expected 32 bytes at offset 1048640"),
    "offset overflows": (entry("t", (8,), files.F32, 2**64 - 32), "tensor 't': expected 32 bytes at offset"),
    "end behind the end": (entry("t", (1 << 14, 2), files.F32, 0), "tensor 't': expected 131072 bytes at offset"),
    "one byte short": (build({}, [ONE])[:-1], "tensor 't': .* damaged or not completely downloaded"),
    "cut inside the table": (build({}, [tensor_info("t", (1, 1), 0, 0)[:-1]]), "tensor 't', offset"),
    "overlap": (
        build({}, [tensor_info("a", (16,), files.F32, 0), tensor_info("b", (8,), files.F32, 32)]) + bytes(256),
        "tensors 'a' and 'b' overlap",
    ),
    "same place": (
        build({}, [tensor_info("a", (8,), files.F32, 0), tensor_info("b", (8,), files.F32, 0)]) + bytes(256),
        "tensors 'a' and 'b' overlap",
    ),
}


@pytest.mark.parametrize(("data", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_with_one_line(tmp_path, data, message):
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(GGUFError) as caught:
            open_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert re.search(message, text), text
    assert text.startswith(f"{path}: ")
    assert text.isprintable()
    assert len(text) < 400
    assert peak < 4 << 20


def test_the_good_file_is_good():
    header = parse_header(GOOD, "x")
    assert [t.name for t in header.tensors] == ["t", "q"]


def test_every_truncation_is_refused():
    for length in range(len(GOOD)):
        with pytest.raises(GGUFError, match=r"^x: "):
            parse_header(GOOD[:length], "x")


@given(st.binary(max_size=400))
def test_random_bytes_never_do_anything_but_raise(data):
    with pytest.raises(GGUFError):
        parse_header(b"GGUF\3\0\0\0" + data.ljust(16, b"\xff"), "x")


@settings(max_examples=400)
@given(st.data())
def test_any_change_of_a_good_file_is_read_or_refused(data):
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(4, len(GOOD) - 8))
        value = data.draw(st.sampled_from([0, 1, 2, 9, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        width = data.draw(st.sampled_from([1, 4, 8]))
        changed[position : position + width] = bytes([value]) * width
    with contextlib.suppress(GGUFError):
        header = parse_header(bytes(changed), "x")
        assert all(t.offset + t.nbytes <= len(changed) for t in header.tensors)


def test_limits_of_our_own_bound_what_a_long_file_can_ask_for(monkeypatch):
    monkeypatch.setattr(gguf_header, "MAX_KEYS", 2)
    monkeypatch.setattr(gguf_header, "MAX_TENSORS", 1)
    monkeypatch.setattr(gguf_header, "MAX_ARRAY_LENGTH", 3)
    keys = {"a": 1, "b": 2}
    assert parse_header(build(keys | {"a": [""] * 3}), "x").metadata["a"] == [""] * 3
    for data, message in [
        (build(keys | {"c": 3}), "metadata count: expected 2 at most, found 3"),
        (build({}, [ONE, Tensor.of("u", np.ones(8, np.float32))]), "tensor count: expected 1 at most, found 2"),
        (build({"a": [""] * 4}), "'a', array length: expected 3 at most, found 4"),
        (build({"a": np.zeros(4, np.int8)}), "'a', array length: expected 3 at most, found 4"),
    ]:
        with pytest.raises(GGUFError, match=message):
            parse_header(data, "x")


@pytest.mark.parametrize("value", ["v" * 200, ["v" * 50] * 4])
def test_a_header_longer_than_the_limit_is_refused(monkeypatch, value):
    monkeypatch.setattr(gguf_header, "MAX_HEADER_BYTES", 150)
    with pytest.raises(GGUFError, match="the header may have 150 at most"):
        parse_header(build({"a": value}) + bytes(1000), "x")


# Paths


def refusal(path) -> str:
    with pytest.raises(GGUFError) as caught:
        open_gguf(path)
    text = str(caught.value)
    assert text.isprintable()
    return text


def test_a_missing_file(tmp_path):
    path = tmp_path / "none.gguf"
    assert refusal(path) == f"{path}: cannot open: No such file or directory"
    assert refusal(str(path)) == f"{path}: cannot open: No such file or directory"


def test_a_directory(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: expected a GGUF file, found a directory"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe").endswith("found something that is not a regular file")


def test_no_permission(tmp_path, monkeypatch):
    path = tmp_path / "closed.gguf"
    path.write_bytes(GOOD)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)  # root may open everything
    assert refusal(path) == f"{path}: cannot open: Permission denied"


def test_a_name_with_a_zero_or_control_characters(tmp_path):
    assert "cannot open" in refusal("a\0b.gguf")
    assert r"\x1b[31m" in refusal(tmp_path / "a\x1b[31m\n.gguf")


def test_a_file_that_cannot_be_mapped(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.write_bytes(GOOD)

    def refuse(*args, **kwargs):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("tinyllm_engine.gguf.mmap.mmap", refuse)
    assert refusal(path) == f"{path}: cannot map: Cannot allocate memory"


def test_reading_ahead_notices_a_file_that_shrank(tmp_path, monkeypatch):
    monkeypatch.setattr("tinyllm_engine.gguf._is_cached", lambda *args: False)
    path = tmp_path / "model.gguf"
    path.write_bytes(GOOD)
    with open_gguf(path) as file:
        os.truncate(path, len(GOOD) - 10)
        with pytest.raises(GGUFError, match=f"has shrunk since it was opened, expected {len(GOOD)} bytes"):
            file.read_ahead()


# Split files


@pytest.fixture
def split(tmp_path):
    """Three parts with a tensor each."""
    parts = [[Tensor.of(name, np.ones(8, np.float32))] for name in "abc"]
    return files.write_split(tmp_path, "model", parts, {"general.architecture": "llama"})


def rewrite(path, tensors=(ONE,), **keys):
    """Replace a part by one with other split keys; None leaves one out."""
    named = {"split.no": 0, "split.count": 3, "split.tensors.count": 3}
    named |= {name.replace("__", "."): value for name, value in keys.items()}
    path.write_bytes(build({key: value for key, value in named.items() if value is not None}, list(tensors)))


def test_a_later_part_without_part_1(split):
    split[0].unlink()
    assert refusal(split[1]) == f"{split[0]}: part 1 of 3 of the model is missing"


def test_a_later_part_under_another_name(split, tmp_path):
    renamed = split[1].rename(tmp_path / "mine.gguf")
    assert refusal(renamed) == f"{renamed}: is part of a split model, expected a name that ends in -00002-of-00003.gguf"


def test_a_missing_part_is_named(split):
    split[2].unlink()
    assert refusal(split[0]) == f"{split[2]}: part 3 of 3 of the model is missing"


def test_a_damaged_part_is_named(split):
    split[1].write_bytes(split[1].read_bytes()[:-1])
    assert refusal(split[0]).startswith(f"{split[1]}: tensor 'b': expected 32 bytes")


def test_part_1_under_another_name(split, tmp_path):
    renamed = split[0].rename(tmp_path / "mine.gguf")
    assert refusal(renamed) == (
        f"{renamed}: is part of a split model, expected a name that ends in -00001-of-00003.gguf"
    )
    renamed = renamed.rename(tmp_path / "mine-00001-of-00002.gguf")
    assert refusal(renamed) == f"{renamed}: is part 1 of 3 by its contents, but its name says otherwise"


def test_a_part_of_another_model(split):
    rewrite(split[1], split__no=2)
    assert refusal(split[0]) == f"{split[1]}: expected part 2 of 3, found part 3 of 3"
    rewrite(split[1], split__no=1, split__count=4)
    assert refusal(split[0]) == f"{split[1]}: expected part 2 of 3, found part 2 of 4"
    rewrite(split[1], split__no=None)
    assert refusal(split[0]) == f"{split[1]}: 'split.no': expected a number of 0 or more, found nothing"


def test_a_tensor_in_two_parts(split):
    rewrite(split[1], [Tensor.of("a", np.ones(8, np.float32))], split__no=1)
    assert refusal(split[0]) == f"{split[1]}: tensor 'a' is in an earlier part too"


def test_a_wrong_total_of_tensors(split):
    rewrite(split[1], [], split__no=1)
    assert refusal(split[0]).endswith("'split.tensors.count': expected 3 tensors in all parts, found 2")


@pytest.mark.parametrize("value", ["3", 2.0, -1, True, np.arange(2)], ids=str)
def test_split_keys_of_another_type(tmp_path, value):
    path = tmp_path / "m-00001-of-00002.gguf"
    rewrite(path, split__count=value)
    assert "'split.count': expected a number of 0 or more, found" in refusal(path)


def test_nothing_stays_open_after_a_refusal(split):
    split[2].unlink()
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    for _ in range(3):
        refusal(split[0])
    after = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    assert len(after) == len(before)


def test_string_helper_is_the_formats():
    assert string("ab") == b"\2\0\0\0\0\0\0\0ab"
