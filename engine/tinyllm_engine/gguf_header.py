"""The header of a GGUF file: counts, metadata, tensor table. Bytes in, checked values out.

Nothing in it is believed: every length is compared with the bytes that remain before anything is read or allocated, and
every tensor lies inside the file before a view of it can exist. The format is described in ggml's docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tinyllm_engine.errors import GGUFError
from tinyllm_engine.quants import QUANT_TYPES, QuantType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

# Limits of this reader, far above any real file: they bound what a hostile one can make us allocate.
MAX_HEADER_BYTES = 1 << 27
MAX_ARRAY_LENGTH = 1 << 22
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_KEY_BYTES = (1 << 16) - 1
# Limits of the format.
MAX_NAME_BYTES = 63
MAX_DIMS = 4
MAX_INT64 = (1 << 63) - 1

# The smallest entry: a length, one byte of name, and the fixed fields (for a key one byte of value).
_MIN_KEY_VALUE = 8 + 1 + 4 + 1
_MIN_TENSOR_INFO = 8 + 1 + 4 + 4 + 8

_REMOVED_TYPES = {4, 5, 31, 32, 33, 36, 37, 38}


Buffer = bytes | mmap.mmap


class ValueType(IntEnum):
    """Types of metadata values, by their number in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_NUMBERS = {
    ValueType.UINT8: "<u1",
    ValueType.INT8: "<i1",
    ValueType.UINT16: "<u2",
    ValueType.INT16: "<i2",
    ValueType.UINT32: "<u4",
    ValueType.INT32: "<i4",
    ValueType.FLOAT32: "<f4",
    ValueType.UINT64: "<u8",
    ValueType.INT64: "<i8",
    ValueType.FLOAT64: "<f8",
}


@dataclass(frozen=True)
class TensorInfo:
    """One line of the tensor table. offset and nbytes in bytes, the offset counted from the start of the file."""

    name: str
    dims: tuple[int, ...]
    type: QuantType
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    version: int
    metadata: dict[str, Any]
    tensors: list[TensorInfo]


def text_of(metadata: Mapping[str, Any], key: str) -> str | None:
    """The value of a key, None where it is no text: an array, which a file may have anywhere, is equal to nothing."""
    value = metadata.get(key)
    return value if isinstance(value, str) else None


def shown(text: str, limit: int = 80) -> str:
    """Text of a file inside quotes, safe to print: control characters escaped, clipped to about `limit` characters."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def printable(path: object) -> str:
    """A path for a message: as it is, or quoted with escapes when it holds something that must not be printed."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def location(path: str) -> str:
    """How a message about a file begins; "" where it has none."""
    return f"{printable(path)}: " if path else ""


