"""Files that are not code: beside the package in a wheel, at the root of the repository in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def asset(name: str) -> Path:
    """The path of an asset. Raises FileNotFoundError with both places if it is in neither."""
    places = [_PACKAGE / "assets" / name, _PACKAGE.parents[1] / "assets" / name]
    for path in places:
        if path.exists():
            return path
    raise FileNotFoundError(2, "an asset of the program is missing", " and ".join(map(str, places)))
