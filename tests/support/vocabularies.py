"""Where the recorded answers of other people's vocabularies and templates are, if they are: beside the project."""

from __future__ import annotations

import os
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]


def shared_golden(name: str) -> Path | None:
    """The folder `name` of `../shared/golden`, or of what TINYLLM_SHARED_GOLDEN names."""
    root = Path(os.environ.get("TINYLLM_SHARED_GOLDEN") or _REPOSITORY.parent / "shared" / "golden")
    folder = root / name
    return folder if folder.is_dir() else None


def recorded_texts(vocabulary: Path) -> list[tuple[str, list[int]]]:
    """(text, ids) of every text that is recorded beside a vocabulary."""
    texts = vocabulary.with_name(vocabulary.name + ".inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = vocabulary.with_name(vocabulary.name + ".out").read_text().splitlines()
    return [(text, [int(id) for id in line.split()]) for text, line in zip(texts, lines, strict=False)]


def without_golden(name: str) -> str:
    return f"the folder {name} of recorded answers is not at hand (../shared/golden or TINYLLM_SHARED_GOLDEN)"
