"""LoRA adapters as the user names them: a file, and how strongly it shall act."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def adapter_files(texts: Sequence[str]) -> list[tuple[Path, float]]:
    """(file, scale) of texts FILE or FILE:SCALE. What stands behind the last colon and is no number is of the name."""
    return [_file_and_scale(text) for text in texts]


def _file_and_scale(text: str) -> tuple[Path, float]:
    name, colon, scale = text.rpartition(":")
    try:
        if colon and name and not os.path.exists(os.path.expanduser(text)):
            return Path(os.path.expanduser(name)), float(scale)
    except ValueError:
        pass
    return Path(os.path.expanduser(text)), 1.0
