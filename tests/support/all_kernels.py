"""All kernels of the engine, compiled at once: in one process for each processor, as far as none are cached."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tinyllm_engine import kernels
from tinyllm_engine.jit import Compiled
from tinyllm_engine.preparation import compile_missing


def all_kernels() -> list[Compiled]:
    names = [f"{kernels.__name__}.{module.name}" for module in pkgutil.iter_modules(kernels.__path__)]
    names.append("tinyllm_engine.team")
    found = [vars(import_module(name)).values() for name in names]
    return [item for values in found for item in values if isinstance(item, Compiled)]


def compile_all_kernels() -> None:
    compile_missing(all_kernels())
