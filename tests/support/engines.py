"""The two engines that the golden tests run: the reference in NumPy and the native one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tinyllm_engine.model import Model
from tinyllm_engine.reference import ReferenceRunner

ENGINES = ("reference", "native")


@contextmanager
def running(engine: str, path: Path, kv_type: str = "f32", context_length: int | None = None) -> Iterator[Any]:
    """A runner of the model at path. The reference has a cache in float32 only."""
    model = Model.open(path)
    if engine == "reference":
        yield ReferenceRunner(model, context_length)
        return
    from tinyllm_engine.runner import Runner

    runner = Runner(model, context_length=context_length, kv_type=kv_type)
    try:
        yield runner
    finally:
        runner.close()
