"""LoRA adapters: files of small matrices that change what a model's matrices make of their inputs (arXiv:2106.09685).

A matrix W with an adapter computes W x + scale * B (A x), where A has few rows and B as many columns: the rank. The
file names them after the tensor they go with, NAME.lora_a and NAME.lora_b; scale is alpha / rank times what the user
says.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyllm_engine.errors import ModelError, UnsupportedModelError
from tinyllm_engine.gguf import GGUFFile, open_gguf
from tinyllm_engine.gguf_header import shown, text_of
from tinyllm_engine.kinds import other_kind
from tinyllm_engine.parts.base import LowRank
from tinyllm_engine.tensor import TensorView

EMBEDDING = "token_embd.weight"
MOST_RANK, MOST_FACTOR = 1 << 16, 3.4e38
_STEP = 1 << 20  # elements looked at in one go


@dataclass(frozen=True, eq=False)
class Pair:
    """The two matrices that go with one tensor of the model.

    a: dims [inputs, rank]; b: dims [rank, outputs]. Of the embedding, whose tokens choose rows of a: [rank, vocabulary]
        and [rank, embedding_length]
    """

    a: TensorView
    b: TensorView

    @property
    def rank(self) -> int:
        return self.b.dims[0]


@dataclass(frozen=True, eq=False)
class Adapter:
    """An open adapter.

    file: where its matrices lie
    scale: what the user says; alpha: what the file says, 0: nothing, and the rank does not count then
    pairs: by the name of the model's tensor; notes: what is to be known of it
    """

    path: str
    file: GGUFFile
    metadata: Mapping[str, Any]
    scale: float
    alpha: float
    pairs: Mapping[str, Pair]
    notes: tuple[str, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """All that there are, increasing."""
        return tuple(sorted({pair.rank for pair in self.pairs.values()}))

    def factor(self, pair: Pair) -> float:
        """What B (A x) is multiplied with."""
        return self.scale * self.alpha / pair.rank if self.alpha else self.scale

    def check(self, architecture: Any, tensors: Mapping[str, TensorView], model_path: str) -> None:
        """Whether it goes with a model. UnsupportedModelError, ModelError: names file, tensor, expected and found."""
        own = text_of(self.metadata, "general.architecture")
        if own != architecture:
            raise ModelError(
                f"{self.path}: expected an adapter for {_shown(architecture)} models such as {model_path}, "
                f"found one for {_shown(own)}"
            )
        for name, pair in self.pairs.items():
            if name not in tensors:
                raise ModelError(f"{self.path}: tensor {shown(pair.a.name)}: {model_path} has no tensor {shown(name)}")
            self._check_pair(name, pair, tensors[name].dims)
        if EMBEDDING in self.pairs and "output.weight" not in tensors:
            raise UnsupportedModelError(
                f"{self.path}: tensor {EMBEDDING}.lora_a: adapting an embedding that is the output as well "
                "is not supported"
            )
        for pair in self.pairs.values():
            _check_finite(self.path, pair.a)
            _check_finite(self.path, pair.b)

    def _check_pair(self, name: str, pair: Pair, dims: tuple[int, ...]) -> None:
        if len(dims) != 2 or len(pair.a.dims) > 2 or len(pair.b.dims) > 2:
            kind = "stacks of matrices" if len(dims) > 2 else "what is no matrix"
            raise UnsupportedModelError(f"{self.path}: tensor {shown(pair.a.name)}: adapting {kind} is not supported")
        inputs, outputs = dims
        rank = pair.rank
        if not 1 <= rank <= MOST_RANK:
            raise ModelError(
                f"{self.path}: tensor {shown(pair.b.name)}: expected a rank of 1 to {MOST_RANK}, found {rank}"
            )
        a, b = ((rank, outputs), (rank, inputs)) if name == EMBEDDING else ((inputs, rank), (rank, outputs))
        for tensor, expected in ((pair.b, b), (pair.a, a)):
            if _two(tensor.dims) != expected:
                wanted, found = (" x ".join(map(str, each)) for each in (expected, _two(tensor.dims)))
                raise ModelError(f"{self.path}: tensor {shown(tensor.name)}: expected {wanted}, found {found}")
        if not abs(self.factor(pair)) <= MOST_FACTOR:
            raise ModelError(f"{self.path}: a scale of {self.scale:g} and an alpha of {self.alpha:g} are too large")


def open_adapter(path: str | os.PathLike[str], scale: float = 1.0) -> Adapter:
    """Opens an adapter and checks what can be known without its model.

    Raises GGUFError for what is no sound GGUF file, UnsupportedModelError for what is no LoRA adapter, ModelError for
    contents that contradict each other.
    """
    file = open_gguf(path)
    name, metadata = str(file.path), file.metadata
    kind, method = text_of(metadata, "general.type"), text_of(metadata, "adapter.type")
    if kind != "adapter":
        if any(tensor.endswith((".lora_a", ".lora_b")) for tensor in file.tensors):
            raise ModelError(f"{name}: 'general.type': expected adapter, found {_shown(kind)}")
        found = other_kind(metadata, file.tensors) or f"a model ({_shown(metadata.get('general.architecture'))})"
        raise UnsupportedModelError(f"{name}: expected a LoRA adapter, found {found}")
    if method != "lora":
        raise UnsupportedModelError(f"{name}: 'adapter.type': expected lora, found {_shown(method)}")
    if "adapter.alora.invocation_tokens" in metadata:
        raise UnsupportedModelError(
            f"{name}: 'adapter.alora.invocation_tokens': an adapter that acts from certain tokens on is not supported"
        )
    alpha = metadata.get("adapter.lora.alpha", 0.0)
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise ModelError(f"{name}: 'adapter.lora.alpha': expected a number, found {_shown(alpha)}")
    if not math.isfinite(scale):
        raise ModelError(f"{name}: scale: expected a number, found {scale}")
    pairs, norms = _pairs(name, file.tensors)
    notes = (f"{name}: {norms} norms of the adapter are not used",) if norms else ()
    return Adapter(name, file, metadata, float(scale), float(alpha), pairs, notes)


def _pairs(path: str, tensors: Mapping[str, TensorView]) -> tuple[dict[str, Pair], int]:
    """The matrices by the tensor they go with; and how many norms there are, which some tools put beside them."""
    halves: dict[str, dict[str, TensorView]] = {}
    norms = 0
    for name, tensor in tensors.items():
        stem, _, half = name.rpartition(".lora_")
        if stem and half in ("a", "b"):
            halves.setdefault(stem, {})[half] = tensor
        elif name.endswith("_norm.weight"):
            norms += 1
        else:
            raise ModelError(f"{path}: tensor {shown(name)}: expected a name that ends in .lora_a or .lora_b")
    for stem, found in halves.items():
        for half in "ab":
            if half not in found:
                raise ModelError(f"{path}: tensor {shown(f'{stem}.lora_{half}')} is missing")
    if not halves:
        raise ModelError(f"{path}: expected tensors .lora_a and .lora_b, found none")
    return {stem: Pair(found["a"], found["b"]) for stem, found in halves.items()}, norms


def low_rank(adapters: tuple[Adapter, ...], name: str) -> tuple[LowRank, ...]:
    """What the adapters add to the products of one tensor of the model, in their order."""
    return tuple(
        LowRank(_floats(pair.a), _floats(pair.b), adapter.factor(pair))
        for adapter in adapters
        if (pair := adapter.pairs.get(name)) is not None
    )


def _floats(tensor: TensorView) -> np.ndarray:
    """float32 [rows, dims[0]], in place where it is stored so."""
    if tensor.type.name == "F32":
        return tensor.data.view(np.float32).reshape(tensor.rows, tensor.dims[0])
    return tensor.dequantize()


def _check_finite(path: str, tensor: TensorView) -> None:
    step = max(1, _STEP // tensor.dims[0])
    for start in range(0, tensor.rows, step):
        if not np.isfinite(tensor.dequantize(start, min(start + step, tensor.rows))).all():
            raise ModelError(f"{path}: tensor {shown(tensor.name)}: expected finite numbers, found others")


def _two(dims: tuple[int, ...]) -> tuple[int, ...]:
    """A file may leave a second dimension of 1 out."""
    return dims if len(dims) > 1 else (*dims, 1)


def _shown(value: Any) -> str:
    return "nothing" if value is None else shown(str(value), 40)
