"""Opening a model for chat: what fits, what it is called, what the user must know about it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.adapters import adapter_files
from tinyllm_chat.chat.cache_types import (
    cached_shapes,
    described,
    full_bytes,
    lasting_bytes_per_token,
    types_for,
)
from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_chat.chat.errors import SettingsError
from tinyllm_chat.chat.events import ModelInfo
from tinyllm_chat.chat.fingerprint import fingerprint, model_files
from tinyllm_chat.chat.memory import free_memory
from tinyllm_chat.chat.settings import check

Report = Callable[[str, int, int], None]  # stage in plain words, done, total (0: unknown)
LAZY = sys.platform != "win32"  # memory is the system's until something is written to it
SMALLEST_CONTEXT = 512  # tokens that are offered however little memory there is
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_FILE_TYPE = re.compile(r"[-._](?:(?:UD-)?I?Q\d\w*|B?F16|F32|TQ\d_\d|MXFP4\w*)$", re.IGNORECASE)
_HASH = re.compile(r"sha256-[0-9a-f]{64}")  # as Ollama calls files
_NO_NAMES = ("", "model", "ggml-model", "gguf")
# Where a model file recommends sampling values, and what this program calls them.
_RECOMMENDED = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "repeat_last_n",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
    "sequence": "samplers",
}


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What the settings ask of every model that is opened."""

    context_length: int = 0  # 0: the model's own
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    threads: int = 0  # 0: the engine's choice
    chat_template: str = ""  # a name or a file; "": the model's own; "none": completion mode
    grammar: str = ""  # GBNF that every answer must obey; empty: none
    lora: tuple[str, ...] = ()  # adapters, as `adapter_files` reads them
    kept_cache_bytes: int = 0  # what the caches of chats may take on disk; 0: none is kept


@dataclass(frozen=True, slots=True)
class OpenModel:
    """An open model, ready to answer. `template` is None in completion mode."""

    model: Any
    runner: Any
    branches: Any  # the sequences of all chats
    template: Any
    info: ModelInfo
    grammar: Any = None  # the engine's; None: answers are free

    @property
    def sequence(self) -> Any:
        """The one in use."""
        return self.branches.current

    def close(self) -> None:
        self.runner.close()


def open_model(
    engine: EngineApi,
    path: Path,
    options: ModelOptions,
    report: Report,
    free: Callable[[], int | None] = free_memory,
) -> OpenModel:
    """Opens a model file with everything an answer needs. Raises EngineError, OSError."""
    report("opening", 0, 0)
    if path.is_dir():
        raise IsADirectoryError(21, "a folder, not a model file", str(path))
    adapters = adapter_files(options.lora)
    file_bytes = sum(part.stat().st_size for part in model_files(path))
    memory = free()
    notes = _size_notes(file_bytes, memory)
    # What does not fit into memory is not read ahead: its end would push out its beginning.
    model = engine.Model.open(str(path), progress=None if notes else report, adapters=adapters)
    shapes, own = cached_shapes(model), model.config.context_length
    k_type, v_type, type_notes = types_for(shapes, options.cache_type_k, options.cache_type_v)
    full = partial(full_bytes, shapes, k_type, v_type)
    context_length, context_notes = choose_context(own, options.context_length, full, memory)
    # Before the costly part: a model whose text cannot be made into tokens is of no use to a chat.
    tokenizer = model.tokenizer
    notes += [*type_notes, *context_notes, *getattr(tokenizer, "notes", ())]
    notes += [note for adapter in model.adapters for note in adapter.notes]
    grammar = engine.Grammar(options.grammar, tokenizer) if options.grammar else None
    choice = model.choose_template(os.path.expanduser(options.chat_template))
    template = choice.template
    notes += [f"{note} (--chat-template names another)" for note in choice.notes]
    sampling, sampling_notes = _recommended_sampling(model.metadata)
    runner = engine.Runner(
        model,
        context_length=context_length,
        k_type=k_type,
        v_type=v_type,
        threads=options.threads or None,
        progress=report,
    )
    runner.cache.free_memory = free
    try:
        _warm_up(engine, runner.sequence(), report)
        info = ModelInfo(
            name=display_name(path, model.name),
            path=str(path),
            file_type=model.file_type,
            architecture=model.config.architecture,
            fingerprint=fingerprint(path, adapters),
            parameters=model.parameters,
            file_bytes=file_bytes,
            context_length=runner.context_length,
            model_context_length=model.config.context_length,
            cache_bytes_per_token=runner.kv_bytes_per_token,
            lasting_bytes_per_token=lasting_bytes_per_token(shapes, k_type, v_type, context_length),
            full_cache_bytes=full(context_length) + runner.state_bytes,
            cache_type=described(k_type, v_type),
            threads=runner.threads,
            reasons=template is not None and template.marks is not None,
            notes=tuple(notes + sampling_notes),
            sampling=sampling,
            adapters=tuple(_adapter_line(file, scale) for file, scale in adapters),
        )
        return OpenModel(model, runner, engine.Branches(runner), template, info, grammar)
    except BaseException:
        runner.close()
        raise


