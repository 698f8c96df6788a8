"""The kernel cache: its key has the text of everything that machine code is made of; damaged, it is made anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinyllm_engine
from tinyllm_engine import jit
from tinyllm_engine.jit import Compiled, compiled_sources

PACKAGE = Path(tinyllm_engine.__file__).parent
# What modules with kernels use of others in plain Python: nothing of it is compiled.
ONLY_PYTHON = {"cancel.py", "errors.py", "memory.py"}


def imported(source: Path) -> Iterator[Path]:
    """The modules of the engine that a module imports."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.module or not node.module.startswith("tinyllm_engine"):
            continue
        room = PACKAGE.joinpath(*node.module.split(".")[1:])
        for path in (room.with_suffix(".py"), *(room / f"{name.name}.py" for name in node.names)):
            if path.exists():
                yield path


def test_what_compiled_modules_import_is_in_the_key() -> None:
    hashed = set(compiled_sources())
    missing = {
        f"{source.relative_to(PACKAGE)} imports {path.relative_to(PACKAGE)}"
        for source in hashed
        if source.suffix == ".py"
        for path in imported(source)
        if path not in hashed and path.name not in ONLY_PYTHON
    }
    assert missing == set()


def test_all_modules_with_kernels_are_in_the_key() -> None:
    marks = ("@native", "@inlined", "@shared", "@kernel(", "@step", "@compiled(", "@operation(", "@intrinsic")
    made = {
        path
        for path in PACKAGE.rglob("*.py")
        if any(line.startswith(marks) for line in path.read_text(encoding="utf-8").splitlines())
    }
    assert len(made) > 20
    assert made - set(compiled_sources()) == set()


class OfADamagedCache(Compiled):
    """What is in the cache folder cannot be loaded."""

    def _compile(self, cache: bool) -> Any:
        if cache:
            raise ValueError("not a cache file")
        return "machine code"


def test_what_was_compiled_beside_a_damaged_cache_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "CACHE_FOLDER", tmp_path / "kernels")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "another.done").touch()
    item = OfADamagedCache(test_all_modules_with_kernels_are_in_the_key)
    item.prepare()
    assert item.is_prepared
    assert not item.is_cached
    assert list((tmp_path / "kernels").iterdir()) == []