class _Reader:
    """Reads values one after the other; whatever would pass the end is refused with the field's name."""

    def __init__(self, data: Buffer, path: str) -> None:
        self.data = data
        self.path = path
        self.position = 0
        self.file_size = len(data)
        self.end = min(self.file_size, MAX_HEADER_BYTES)

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def fail(self, what: str) -> NoReturn:
        raise GGUFError(f"{self.path}: {what}")

    def need(self, nbytes: int, field: str) -> None:
        if nbytes <= self.remaining:
            return
        if self.end < self.file_size:
            self.fail(
                f"{field}: needs {nbytes} bytes at offset {self.position}, the header may have {self.end} at most"
            )
        self.fail(
            f"{field}: expected {nbytes} bytes at offset {self.position}, "
            f"found the end of the file after {self.remaining}"
        )

    def number(self, dtype: str, field: str) -> Any:
        """One value as a Python int or float."""
        return self.numbers(dtype, 1, field)[0].item()

    def numbers(self, dtype: str, count: int, field: str) -> npt.NDArray[Any]:
        """A read-only copy: metadata must stay valid when the file is closed."""
        size = np.dtype(dtype).itemsize * count
        self.need(size, field)
        values = np.frombuffer(self.data[self.position : self.position + size], dtype)
        self.position += size
        return values

    def count(self, field: str, dtype: str, smallest: int, limit: int) -> int:
        """The number of entries to come, each at least `smallest` bytes."""
        count = self.number(dtype, field)
        if count < 0:
            self.fail(f"{field}: expected 0 or more, found {count}")
        if count > self.remaining // smallest:
            self.fail(f"{field}: found {count}, but only {self.remaining} bytes follow")
        if count > limit:
            self.fail(f"{field}: expected {limit} at most, found {count}")
        return int(count)

    def string(self, field: str, limit: int = MAX_HEADER_BYTES) -> str:
        length = self.number("<u8", f"{field}, length")
        if length > limit:
            self.fail(f"{field}: expected {limit} bytes at most, found a length of {length}")
        self.need(length, field)
        start = self.position
        self.position += length
        return self._text(start, self.position)

    def strings(self, count: int, field: str) -> list[str]:
        """A quarter of a million is common, so Python only walks the lengths, and one decode does the rest."""
        start = self.position
        at = self._string_offsets(count, field)
        packed = np.frombuffer(bytearray(self.data[start : self.position]), np.uint8)
        lengths = np.array(at, np.int64)[:, None] - start + np.arange(8)  # [count, 8]: where the length's bytes are
        packed[lengths] = 0
        if packed.size - np.count_nonzero(packed) > lengths.size:  # a string holds a zero: they cannot separate
            ends = [*at[1:], self.position]
            return [self._text(first + 8, last) for first, last in zip(at, ends, strict=True)]
        return self._decode(packed.tobytes()).split("\0" * 8)[1:] if count else []

    def _string_offsets(self, count: int, field: str) -> list[int]:
        """Where each of the coming strings starts, length included; the position moves behind the last."""
        data, position, end = self.data, self.position, self.end
        length_at = struct.Struct("<Q").unpack_from
        at: list[int] = []
        append = at.append
        try:
            for _ in range(count):
                append(position)
                position += 8 + length_at(data, position)[0]
        except (struct.error, OverflowError):  # the length to read lies behind the end of the data
            position = end + 1
        if position > end:
            self._fail_in_strings(at, field)
        self.position = position
        return at

    def _fail_in_strings(self, at: list[int], field: str) -> NoReturn:
        """Read again slowly, for the error of the first string that passes the end."""
        for i, self.position in enumerate(at):
            self.string(f"{field}[{i}]")
        raise AssertionError("a string passed the end")

    def _text(self, start: int, stop: int) -> str:
        return self._decode(self.data[start:stop])

    @staticmethod
    def _decode(raw: bytes) -> str:
        return str(raw, "utf-8", "surrogateescape")

    def bools(self, count: int, field: str) -> npt.NDArray[np.bool_]:
        values = self.numbers("<u1", count, field)
        if count and values.max() > 1:
            self.fail(f"{field}: expected 0 or 1 for a bool, found {int(values.max())}")
        return values.view(np.bool_)

    def value_type(self, field: str) -> ValueType:
        number = self.number("<i4", f"{field}, type")
        try:
            return ValueType(number)
        except ValueError:
            self.fail(f"{field}, type: expected a value type 0 to {max(ValueType)}, found {number}")

    def value(self, kind: ValueType, field: str) -> Any:
        if kind is ValueType.STRING:
            return self.string(field)
        if kind is ValueType.BOOL:
            return bool(self.bools(1, field)[0])
        if kind is ValueType.ARRAY:
            return self.array(field)
        return self.number(_NUMBERS[kind], field)

    def array(self, field: str) -> list[str] | npt.NDArray[Any]:
        kind = self.value_type(f"{field}, elements")
        if kind is ValueType.ARRAY:
            self.fail(f"{field}: arrays inside arrays are not supported")
        if kind is ValueType.STRING:
            return self.strings(self.count(f"{field}, array length", "<u8", 8, MAX_ARRAY_LENGTH), field)
        size = 1 if kind is ValueType.BOOL else np.dtype(_NUMBERS[kind]).itemsize
        count = self.count(f"{field}, array length", "<u8", size, MAX_ARRAY_LENGTH)
        return self.bools(count, field) if kind is ValueType.BOOL else self.numbers(_NUMBERS[kind], count, field)