def choose_context(
    own: int, asked: int, full: Callable[[int], int], memory: int | None, lazy: bool = LAZY
) -> tuple[int, list[str]]:
    """The context length in tokens, and what the user must know about it.

    own: the model's; asked: by the settings, 0 for the model's own; full: bytes of a full cache of so many tokens;
    lazy: they are taken only when they are used. Where they are not, the model's own length is cut to what half the
    free memory holds.
    """
    length, notes = asked or own, []
    if length > own:
        notes.append(f"a context of {length} tokens is longer than the {own} that the model was made for")
    if memory is None:
        return length, notes

    def fitting(limit: int, step: int) -> int:
        """The largest multiple of `step` whose cache takes no more."""
        lengths = range(step, max(own, length) + step, step)
        return step * bisect_right(lengths, limit, key=full)

    if not asked and not lazy and full(length) > memory // 2:
        length = min(own, max(SMALLEST_CONTEXT, fitting(memory // 2, 128)))
        half = f"a full cache takes about half of the {_size(memory)} that are free"
        notes.append(f"context {length} of {own} tokens: {half}")
    elif full(length) > memory:
        fits = fitting(memory, 256)
        advice = f": -c {fits} fits" if fits else ""
        takes = f"a full cache of {length} tokens takes {_size(full(length))}"
        notes.append(f"{takes}, {_size(memory)} of memory are free{advice}")
    return length, notes


def _size_notes(file_bytes: int, memory: int | None) -> list[str]:
    if memory is None or file_bytes <= memory:
        return []
    return [f"the model has {_size(file_bytes)}, {_size(memory)} of memory are free: answers will be slow"]


def _recommended_sampling(metadata: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    values, notes = {}, []
    for key, name in _RECOMMENDED.items():
        value = metadata.get(f"general.sampling.{key}")
        if value is None:
            continue
        if isinstance(value, float):
            value = round(value, 6)  # a float32 in the file: 0.7 reads 0.699999988079071
        try:
            values[name] = check(name, [value] if name == "samplers" and isinstance(value, str) else value)
        except SettingsError as error:
            notes.append(f"general.sampling.{key} of the file is not used: {error}")
    return values, notes


def _warm_up(engine: EngineApi, sequence: Any, report: Report) -> None:
    """Draws one token for nothing: what is compiled or read at first use must not make the first answer wait."""
    report("warming up", 0, 0)
    # Whatever is wrong with the model shows in its first answer, where it can be said.
    with contextlib.suppress(engine.EngineError):
        for _ in engine.generate(sequence, [0], engine.SamplingParams(), stop=[], cancel=engine.Cancel(), max_tokens=1):
            pass
    sequence.truncate(0)


def display_name(path: Path, general_name: str) -> str:
    """One printable line: the file's name without type and ending, or, where that says nothing, general.name."""
    stem = _PART.sub("", path.stem)
    stem = _FILE_TYPE.sub("", stem)
    nameless = stem.lower() in _NO_NAMES or _HASH.fullmatch(stem)
    for name in (general_name if nameless else stem, path.name):
        words = "".join(character if character.isprintable() else " " for character in name[:400]).split()
        if words:
            return " ".join(words)[:80]
    return "model"


def _adapter_line(path: Path, scale: float) -> str:
    return f"{display_name(path, '')} × {scale:g}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.0f} MB"
