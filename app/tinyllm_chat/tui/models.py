"""What the start screen can offer: models that are here, and models that can be fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tinyllm_chat.chat.describing import ModelFacts

HUB_PREFIX = "hf:"  # of a name that is an address at the Hugging Face Hub


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """`path` None: known by name only, and downloaded when it is chosen."""

    name: str
    detail: str  # size, origin: whatever helps to choose
    path: str | None = None
    place: str = ""  # where it was found, in words


class ModelSource(Protocol):
    """Where models come from."""

    def choices(self) -> Sequence[ModelChoice]:
        """Models found here first, then the rest of the catalogue. Called on a worker thread. Raises ChatError."""

    def describe(self, path: str) -> ModelFacts:
        """What is in a file. Called on a worker thread. Raises nothing."""

    def find(self, name: str, progress: Callable[[str, int, int], None]) -> str:
        """The file of a name or a path; a model of the catalogue, or an `hf:` one, is downloaded where it is not here.

        Called on a worker thread. `progress(stage, done, total)`, total 0 where it is not known. Raises ChatError.
        """

    def opened(self, path: str) -> None:
        """A model was opened: it is offered first from now on. Called on a worker thread. Raises OSError."""
