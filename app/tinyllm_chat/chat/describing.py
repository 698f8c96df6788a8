"""What is in a model file, what it needs and whether it will run, without opening it for good.

Only the header is read: metadata and the table of tensors. The vocabulary is not built and nothing is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tinyllm_chat.chat.cache_types import cached_shapes, full_bytes, types_for
from tinyllm_chat.chat.errors import reason_of
from tinyllm_chat.chat.fingerprint import model_files
from tinyllm_chat.chat.memory import free_memory
from tinyllm_chat.chat.opening import ModelOptions, choose_context

if TYPE_CHECKING:
    from tinyllm_engine.model import Model

USUAL_LENGTH = 4096  # tokens of a chat; memory for more is taken when there are more


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the list of models says of a file."""

    architecture: str = ""
    file_type: str = ""  # the quantization that most bytes have
    parameters: int = 0
    context_length: int = 0  # tokens that a chat would have
    memory: int = 0  # bytes of weights and of the cache of a chat that is not long
    problem: str | None = None  # why it does not run, in one line
    tight: bool = False  # does it need more memory than is free?


class Describer:
    """Describes files; each state of a file is read once. `free`: bytes of memory that are free."""

    def __init__(self, options: ModelOptions, free: Callable[[], int | None] = free_memory) -> None:
        self._options = options
        self._free = free
        self._known: dict[tuple[str, int, int], ModelFacts] = {}

    def describe(self, path: Path) -> ModelFacts:
        """Raises nothing: what is wrong is the file's problem."""
        try:
            stat = os.stat(path)
        except (OSError, ValueError) as error:
            return ModelFacts(problem=f"{path.name}: {reason_of(error)}")
        key = (str(path), stat.st_size, stat.st_mtime_ns)
        if key not in self._known:
            self._known[key] = self._read(path)
        return self._known[key]

    def _read(self, path: Path) -> ModelFacts:
        from tinyllm_engine.errors import EngineError
        from tinyllm_engine.gguf import open_gguf
        from tinyllm_engine.model import Model

        try:
            with open_gguf(path) as file:
                model = Model(file)
                architecture = model.metadata.get("general.architecture")
                known = ModelFacts(
                    architecture if isinstance(architecture, str) else "",
                    model.file_type,
                    model.parameters,
                    problem=_problem(model),
                )
                if known.problem is not None:
                    return known
                return self._with_memory(known, model, sum(part.stat().st_size for part in model_files(path)))
        except (EngineError, OSError, ValueError) as error:
            return ModelFacts(problem=_short(reason_of(error), str(path)))

    def _with_memory(self, known: ModelFacts, model: Model, file_bytes: int) -> ModelFacts:
        free, options, shapes = self._free(), self._options, cached_shapes(model)
        k_type, v_type, _ = types_for(shapes, options.cache_type_k, options.cache_type_v)
        full = partial(full_bytes, shapes, k_type, v_type)
        length, _ = choose_context(model.config.context_length, options.context_length, full, free)
        memory = file_bytes + full(min(length, USUAL_LENGTH))
        return ModelFacts(
            known.architecture,
            known.file_type,
            known.parameters,
            length,
            memory,
            tight=free is not None and memory > free,
        )


def _problem(model: object) -> str | None:
    """Why the header alone says that no chat can be had."""
    from tinyllm_engine.errors import EngineError
    from tinyllm_engine.model import Model

    assert isinstance(model, Model)
    if model.other_kind is not None:
        return f"this is {model.other_kind}"
    try:
        _ = model.config, model.architecture, model.weights
    except EngineError as error:
        return _short(str(error), model.path)
    return None


def _short(text: str, path: str) -> str:
    """One line, without the path that stands beside it anyway."""
    return " ".join(text.removeprefix(f"{path}: ").split())
