"""A local backend over a toy engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.toy_engine import Toy
from tinyllm_chat.chat.local_backend import LocalBackend


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "toy.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    return path


@pytest.fixture
def backend(toy: Toy) -> Iterator[LocalBackend]:
    backend = LocalBackend(load=toy.api, free=lambda: 1 << 30)
    yield backend
    if toy.gate is not None:
        toy.gate.release(1000)
    backend.close()
