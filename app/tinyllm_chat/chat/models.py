"""Models by name: files, the models folder, the catalogue."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tinyllm_chat.chat.catalogue import CatalogueEntry, load_catalogue
from tinyllm_chat.chat.errors import ModelNotFoundError
from tinyllm_chat.chat.paths import Paths

LATER_PART = re.compile(r"-(?!00001-of-)\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model file in the models folder."""

    name: str  # the file's name without .gguf
    path: Path
    size: int  # bytes of this file; the first one of a split model


def find_models(paths: Paths) -> list[LocalModel]:
    """The models in the models folder by name; of a split model the first part. An unreadable folder has none."""
    models = []
    try:
        files = sorted(paths.models.rglob("*.gguf"))
    except OSError:
        return []
    for path in files:
        hidden = any(part.startswith(".") for part in path.relative_to(paths.models).parts)
        if hidden or LATER_PART.search(path.name):
            continue
        try:
            if path.is_file():
                models.append(LocalModel(path.name.removesuffix(".gguf"), path, path.stat().st_size))
        except OSError:
            continue
    return models


def resolve_model(name: str, paths: Paths) -> Path | CatalogueEntry:
    """What `name` means: an existing path, else a model in the models folder, else a catalogue entry.

    A catalogue entry that is in the models folder already comes back as its path; one that has to be fetched comes
    back as the entry. Raises ModelNotFoundError, CatalogueError.
    """
    path = Path(os.path.expanduser(name))  # Path's own raises for an unknown user
    if _exists(path) and not path.is_dir():
        return path
    models = find_models(paths)
    for model in models:
        if name in (model.name, model.path.name):
            return model.path
    catalogue = load_catalogue()
    if name in catalogue:
        fetched = paths.models / catalogue[name].file
        return fetched if fetched.is_file() else catalogue[name]
    if name and _exists(path):
        return path  # a folder: opening it says what is wrong
    raise ModelNotFoundError(_not_found(name, [model.name for model in models] + list(catalogue), paths))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, NUL inside, no permission to look
        return False


def _not_found(name: str, known: list[str], paths: Paths) -> str:
    shown = name if name and name.isprintable() else repr(name)
    looks_like_path = "/" in name or "\\" in name or name.endswith(".gguf")
    if looks_like_path:
        return f"{shown}: there is no such file"
    matches = difflib.get_close_matches(name, known, 1) or difflib.get_close_matches(name.lower(), known, 1)
    hint = f"did you mean {matches[0]}?" if matches else f"known are {', '.join(known)}"
    return f"{shown}: no such file, no model of that name in {paths.models} and none in the catalogue; {hint}"
