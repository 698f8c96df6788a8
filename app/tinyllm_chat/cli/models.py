"""Models for the command line and the start screen: found by name, downloaded where they are not here yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tinyllm_chat.chat.catalogue import CatalogueEntry, load_catalogue
from tinyllm_chat.chat.download import pull
from tinyllm_chat.chat.models import find_models, resolve_model
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.cli.progress import ProgressBar
from tinyllm_chat.cli.text import size
from tinyllm_chat.tui.models import ModelChoice


def model_path(name: str, paths: Paths) -> Path:
    """The file that `name` means; a catalogue model is downloaded first, with a bar. Raises ChatError."""
    found = resolve_model(name, paths)
    return found if isinstance(found, Path) else fetch(found, paths)


def fetch(entry: CatalogueEntry, paths: Paths) -> Path:
    """Downloads a catalogue model with a bar on standard error and returns its path. Raises DownloadError."""

    def show(stage: str, done: int, total: int) -> None:
        progress.update(f"{entry.name}: {stage}", done, total)

    with ProgressBar(in_bytes=True) as progress:
        return pull(entry, paths.models, show)


class Models:
    """What the start screen offers: the models folder, then the rest of the catalogue."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def choices(self) -> Sequence[ModelChoice]:
        here = find_models(self._paths)
        files = {model.path.name for model in here}
        return [
            *(ModelChoice(model.name, size(model.size), str(model.path)) for model in here),
            *(
                ModelChoice(entry.name, f"{entry.title}, {size(entry.size)} to download, {entry.license}")
                for entry in load_catalogue().values()
                if entry.file not in files
            ),
        ]

    def fetch(self, name: str, progress: Callable[[str, int, int], None]) -> str:
        return str(pull(load_catalogue()[name], self._paths.models, progress))
