"""LoRA adapters made for a test, and what the weights are when they are merged into a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tinyllm_engine.model import Model
from tinyllm_engine.quants import QUANT_TYPES
from tinyllm_engine.tensor import TensorView

from support import gguf_files
from support.gguf_files import Tensor

EMBEDDING = "token_embd.weight"


def matrices(model: Model) -> list[str]:
    """Names of all tensors that an adapter may have: the matrices but an embedding that is the output as well."""
    names = [name for name, tensor in model.tensors.items() if len(tensor.dims) == 2 and "norm" not in name]
    return [name for name in names if name != EMBEDDING or "output.weight" in model.tensors]


def pairs(model: Model, names: Iterable[str], rank: int, seed: int = 3) -> dict[str, np.ndarray]:
    """Random A and B for these tensors, by their names in the file: [rank, inputs] and [outputs, rank]."""
    random = np.random.default_rng(seed)
    values: dict[str, np.ndarray] = {}
    for name in names:
        inputs, outputs = model.tensors[name].dims
        a, b = (
            (outputs, rank) if name == EMBEDDING else (rank, inputs),
            (inputs if name == EMBEDDING else outputs, rank),
        )
        values[f"{name}.lora_a"] = random.normal(0, 0.2, a).astype(np.float32)
        values[f"{name}.lora_b"] = random.normal(0, 0.2, b).astype(np.float32)
    return values


def metadata(architecture: str, alpha: float, /, **changes: Any) -> dict[str, Any]:
    """`changes` by the last part of the key; None removes it."""
    keys = {
        "general.type": "adapter",
        "general.architecture": architecture,
        "general.name": "Pirate",
        "adapter.type": "lora",
        "adapter.lora.alpha": alpha,
    }
    keys |= {next(key for key in keys if key.endswith(f".{name}")): value for name, value in changes.items()}
    return {key: value for key, value in keys.items() if value is not None}


def write(path: Path, values: Mapping[str, np.ndarray], keys: Mapping[str, Any]) -> Path:
    path.write_bytes(gguf_files.build(keys, [Tensor.of(name, array) for name, array in values.items()]))
    return path


def merge(model: Model, values: Mapping[str, np.ndarray], factor: float) -> Model:
    """The model with its weights as float32 and factor * B A added to them."""
    f32 = next(kind for kind in QUANT_TYPES.values() if kind.name == "F32")
    for name in {stored.rpartition(".")[0] for stored in values}:
        tensor = model.tensors[name]
        a, b = values[f"{name}.lora_a"].astype(np.float64), values[f"{name}.lora_b"].astype(np.float64)
        change = a @ b.T if name == EMBEDDING else b @ a
        merged = (tensor.dequantize() + factor * change).astype(np.float32)
        model.tensors[name] = TensorView(name, tensor.dims, f32, merged.reshape(-1).view(np.uint8))
    return model
