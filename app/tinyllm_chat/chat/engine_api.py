"""The parts of the engine that the chat uses, imported when the first model is opened: it takes a third of a second."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.files import make_private_folder
from tinyllm_chat.chat.paths import CACHE_DIR, NO_HOME, Paths


@dataclass(frozen=True, slots=True)
class EngineApi:
    """Classes and functions under the engine's own names."""

    Model: Any
    Runner: Any
    Branches: Any
    save_sequence: Callable[..., None]
    saved_bytes: Callable[[Any], int]
    is_saved: Callable[[Path], bool]
    SamplingParams: Any
    SharedSampling: Any
    Cancel: Any
    Grammar: Any
    generate: Callable[..., Any]
    look_back: Callable[..., Any]
    PrefillProgress: type[Any]
    Token: type[Any]
    Finished: type[Any]
    EngineError: type[Exception]
    OtherStateError: type[Exception]


def load_engine() -> EngineApi:
    cache = Paths.default().cache
    with contextlib.suppress(OSError):
        make_private_folder(cache)  # what is in it will be run
    if cache.is_relative_to(NO_HOME):
        os.environ[CACHE_DIR] = str(cache)  # else the engine looks for a home by itself
    import tinyllm_engine as engine
    from tinyllm_engine import branches, errors, generation, hindsight, saved_state

    # What was imported stays, compiler and all: a garbage collection that went through it would stop screen and answer
    # for a third of a second.
    gc.freeze()
    return EngineApi(
        Model=engine.Model,
        Runner=engine.Runner,
        Branches=branches.Branches,
        save_sequence=saved_state.save,
        saved_bytes=saved_state.saved_bytes,
        is_saved=saved_state.is_saved,
        SamplingParams=engine.SamplingParams,
        SharedSampling=engine.SharedSampling,
        Cancel=engine.Cancel,
        Grammar=engine.Grammar,
        generate=engine.generate,
        look_back=hindsight.look_back,
        PrefillProgress=generation.PrefillProgress,
        Token=generation.Token,
        Finished=generation.Finished,
        EngineError=errors.EngineError,
        OtherStateError=errors.OtherStateError,
    )
