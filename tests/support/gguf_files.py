"""GGUF files as bytes, well formed or not: every count, type and offset can be set to something wrong.

    build({"general.architecture": "llama"}, [Tensor.of("a.weight", np.zeros((2, 32), np.float32))])

It shares nothing with the engine's reader, so that the two cannot agree on the same mistake.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
FORMATS = {UINT8: "B", INT8: "b", UINT16: "H", INT16: "h", UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "B"}
FORMATS |= {UINT64: "Q", INT64: "q", FLOAT64: "d"}

F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8

_NUMPY_KINDS = {"u1": UINT8, "i1": INT8, "u2": UINT16, "i2": INT16, "u4": UINT32, "i4": INT32}
_NUMPY_KINDS |= {"f4": FLOAT32, "b1": BOOL, "u8": UINT64, "i8": INT64, "f8": FLOAT64}


@dataclass(frozen=True)
class Typed:
    """A metadata value with its type given; `build` chooses one for plain values."""

    kind: int
    value: Any


@dataclass(frozen=True)
class Raw:
    """A metadata value already in bytes: type and all."""

    data: bytes


@dataclass(frozen=True)
class Tensor:
    """One tensor: its line in the table and its data. offset: None for the next free one."""

    name: str | bytes
    dims: Sequence[int]
    type: int
    data: bytes
    offset: int | None = None

    @staticmethod
    def of(name: str, array: np.ndarray) -> Tensor:
        """A float32, float16 or integer array; NumPy's shape is the GGUF dimensions reversed."""
        kinds = {"f4": 0, "f2": 1, "i1": 24, "i2": 25, "i4": 26, "i8": 27, "f8": 28}
        return Tensor(name, array.shape[::-1], kinds[array.dtype.str[1:]], array.tobytes())

    @staticmethod
    def of_zeros(name: str, dims: Sequence[int], type_id: int, block_elements: int, block_bytes: int) -> Tensor:
        return Tensor(name, dims, type_id, bytes(math.prod(dims) // block_elements * block_bytes))


def string(text: str | bytes) -> bytes:
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def array(kind: int, values: Sequence[Any], length: int | None = None) -> bytes:
    """An array value with its type in front; `length` may lie."""
    items = b"".join(scalar(kind, value) for value in values)
    return struct.pack("<iiQ", ARRAY, kind, len(values) if length is None else length) + items


def scalar(kind: int, value: Any) -> bytes:
    return string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def value(item: Any) -> bytes:
    """A metadata value with its type in front."""
    match item:
        case Raw():
            return item.data
        case Typed():
            return struct.pack("<i", item.kind) + scalar(item.kind, item.value)
        case bool():
            return value(Typed(BOOL, item))
        case int():
            return value(Typed(INT32 if item < 0 else UINT32 if item < 1 << 32 else UINT64, item))
        case float():
            return value(Typed(FLOAT32, item))
        case str() | bytes():
            return value(Typed(STRING, item))
        case np.ndarray():
            return array(_NUMPY_KINDS[item.dtype.str[1:]], item.tolist())
        case list():
            return array(STRING, item)
    raise TypeError(f"no metadata type for {item!r}")


def tensor_info(name: str | bytes, dims: Sequence[int], type_id: int, offset: int, n_dims: int | None = None) -> bytes:
    return (
        string(name)
        + struct.pack("<I", len(dims) if n_dims is None else n_dims)
        + struct.pack(f"<{len(dims)}q", *dims)
        + struct.pack("<iQ", type_id, offset)
    )


def build(
    metadata: Mapping[str, Any] | Sequence[tuple[str | bytes, Any]] = (),
    tensors: Sequence[Tensor | bytes] = (),
    *,
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    """The bytes of a file. A tensor given as bytes is a table entry as it stands, without data.

    `alignment` lays out the data; write `general.alignment` into the metadata as well if it is not 32.
    """
    pairs = list(metadata.items()) if isinstance(metadata, Mapping) else list(metadata)
    table, data = b"", b""
    for tensor in tensors:
        if isinstance(tensor, bytes):
            table += tensor
            continue
        data += bytes(-len(data) % alignment)
        table += tensor_info(
            tensor.name, tensor.dims, tensor.type, len(data) if tensor.offset is None else tensor.offset
        )
        data += tensor.data
    head = b"GGUF" + struct.pack(
        "<Iqq",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(pairs) if key_count is None else key_count,
    )
    head += b"".join(string(key) + value(item) for key, item in pairs) + table
    return head + bytes(-len(head) % alignment) + data if tensors else head


def write_split(folder: Path, stem: str, parts: Sequence[Sequence[Tensor]], metadata: Mapping[str, Any]) -> list[Path]:
    """A split model: `metadata` goes into part 1, the split keys into every part."""
    total = sum(len(part) for part in parts)
    paths = []
    for number, tensors in enumerate(parts):
        keys = {
            "split.no": Typed(UINT16, number),
            "split.count": Typed(UINT16, len(parts)),
            "split.tensors.count": Typed(INT32, total),
        }
        path = folder / f"{stem}-{number + 1:05d}-of-{len(parts):05d}.gguf"
        path.write_bytes(build((dict(metadata) if number == 0 else {}) | keys, tensors))
        paths.append(path)
    return paths


def llama_metadata(**changes: Any) -> dict[str, Any]:
    """What a small llama model's file says: keys without the `llama.` in front, changed by `changes` (None removes).

    In a keyword, `__` stands for a dot: `rope__freq_base=5e5`.
    """
    keys: dict[str, Any] = {
        "block_count": 2,
        "context_length": 256,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": 32,
    }
    keys |= {name.replace("__", "."): item for name, item in changes.items()}
    named = {f"llama.{name}": item for name, item in keys.items() if item is not None}
    return {"general.architecture": "llama"} | named
