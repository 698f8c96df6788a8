"""Model: an open file, and everything that can be had from it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyllm_engine.architectures import architecture_of
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.facts import Architecture
from tinyllm_engine.gguf import GGUFFile, open_gguf
from tinyllm_engine.gguf_header import shown, text_of
from tinyllm_engine.kinds import other_kind
from tinyllm_engine.lora import Adapter, low_rank, open_adapter
from tinyllm_engine.parts.base import Tensors
from tinyllm_engine.tensor import TensorView
from tinyllm_engine.weights import Weights, read_weights

if TYPE_CHECKING:
    from tinyllm_engine.chat_template import ChatTemplate, TemplateChoice
    from tinyllm_engine.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]  # stage in plain words, done, total


class Model:
    """A GGUF file opened for use. Everything but the container is read, checked and kept on first use.

    A part that the file cannot give raises UnsupportedModelError or ModelError from that part alone, so a
    vocabulary-only file has a tokenizer and a file with an unknown tokenizer has weights.

    adapters: what changes the products of its matrices; those added with `adapt` count in weights read afterwards

    >>> model = Model.open("model.gguf")
    >>> model.metadata["general.architecture"], model.config.embedding_length
    ('llama', 64)
    >>> view = model.tensors["token_embd.weight"]  # mapped, not copied
    >>> view.type.name, view.dims, view.dequantize().shape
    ('F32', (64, 258), (258, 64))
    >>> model.tokenizer.decode(model.tokenizer.encode("Grüße"))
    'Grüße'
    """

    def __init__(self, file: GGUFFile):
        self._file = file
        self.adapters: tuple[Adapter, ...] = ()
        self.path: str = str(file.path)
        self.metadata: dict[str, Any] = file.metadata
        self.tensors: dict[str, TensorView] = file.tensors

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        progress: Progress | None = None,
        adapters: Iterable[tuple[str | os.PathLike[str], float]] = (),
    ) -> Model:
        """Maps the file and validates its container; with `progress`, also reads a cold file ahead.

        adapters: LoRA adapters, file and scale of each, which are checked to go with the model

        Raises GGUFError for anything that is not a sound GGUF file; for an adapter also UnsupportedModelError and
        ModelError.
        """
        file = open_gguf(path)
        model = cls(file)
        for adapter, scale in adapters:
            model.adapt(open_adapter(adapter, scale))
        if progress is not None:
            file.read_ahead(lambda done, total: progress("reading weights", done, total))
        return model

    def adapt(self, adapter: Adapter) -> None:
        """Adds an adapter. UnsupportedModelError, ModelError if it does not go with the model."""
        if self.other_kind is None:
            adapter.check(text_of(self.metadata, "general.architecture"), self.tensors, self.path)
        self.adapters += (adapter,)

    def guard(self) -> None:
        """From now on a file that loses its end gives an error of `check`, where else it would end the process."""
        for file in self._files:
            file.guard()

    def check(self) -> None:
        """GGUFError if weights were read that are no longer in the file."""
        for file in self._files:
            file.check()

    def check_unchanged(self) -> None:
        """GGUFError if the model or an adapter is not the file any more that was opened."""
        for file in self._files:
            file.check_unchanged()

    @property
    def _files(self) -> list[GGUFFile]:
        return [self._file, *(adapter.file for adapter in self.adapters)]

    @property
    def name(self) -> str:
        """general.name, or the file's stem."""
        name = self.metadata.get("general.name")
        return name if isinstance(name, str) and name.strip() else Path(self.path).stem

    @property
    def other_kind(self) -> str | None:
        """What the file is instead of a language model, in words: an adapter, a model for embeddings, ..."""
        return other_kind(self.metadata, self.tensors)

    @cached_property
    def config(self) -> ModelConfig:
        """UnsupportedModelError for a file of another kind."""
        if self.other_kind is not None:
            raise UnsupportedModelError(f"{self.path}: this is {self.other_kind}")
        return ModelConfig.from_metadata(self.metadata, self.path)

    @cached_property
    def architecture(self) -> Architecture:
        """What is known of the file's family. UnsupportedModelError for one that is not."""
        return architecture_of(self.config)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """UnsupportedModelError for one that is not known, TokenizerError for a vocabulary that cannot be used."""
        from tinyllm_engine.tokenizer import Tokenizer

        return Tokenizer.from_metadata(self.metadata, self.path)

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The file's own, or that of the format it was made for; None where nothing says which."""
        return self.choose_template().template

    def choose_template(self, wanted: str = "") -> TemplateChoice:
        """A template by name or file, with what is to be said about it. TemplateError if there is no such one."""
        from tinyllm_engine.chat_template import choose_template

        return choose_template(self.metadata, self.tokenizer, self.path, wanted)

    @property
    def parameters(self) -> int:
        """Number of weights in all tensors."""
        return sum(math.prod(tensor.dims) for tensor in self.tensors.values())

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors."""
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
        if not self.tensors and "tokenizer.ggml.tokens" in self.metadata:
            raise UnsupportedModelError(f"{self.path}: this is a vocabulary without weights")
        facts = self.architecture  # an unknown one is refused before its tensors are missed
        tensors = Tensors(self.tensors, self.path, facts.unused, partial(low_rank, self.adapters))
        weights = read_weights(tensors, facts, self.config)
        for adapter in self.adapters:
            for name, pair in adapter.pairs.items():
                if name not in tensors.adapted:
                    raise UnsupportedModelError(
                        f"{adapter.path}: tensor {shown(pair.a.name)}: adapting it is not supported"
                    )
        return weights
