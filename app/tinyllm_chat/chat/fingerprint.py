"""What tells one model from another without reading gigabytes."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from pathlib import Path

HEAD_BYTES = 1 << 24  # metadata and tensor table, vocabulary included, of all but very large vocabularies
SAMPLES = 64
SAMPLE_BYTES = 4096


def fingerprint(path: Path, adapters: Sequence[tuple[Path, float]] = ()) -> str:
    """32 hexadecimal digits from the sizes of the model's files, their beginnings and samples of their weights.

    adapters: file and scale of those that change the weights; in any other order or strength they are another model.
    Raises OSError.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in model_files(path):
        _add(digest, part)
    for adapter, scale in adapters:
        digest.update(b"adapter" + struct.pack("<d", scale))
        _add(digest, adapter)
    return digest.hexdigest()


def _add(digest: hashlib.blake2b, path: Path) -> None:
    size = path.stat().st_size
    digest.update(size.to_bytes(8, "little"))
    with open(path, "rb") as file:
        digest.update(file.read(HEAD_BYTES))
        for index in range(SAMPLES):
            file.seek(size * index // SAMPLES)
            digest.update(file.read(SAMPLE_BYTES))


def model_files(path: Path) -> list[Path]:
    """All files of a model: itself, or the parts of a split one in order."""
    match = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path.name, re.DOTALL)
    if match is None:
        return [path]
    count = int(match[2])
    parts = [path.with_name(f"{match[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    return [part for part in parts if part.exists()]
