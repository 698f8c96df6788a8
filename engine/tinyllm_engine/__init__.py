"""Inference engine for GGUF models in Python and Numba. Knows no chat and no screen.

    >>> from tinyllm_engine import Model, Runner, SamplingParams, Token, generate
    >>> model = Model.open("model.gguf")
    >>> runner = Runner(model)
    >>> prompt = model.tokenizer.encode("The capital of France is")
    >>> events = list(generate(runner.sequence(), prompt, SamplingParams(temperature=0), max_tokens=8))
    >>> answer = "".join(event.text for event in events if isinstance(event, Token))

The examples of this package are tests. Names are imported when they are first used: opening a file does not load the
compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyllm_engine.cancel import Cancel as Cancel
    from tinyllm_engine.errors import EngineError as EngineError
    from tinyllm_engine.generation import Finished as Finished
    from tinyllm_engine.generation import PrefillProgress as PrefillProgress
    from tinyllm_engine.generation import Token as Token
    from tinyllm_engine.generation import generate as generate
    from tinyllm_engine.grammar import Grammar as Grammar
    from tinyllm_engine.model import Model as Model
    from tinyllm_engine.runner import Runner as Runner
    from tinyllm_engine.runner import Sequence as Sequence
    from tinyllm_engine.sampling import SamplingParams as SamplingParams
    from tinyllm_engine.sampling import SharedSampling as SharedSampling

_HOMES = {
    "Cancel": "cancel",
    "EngineError": "errors",
    "Finished": "generation",
    "Grammar": "grammar",
    "Model": "model",
    "PrefillProgress": "generation",
    "Runner": "runner",
    "SamplingParams": "sampling",
    "Sequence": "runner",
    "SharedSampling": "sampling",
    "Token": "generation",
    "generate": "generation",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
