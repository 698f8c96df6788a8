"""Folders of its own for every test of the command line, and a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import tiny_model


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Config, data and state below a fresh folder; the kernel cache stays where it is, compiling takes seconds."""
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"TINYLLM_{name}_DIR", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_model.write(tmp_path / "tiny.gguf")
