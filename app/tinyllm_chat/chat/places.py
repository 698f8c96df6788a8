"""Model files that are on this machine: opened lately, in the models folder, and where other programs keep them.

Nothing is read but folders and Ollama's manifests; what is in a model file is `describing`'s to say. Folders are
bounded in depth and in entries: a link that leads round in circles, or a home folder full of files, costs no time.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.files import keep_aside, read_file, write_atomically
from tinyllm_chat.chat.fingerprint import model_files
from tinyllm_chat.chat.models import LATER_PART, find_models
from tinyllm_chat.chat.paths import Paths

RECENT, MODELS_FOLDER = "opened lately", "in the models folder"
MOST_ENTRIES = 20_000  # of folders, in one place
DEPTH = 6
MOST_RECENT = 12
SMALL_FILE = 1 << 20  # bytes; a manifest or a list that is larger is none
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MODEL_LAYER = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model file by the name that it has there."""

    name: str
    path: Path
    size: int  # bytes of all its parts
    place: str  # whose it is, in words


def find_everywhere(
    paths: Paths, env: Mapping[str, str] = os.environ, home: Path | None = None
) -> Iterator[FoundModel]:
    """All model files, each once, those opened lately first."""
    kept: dict[str, FoundModel] = {}
    for found in _everywhere(paths, env, home or Path(os.path.expanduser("~"))):
        kept.setdefault(os.path.realpath(found.path), found)
    for recent in _placed(((path.stem, path) for path in RecentModels(paths).paths()), RECENT):
        known = kept.pop(os.path.realpath(recent.path), recent)  # its name there may say more than the file's
        yield replace(known, place=RECENT)
    yield from kept.values()


def _everywhere(paths: Paths, env: Mapping[str, str], home: Path) -> Iterator[FoundModel]:
    yield from _placed(((model.name, model.path) for model in find_models(paths)), MODELS_FOLDER)
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    places: tuple[tuple[str, Iterable[Path], Callable[[Path], Iterator[tuple[str, Path]]]], ...] = (
        ("in the Hugging Face cache", _hugging_face_folders(env, cache), _hugging_face),
        ("of LM Studio", _lm_studio_folders(home), _plain),
        ("of Ollama", _ollama_folders(env, home), _ollama),
        ("of llama.cpp", _llama_cpp_folders(env, home, cache), _plain),
    )
    for place, folders, look in places:
        for folder in dict.fromkeys(folders):
            yield from _placed(look(folder), place)


def _placed(models: Iterable[tuple[str, Path]], place: str) -> Iterator[FoundModel]:
    for name, path in models:
        try:
            if path.is_file():
                yield FoundModel(name, path, sum(part.stat().st_size for part in model_files(path)), place)
        except (OSError, ValueError):
            continue


# Where other programs keep models


def _hugging_face_folders(env: Mapping[str, str], cache: Path) -> Iterator[Path]:
    if folder := env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE"):
        yield Path(os.path.expanduser(folder))
    elif folder := env.get("HF_HOME"):
        yield Path(os.path.expanduser(folder)) / "hub"
    else:
        yield cache / "huggingface" / "hub"


def _hugging_face(folder: Path) -> Iterator[tuple[str, Path]]:
    """models--OWNER--NAME/snapshots/REVISION/FILE, a link to what is kept under its hash."""
    for repository in _folders(folder):
        if repository.name.startswith("models--"):
            for snapshot in _folders(repository / "snapshots"):
                yield from _plain(snapshot)


def _lm_studio_folders(home: Path) -> Iterator[Path]:
    pointer = _small_text(home / ".lmstudio-home-pointer")
    if pointer and pointer.strip():
        yield Path(pointer.strip()) / "models"
    yield home / ".lmstudio" / "models"
    yield home / ".cache" / "lm-studio" / "models"


def _llama_cpp_folders(env: Mapping[str, str], home: Path, cache: Path) -> Iterator[Path]:
    if folder := env.get("LLAMA_CACHE"):
        yield Path(folder)
    elif sys.platform == "darwin":
        yield home / "Library" / "Caches" / "llama.cpp"
    elif sys.platform == "win32":
        yield Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local") / "llama.cpp"
    else:
        yield cache / "llama.cpp"


def _ollama_folders(env: Mapping[str, str], home: Path) -> Iterator[Path]:
    if folder := env.get("OLLAMA_MODELS"):
        yield Path(folder)
    yield home / ".ollama" / "models"
    if sys.platform == "linux":
        yield Path("/usr/share/ollama/.ollama/models")  # where its service runs


def _ollama(folder: Path) -> Iterator[tuple[str, Path]]:
    """manifests/HOST/OWNER/MODEL/TAG says which of blobs/sha256-HASH is the model."""
    for manifests in _folders(folder):
        if not manifests.name.startswith("manifest"):
            continue
        for path in _files(manifests):
            digest = _model_digest(_small_json(path))
            if digest is not None:
                *owner, model, tag = path.relative_to(manifests).parts[1:]
                owner = [part for part in owner if part != "library"]
                yield "/".join([*owner, f"{model}:{tag}"]), folder / "blobs" / f"sha256-{digest}"


def _model_digest(manifest: Any) -> str | None:
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == _MODEL_LAYER:
            match = _DIGEST.fullmatch(str(layer.get("digest")))
            return match[1] if match is not None else None
    return None


def _plain(folder: Path) -> Iterator[tuple[str, Path]]:
    """Files that are called so; of a split model the first part, and no projectors for images."""
    for path in _files(folder):
        name = path.name
        if name.lower().endswith(".gguf") and not LATER_PART.search(name) and not name.startswith("mmproj"):
            yield name[: -len(".gguf")], path


# Bounded looking


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder, by name; links to folders are not followed."""
    left = MOST_ENTRIES
    waiting = [(folder, 0)]
    while waiting:
        current, depth = waiting.pop()
        entries = _entries(current, left)
        left -= len(entries)
        below = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not _is_folder(entry, links=False):
                yield Path(entry.path)
            elif depth < DEPTH:
                below.append((Path(entry.path), depth + 1))
        waiting += reversed(below)


def _folders(folder: Path) -> Iterator[Path]:
    return (Path(entry.path) for entry in _entries(folder, MOST_ENTRIES) if _is_folder(entry, links=True))


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) >= most:
                    break
                found.append(entry)
    except (OSError, ValueError):
        pass
    return sorted(found, key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str], *, links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=links)
    except OSError:
        return False


def _small_text(path: Path) -> str | None:
    try:
        return read_file(path, SMALL_FILE).decode()
    except (OSError, ValueError):
        return None


def _small_json(path: Path) -> Any:
    try:
        return json.loads(_small_text(path) or "null")
    except (ValueError, RecursionError):
        return None


# Opened lately


class RecentModels:
    """The models that were opened, the latest first; a file in the state folder."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.state / "recent-models.json"

    def paths(self) -> list[Path]:
        """Those that are still there."""
        listed = _small_json(self._file)
        texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
        return [path for path in map(Path, texts[:MOST_RECENT]) if _is_file(path)]

    def add(self, path: Path) -> None:
        """Raises OSError."""
        recent = [path.absolute(), *self.paths()]
        if os.path.lexists(self._file) and not isinstance(_small_json(self._file), list):
            keep_aside(self._file)
        texts = list(dict.fromkeys(str(each) for each in recent))[:MOST_RECENT]
        write_atomically(self._file, json.dumps(texts, indent=1).encode())


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
