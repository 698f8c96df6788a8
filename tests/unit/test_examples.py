"""The examples in docs/api.md and in the docstrings of what the engine exports: they run, and leave nothing out."""

from __future__ import annotations

import doctest
import io
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import tinyllm_engine
from support import tiny_model
from tinyllm_engine import Model, Runner

API = Path(__file__).parents[2] / "docs" / "api.md"
EXPORTED = {name: getattr(tinyllm_engine, name) for name in tinyllm_engine.__all__}


def examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False)
    for name, thing in [("tinyllm_engine", tinyllm_engine), *EXPORTED.items()]:
        found = finder.find(thing, name, module=import_module(thing.__module__) if name in EXPORTED else None)
        yield from (each for each in found if each.examples)
    if API.exists():  # the tests may lie outside the project
        yield doctest.DocTestParser().get_doctest(API.read_text(encoding="utf-8"), {}, API.name, str(API), 0)


EXAMPLES = list(examples())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    tiny_model.write(folder / "model.gguf")
    (folder / "notes.txt").write_text("Dear diary, this is no model.\n" * 10)
    return folder


@pytest.fixture(scope="module")
def names(folder: Path) -> Iterator[dict[str, Any]]:
    """What an example may use without saying where it comes from."""
    model = Model.open(folder / "model.gguf")
    runner = Runner(model, context_length=256, threads=1)
    prompt = model.tokenizer.encode("The capital of France is")
    yield EXPORTED | {"model": model, "runner": runner, "prompt": prompt}
    runner.close()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_does_what_it_says(
    example: doctest.DocTest, folder: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    example.globs = dict(names)
    said = io.StringIO()
    doctest.DocTestRunner().run(example, out=said.write)
    assert said.getvalue() == ""


def test_everything_exported_has_an_example_of_its_own() -> None:
    assert EXPORTED.keys() - {example.name for example in EXAMPLES} == set()