def parse_header(data: Buffer, path: str) -> Header:
    """Read and check everything before the tensors' data.

    data: the whole file as bytes or a mapping; only the header is read, the length bounds the tensors
    path: the file's name for messages. GGUFError names it, the field, what was expected and what was found.
    """
    reader = _Reader(data, path)
    version = _version(reader)
    tensor_count = reader.count("tensor count", "<i8", _MIN_TENSOR_INFO, MAX_TENSORS)
    key_count = reader.count("metadata count", "<i8", _MIN_KEY_VALUE, MAX_KEYS)
    metadata: dict[str, Any] = {}
    alignment = DEFAULT_ALIGNMENT
    for i in range(key_count):
        key, kind, value = _key_value(reader, f"metadata key {i}", metadata)
        metadata[key] = value
        if key == "general.alignment":
            alignment = _alignment(reader, kind, value)
    entries: dict[str, tuple[tuple[int, ...], QuantType, int, int]] = {}
    for i in range(tensor_count):
        name = _tensor_name(reader, f"name of tensor {i}", entries)
        entries[name] = _tensor_entry(reader, f"tensor {shown(name)}", alignment)
    data_start = -(-reader.position // alignment) * alignment
    tensors = [
        TensorInfo(name, dims, kind, data_start + offset, nbytes)
        for name, (dims, kind, offset, nbytes) in entries.items()
    ]
    _check_extent(reader, tensors)
    return Header(version, metadata, tensors)


def _version(reader: _Reader) -> int:
    if not reader.file_size:
        reader.fail("expected a GGUF file, found an empty file")
    found = bytes(reader.data[:4])
    if found != MAGIC:
        reader.fail(f"expected a GGUF file (first bytes {MAGIC!r}), found {_describe(bytes(reader.data[:64]))}")
    reader.position = 4
    version = reader.number("<u4", "version")
    if version in VERSIONS:
        return int(version)
    if version and version & 0xFFFF == 0:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        reader.fail(f"expected a little-endian file, found a big-endian one (version {swapped})")
    if version > max(VERSIONS):
        reader.fail(f"expected GGUF version 2 or 3, found version {version}, which is newer than this program")
    reader.fail(f"expected GGUF version 2 or 3, found version {version}, which is no longer supported")


def _describe(start: bytes) -> str:
    """What a file that is not GGUF seems to be, from its first bytes."""
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer: the model itself was not downloaded"
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "a web page: the download went wrong"
    if start[:4] in (b"lmgg", b"fmgg", b"tjgg", b"algg"):
        return "a GGML file from before GGUF"
    if start.startswith(b"PK"):
        return "a ZIP archive"
    return repr(start[:8])


def _key_value(reader: _Reader, field: str, known: dict[str, Any]) -> tuple[str, ValueType, Any]:
    key = reader.string(field, MAX_KEY_BYTES)
    if not key:
        reader.fail(f"{field}: expected a name, found an empty one")
    if key in known:
        reader.fail(f"{field}: {shown(key)} occurs twice")
    field = shown(key)
    kind = reader.value_type(field)
    return key, kind, reader.value(kind, field)


def _alignment(reader: _Reader, kind: ValueType, value: Any) -> int:
    if kind is not ValueType.UINT32:
        reader.fail(f"'general.alignment': expected type UINT32, found {kind.name}")
    if value < 1 or value & (value - 1):
        reader.fail(f"'general.alignment': expected a power of two, found {value}")
    return int(value)


def _tensor_name(reader: _Reader, field: str, known: dict[str, Any]) -> str:
    name = reader.string(field, MAX_NAME_BYTES)
    if not name:
        reader.fail(f"{field}: expected a name, found an empty one")
    if name in known:
        reader.fail(f"{field}: {shown(name)} occurs twice")
    return name


def _tensor_entry(reader: _Reader, field: str, alignment: int) -> tuple[tuple[int, ...], QuantType, int, int]:
    """dims, type, offset inside the data section, size in bytes."""
    n_dims = reader.number("<u4", f"{field}, number of dimensions")
    if n_dims > MAX_DIMS:
        reader.fail(f"{field}: expected {MAX_DIMS} dimensions at most, found {n_dims}")
    dims = tuple(reader.numbers("<i8", n_dims, f"{field}, dimensions").tolist()) or (1,)
    if min(dims) < 0:
        reader.fail(f"{field}: expected dimensions of 0 or more, found {list(dims)}")
    kind = _tensor_type(reader, field)
    if dims[0] % kind.block_elements:
        reader.fail(f"{field}: expected rows of a multiple of {kind.block_elements} for {kind.name}, found {dims[0]}")
    # A zero among the dimensions must not hide an overflow of the others.
    if math.prod(max(d, 1) for d in dims) > MAX_INT64:
        reader.fail(f"{field}: dimensions {list(dims)} overflow 64 bits")
    nbytes = math.prod(dims) // kind.block_elements * kind.block_bytes
    offset = reader.number("<u8", f"{field}, offset")
    if offset % alignment:
        reader.fail(f"{field}: expected an offset that is a multiple of {alignment}, found {offset}")
    return dims, kind, offset, nbytes


def _tensor_type(reader: _Reader, field: str) -> QuantType:
    number = reader.number("<i4", f"{field}, type")
    if number in QUANT_TYPES:
        return QUANT_TYPES[number]
    if number in _REMOVED_TYPES:
        reader.fail(f"{field}: type {number} was removed from the format; convert the model again")
    reader.fail(f"{field}: expected a known tensor type, found {number}")


def _check_extent(reader: _Reader, tensors: list[TensorInfo]) -> None:
    """Every tensor lies inside the file, and no two share a byte."""
    for tensor in tensors:
        if tensor.offset + tensor.nbytes > reader.file_size:
            reader.fail(
                f"tensor {shown(tensor.name)}: expected {tensor.nbytes} bytes at offset {tensor.offset}, "
                f"but the file has {reader.file_size} bytes; it is damaged or not completely downloaded"
            )
    previous = None
    for tensor in sorted((t for t in tensors if t.nbytes), key=lambda t: t.offset):
        if previous and previous.offset + previous.nbytes > tensor.offset:
            reader.fail(f"tensors {shown(previous.name)} and {shown(tensor.name)} overlap in the file")
        previous = tensor
