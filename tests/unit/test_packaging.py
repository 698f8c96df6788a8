"""What the wheel and the source distribution contain."""

from __future__ import annotations

import os
import re
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import hatchling.build
import pytest
import tinyllm_chat

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not (PROJECT / "pyproject.toml").exists(), reason="the tests lie outside the project")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    before = Path.cwd()
    os.chdir(PROJECT)
    try:
        name = hatchling.build.build_wheel(str(folder))
    finally:
        os.chdir(before)
    assert name == f"tinyllm_chat-{tinyllm_chat.__version__}-py3-none-any.whl"
    return zipfile.ZipFile(folder / name)


def metadata(wheel: zipfile.ZipFile, name: str) -> Message:
    return message_from_bytes(wheel.read(f"tinyllm_chat-{tinyllm_chat.__version__}.dist-info/{name}"))


def test_wheel_is_pure_python(wheel: zipfile.ZipFile) -> None:
    assert metadata(wheel, "WHEEL")["Root-Is-Purelib"] == "true"
    assert [name for name in wheel.namelist() if name.endswith((".so", ".pyd", ".dylib", ".dll"))] == []


def test_wheel_holds_both_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
    assert tops == {"tinyllm_chat", "tinyllm_engine"}


def test_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for root in (PROJECT / "app", PROJECT / "engine"):
        modules = {path.relative_to(root).as_posix() for path in root.rglob("*.py")}
        assert modules <= names


def test_wheel_holds_the_assets(wheel: zipfile.ZipFile) -> None:
    assets = {path.relative_to(PROJECT).as_posix() for path in (PROJECT / "assets").rglob("*") if path.is_file()}
    assert assets
    assert {f"tinyllm_chat/{name}" for name in assets} <= set(wheel.namelist())


def test_wheel_installs_the_command_and_its_licence(wheel: zipfile.ZipFile) -> None:
    scripts = wheel.read(f"tinyllm_chat-{tinyllm_chat.__version__}.dist-info/entry_points.txt").decode()
    assert "tinyllm-chat = tinyllm_chat.__main__:main" in scripts
    assert metadata(wheel, "METADATA")["License-Expression"] == "MIT"


def test_whatever_is_imported_is_declared(wheel: zipfile.ZipFile) -> None:
    required = metadata(wheel, "METADATA").get_all("Requires-Dist") or []
    declared = {re.split(r"[^\w-]", line)[0].lower().replace("-", "_") for line in required}
    imported = set()
    for path in (path for root in ("app", "engine") for path in (PROJECT / root).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        imported |= set(re.findall(r"^\s*from (\w+)[\w.]* import ", text, re.MULTILINE))
        imported |= set(re.findall(r"^\s*import (\w+)[\w.]*(?: as \w+)?$", text, re.MULTILINE))
    foreign = imported - sys.stdlib_module_names - {"tinyllm_chat", "tinyllm_engine", "_typeshed"}
    foreign -= {"llvmlite", "aiohttp"}  # whose versions numba and textual-serve decide
    assert {"markdown_it_py" if name == "markdown_it" else name for name in foreign} <= declared


def test_source_distribution_can_test_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    name = hatchling.build.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        names = {entry.split("/", 1)[1] for entry in archive.getnames() if "/" in entry}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/unit/test_packaging.py"} <= names
    assert any(name.startswith("assets/") for name in names)
