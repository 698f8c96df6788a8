"""Models for the command line and the start screen: found by name, downloaded where they are not here yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tinyllm_chat.chat.catalogue import CatalogueEntry, load_catalogue
from tinyllm_chat.chat.describing import Describer, ModelFacts
from tinyllm_chat.chat.download import pull
from tinyllm_chat.chat.errors import ModelNotFoundError
from tinyllm_chat.chat.hub import parse_hub_name, pull_from_hub
from tinyllm_chat.chat.models import resolve_model
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.places import RecentModels, find_everywhere
from tinyllm_chat.cli.progress import ProgressBar
from tinyllm_chat.tui.models import ModelChoice
from tinyllm_chat.tui.text import size

Progress = Callable[[str, int, int], None]  # stage, done, total: of bytes


def model_path(name: str, paths: Paths) -> Path:
    """The file that `name` means; what is not here yet is downloaded first, with a bar. Raises ChatError."""
    label = name.rpartition("/")[2]
    with ProgressBar(in_bytes=True) as bar:
        return find(name, paths, lambda stage, done, total: bar.update(f"{label}: {stage}", done, total))


def openable(name: str, paths: Paths) -> Path:
    """The same, for a chat that has a model already: refuses files that no chat can be had with. Raises ChatError."""
    path = model_path(name, paths)
    if (problem := Describer(ModelOptions()).describe(path).problem) is not None:
        raise ModelNotFoundError(f"{path}: {problem}")
    return path


def fetch(entry: CatalogueEntry, paths: Paths) -> Path:
    """Downloads a catalogue model with a bar on standard error and returns its path. Raises DownloadError."""
    with ProgressBar(in_bytes=True) as bar:
        return pull(entry, paths.models, lambda stage, done, total: bar.update(f"{entry.name}: {stage}", done, total))


def find(name: str, paths: Paths, progress: Progress) -> Path:
    """The file that `name` means; a model of the catalogue or an `hf:` one is downloaded where it is not here yet.

    A name that nothing else has is looked for where other programs keep models. Raises ChatError.
    """
    if (wanted := parse_hub_name(name)) is not None:
        return pull_from_hub(wanted, paths.models, progress)
    try:
        found = resolve_model(name, paths)
    except ModelNotFoundError:
        elsewhere = next((model.path for model in find_everywhere(paths) if model.name == name), None)
        if elsewhere is None:
            raise
        return elsewhere
    return found if isinstance(found, Path) else pull(found, paths.models, progress)


class Models:
    """What the start screen offers: what is on this machine, then the rest of the catalogue."""

    def __init__(self, paths: Paths, options: ModelOptions) -> None:
        """`options`: what a chat will be opened with, which decides about the memory that it needs."""
        self._paths = paths
        self._describer = Describer(options)

    def choices(self) -> Sequence[ModelChoice]:
        here = list(find_everywhere(self._paths))
        files = {model.path.name for model in here}
        return [
            *(ModelChoice(model.name, size(model.size), str(model.path), model.place) for model in here),
            *(
                ModelChoice(entry.name, f"{entry.title}, {size(entry.size)} to download, {entry.license}")
                for entry in load_catalogue().values()
                if entry.file not in files
            ),
        ]

    def describe(self, path: str) -> ModelFacts:
        return self._describer.describe(Path(path))

    def find(self, name: str, progress: Progress) -> str:
        return str(find(name, self._paths, progress))

    def opened(self, path: str) -> None:
        RecentModels(self._paths).add(Path(path))
