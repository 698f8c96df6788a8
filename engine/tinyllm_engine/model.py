"""Model: an open file with its weights by role, under the names the file gives them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyllm_engine.architectures import Architecture, architecture_of
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import ModelError
from tinyllm_engine.gguf import open_gguf
from tinyllm_engine.tensor import TensorView

if TYPE_CHECKING:
    from tinyllm_engine.chat_template import ChatTemplate
    from tinyllm_engine.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]  # stage in plain words, done, total


@dataclass(frozen=True, eq=False)
class Linear:
    """A matrix and what is added to its product: x -> scale * (W x) + bias.

    weight: dims [inputs, outputs], read in place
    bias: float32 [outputs] or None
    """

    weight: TensorView
    bias: np.ndarray | None = None
    scale: float = 1.0

    @property
    def inputs(self) -> int:
        return self.weight.dims[0]

    @property
    def outputs(self) -> int:
        return self.weight.rows


@dataclass(frozen=True, eq=False)
class Layer:
    """One transformer block (`blk.N`). Norm weights are float32 [embedding_length]."""

    attn_norm: np.ndarray
    attn_q: Linear
    attn_k: Linear
    attn_v: Linear
    attn_output: Linear
    ffn_norm: np.ndarray
    ffn_gate: Linear
    ffn_up: Linear
    ffn_down: Linear
    heads: int
    kv_heads: int


@dataclass(frozen=True, eq=False)
class Weights:
    """Everything the forward pass multiplies with."""

    token_embd: TensorView
    layers: list[Layer]
    output_norm: np.ndarray
    output: Linear
    rope_freqs: np.ndarray | None  # float32 [n_rot / 2]: divisors of the rotation frequencies


class Model:
    """A GGUF file opened for use. Everything but the container is read, checked and kept on first use.

    A part that the file cannot give raises UnsupportedModelError or ModelError from that part alone, so a
    vocabulary-only file has a tokenizer and a file with an unknown tokenizer has weights.
    """

    def __init__(self, file: Any):
        self._file = file
        self.path: str = str(file.path)
        self.metadata: dict[str, Any] = file.metadata
        self.tensors: dict[str, TensorView] = file.tensors

    @classmethod
    def open(cls, path: str | os.PathLike[str], progress: Progress | None = None) -> Model:
        """Maps the file and validates its container; with `progress`, also reads a cold file ahead.

        Raises GGUFError for anything that is not a sound GGUF file.
        """
        file = open_gguf(path)
        if progress is not None:
            file.read_ahead(lambda done, total: progress("reading weights", done, total))
        return cls(file)

    @property
    def name(self) -> str:
        """general.name, or the file's stem."""
        name = self.metadata.get("general.name")
        return name if isinstance(name, str) and name.strip() else Path(self.path).stem

    @cached_property
    def config(self) -> ModelConfig:
        return ModelConfig.from_metadata(self.metadata, self.path)

    @cached_property
    def architecture(self) -> Architecture:
        return architecture_of(self.config, self.path)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        from tinyllm_engine.tokenizer import Tokenizer

        return Tokenizer.from_metadata(self.metadata, self.path)

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        from tinyllm_engine.chat_template import ChatTemplate

        return ChatTemplate.from_metadata(self.metadata, self.tokenizer, self.path)

    @property
    def parameters(self) -> int:
        """Number of weights in all tensors."""
        return sum(math.prod(tensor.dims) for tensor in self.tensors.values())

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def file_type(self) -> str:
        """The quantization type that most bytes have."""
        sizes: dict[str, int] = {}
        for tensor in self.tensors.values():
            sizes[tensor.type.name] = sizes.get(tensor.type.name, 0) + tensor.nbytes
        return max(sizes, key=lambda name: sizes[name]) if sizes else "no weights"

    @cached_property
    def weights(self) -> Weights:
        """The weights by role, every shape checked. ModelError names tensor, expected and found shape."""
        config = self.config
        _ = self.architecture  # an unknown one is refused before its tensors are missed
        embedding = config.embedding_length
        token_embd = self._tensor("token_embd.weight")
        if len(token_embd.dims) != 2 or token_embd.dims[0] != embedding:
            raise self._wrong_shape(token_embd, [embedding, "vocabulary"])
        vocabulary = token_embd.rows
        layers = [self._layer(index) for index in range(config.block_count)]
        if "output.weight" in self.tensors:
            output = self._linear("output", embedding, vocabulary)
        else:
            output = Linear(token_embd)  # tied
        freqs = self.tensors.get("rope_freqs.weight")
        return Weights(
            token_embd=token_embd,
            layers=layers,
            output_norm=self._vector("output_norm.weight", embedding),
            output=output,
            rope_freqs=None if freqs is None else freqs.dequantize().reshape(-1),
        )

    def _layer(self, index: int) -> Layer:
        config, blk = self.config, f"blk.{index}"
        embedding, feed_forward = config.embedding_length, config.feed_forward_length[index]
        heads, kv_heads = config.head_count[index], config.head_count_kv[index]
        if not kv_heads or not heads or heads % kv_heads:
            raise ModelError(
                f"{self.path}: attention.head_count_kv: expected a divisor of {heads} heads, found {kv_heads}"
            )
        q_size, k_size, v_size = heads * config.key_length, kv_heads * config.key_length, kv_heads * config.value_length
        return Layer(
            attn_norm=self._vector(f"{blk}.attn_norm.weight", embedding),
            attn_q=self._linear(f"{blk}.attn_q", embedding, q_size),
            attn_k=self._linear(f"{blk}.attn_k", embedding, k_size),
            attn_v=self._linear(f"{blk}.attn_v", embedding, v_size),
            attn_output=self._linear(f"{blk}.attn_output", heads * config.value_length, embedding),
            ffn_norm=self._vector(f"{blk}.ffn_norm.weight", embedding),
            ffn_gate=self._linear(f"{blk}.ffn_gate", embedding, feed_forward, scale_bias=True),
            ffn_up=self._linear(f"{blk}.ffn_up", embedding, feed_forward, scale_bias=True),
            ffn_down=self._linear(f"{blk}.ffn_down", feed_forward, embedding, scale_bias=True),
            heads=heads,
            kv_heads=kv_heads,
        )

    def _tensor(self, name: str) -> TensorView:
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelError(f"{self.path}: tensor {name!r} is missing") from None

    def _wrong_shape(self, tensor: TensorView, expected: list[Any]) -> ModelError:
        wanted = " x ".join(str(dim) for dim in expected)
        found = " x ".join(str(dim) for dim in tensor.dims)
        return ModelError(f"{self.path}: tensor {tensor.name!r}: expected {wanted}, found {found}")

    def _vector(self, name: str, length: int) -> np.ndarray:
        tensor = self._tensor(name)
        if math.prod(tensor.dims) != length or tensor.dims[0] != length:
            raise self._wrong_shape(tensor, [length])
        return np.ascontiguousarray(tensor.dequantize().reshape(-1))

    def _linear(self, name: str, inputs: int, outputs: int, scale_bias: bool = False) -> Linear:
        """`name`.weight with its optional .bias and .scale.

        A scale multiplies the product; with `scale_bias` it multiplies the bias too (as in feed-forward blocks).
        """
        weight = self._tensor(f"{name}.weight")
        if weight.dims != (inputs, outputs):
            raise self._wrong_shape(weight, [inputs, outputs])
        bias = self._vector(f"{name}.bias", outputs) if f"{name}.bias" in self.tensors else None
        scale = float(self._vector(f"{name}.scale", 1)[0]) if f"{name}.scale" in self.tensors else 1.0
        if bias is not None and scale_bias:
            bias = bias * np.float32(scale)
        return Linear(weight, bias, scale)
