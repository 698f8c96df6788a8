"""What tells one model from another without reading gigabytes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

HEAD_BYTES = 1 << 24  # metadata and tensor table, vocabulary included, of all but very large vocabularies
SAMPLES = 64
SAMPLE_BYTES = 4096


def fingerprint(path: Path) -> str:
    """32 hexadecimal digits from the sizes of the model's files, their beginnings and samples of their weights.

    Raises OSError.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in model_files(path):
        size = part.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with open(part, "rb") as file:
            digest.update(file.read(HEAD_BYTES))
            for index in range(SAMPLES):
                file.seek(size * index // SAMPLES)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def model_files(path: Path) -> list[Path]:
    """All files of a model: itself, or the parts of a split one in order."""
    match = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path.name, re.DOTALL)
    if match is None:
        return [path]
    count = int(match[2])
    parts = [path.with_name(f"{match[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    return [part for part in parts if part.exists()]
