"""Toy models whose layers have sliding windows, their matrices in Q8_0, and what shows that released rows stay unread.

The golden toys are written again with other windows: products with quantized matrices are the same bits in any batch,
so whatever is read in whatever pieces can be compared bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tinyllm_engine.memory import Area

from support.gguf_files import Tensor, build
from support.golden import toy_models, toy_specs
from support.recurrent_model import quantized

WINDOW = 70  # a page and a bit
KINDS = {
    "windowed": "gemma3-dense",
    "hybrid": "lfm2-dense",
}  # beside a layer with a window: one without, a recurrent one
LISTS = {"UINT32": np.uint32, "BOOL": np.bool_, "FLOAT32": np.float32, "INT32": np.int32}


def write(path: Path, kind: str = "windowed", window: int = WINDOW, **metadata: Any) -> Path:
    """Writes a toy; `metadata` replaces values, under the keys' last part."""
    spec, changes = toy_specs()[KINDS[kind]], {"sliding_window": window, "context_length": 4096} | metadata
    keys = {key: _value(kinds, changes.get(key.rsplit(".", 1)[-1], value)) for key, kinds, value in spec["kv"]}
    vocabulary = next(value for key, value in keys.items() if key.endswith(".vocab_size"))
    keys |= {"tokenizer.ggml.tokens": [f"tok_{i}" for i in range(vocabulary)]}
    path.write_bytes(build(keys, [_tensor(name, dims) for name, dims, _ in spec["tensors"]]))
    return path


def _value(kinds: list[str], value: Any) -> Any:
    return (
        np.array(value, LISTS[kinds[-1]]) if kinds[0] == "ARRAY" else float(value) if kinds[-1] == "FLOAT32" else value
    )


def _tensor(name: str, dims: list[int]) -> Tensor:
    values = toy_models().weights(name, tuple(reversed(dims)), 1)
    plain = len(dims) == 1 or ".conv." in name
    return Tensor.of(name, values) if plain else quantized(name, values)


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on memory that is given back reads as NaN in every type: whoever reads it shows it in the logits."""

    def spoil(area: Area, start: int, length: int) -> None:
        area.bytes[start : start + length] = 0xFF

    monkeypatch.setattr(Area, "forget", spoil)
