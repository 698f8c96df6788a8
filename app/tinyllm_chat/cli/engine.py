"""A model opened for a verb that measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinyllm_engine import Runner


@contextmanager
def opened(
    name: str,
    progress: Callable[[str, int, int], None],
    context_length: int,
    types: tuple[str, str],
    threads: int | None,
) -> Iterator[Runner]:
    """A runner of the model that `name` means; types: of cached keys and values. Raises ChatError, EngineError."""
    from tinyllm_engine import Model, Runner

    from tinyllm_chat.chat.paths import Paths
    from tinyllm_chat.cli.models import model_path

    model = Model.open(model_path(name, Paths.default()), progress)
    runner = Runner(model, context_length, threads=threads, progress=progress, k_type=types[0], v_type=types[1])
    try:
        yield runner
    finally:
        runner.close()
