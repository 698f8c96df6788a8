"""Models by name, the log file, and what tells one model from another."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tinyllm_chat.chat.catalogue import CatalogueEntry
from tinyllm_chat.chat.errors import ModelNotFoundError
from tinyllm_chat.chat.fingerprint import fingerprint, model_files
from tinyllm_chat.chat.logs import start_logging
from tinyllm_chat.chat.memory import _linux_free, _parse_vm_stat, free_memory
from tinyllm_chat.chat.models import find_models, resolve_model
from tinyllm_chat.chat.paths import Paths


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    paths = Paths.default({"TINYLLM_DATA_DIR": str(tmp_path / "data")})
    paths.models.mkdir(parents=True)
    return paths


def test_no_folder_no_models(tmp_path: Path) -> None:
    assert find_models(Paths.default({"TINYLLM_DATA_DIR": str(tmp_path / "none")})) == []


def test_models_in_the_folder_and_below(paths: Paths) -> None:
    (paths.models / "sub").mkdir()
    (paths.models / ".pull-x").mkdir()
    for name in (
        "b.gguf",
        "sub/a.gguf",
        "split-00001-of-00003.gguf",
        "split-00002-of-00003.gguf",
        ".hidden.gguf",
        ".pull-x/half.gguf",
        "notes.txt",
    ):
        (paths.models / name).write_bytes(b"12345")
    (paths.models / "folder.gguf").mkdir()
    assert [(model.name, model.size) for model in find_models(paths)] == [
        ("b", 5),
        ("split-00001-of-00003", 5),
        ("a", 5),
    ]


def test_an_existing_path_comes_first(paths: Paths) -> None:
    Path("smollm2").write_bytes(b"")
    (paths.models / "smollm2.gguf").write_bytes(b"")
    assert resolve_model("smollm2", paths) == Path("smollm2")
    assert resolve_model("./smollm2", paths) == Path("smollm2")


def test_then_the_models_folder(paths: Paths) -> None:
    (paths.models / "smollm2.gguf").write_bytes(b"")
    assert resolve_model("smollm2", paths) == paths.models / "smollm2.gguf"
    assert resolve_model("smollm2.gguf", paths) == paths.models / "smollm2.gguf"


def test_then_the_catalogue(paths: Paths) -> None:
    entry = resolve_model("smollm2", paths)
    assert isinstance(entry, CatalogueEntry)
    (paths.models / entry.file).write_bytes(b"")
    assert resolve_model("smollm2", paths) == paths.models / entry.file


def test_a_folder_of_that_name_does_not_hide_the_catalogue(paths: Paths) -> None:
    Path("smollm2").mkdir()
    assert isinstance(resolve_model("smollm2", paths), CatalogueEntry)
    Path("other").mkdir()
    assert resolve_model("other", paths) == Path("other")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smolm2", "did you mean smollm2?"),
        ("SmolLM2", "did you mean smollm2?"),
        ("xyz", "known are"),
        ("no/such.gguf", "no/such.gguf: there is no such file"),
        ("model.gguf", "model.gguf: there is no such file"),
        ("a\x00b", "'a\\x00b'"),
        ("x" * 5000, "known are"),
        ("~nobody-at-all/x", "there is no such file"),
        ("", "known are"),
    ],
)
def test_an_unknown_name_is_one_line_with_a_hint(paths: Paths, name: str, expected: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(name, paths)
    assert expected in str(caught.value)
    assert str(caught.value).isprintable()


# Fingerprints


def test_a_fingerprint_depends_on_every_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    content = bytearray(os.urandom(1 << 20))
    path.write_bytes(content)
    first = fingerprint(path)
    assert len(first) == 32
    assert fingerprint(path) == first
    found = {first}
    for change in (0, 1 << 19, (1 << 20) - 1):
        changed = bytearray(content)
        changed[change] ^= 1
        path.write_bytes(changed)
        found.add(fingerprint(path))
    path.write_bytes(content + b"x")
    found.add(fingerprint(path))
    path.write_bytes(b"")
    found.add(fingerprint(path))
    assert len(found) == 6


def test_adapters_make_another_model(tmp_path: Path) -> None:
    model, one, two = (tmp_path / name for name in ("model.gguf", "one.gguf", "two.gguf"))
    for path in (model, one, two):
        path.write_bytes(os.urandom(100))
    adapted = [[(one, 1.0)], [(one, 0.5)], [(two, 1.0)], [(one, 1.0), (two, 1.0)], [(two, 1.0), (one, 1.0)]]
    found = {fingerprint(model, adapters) for adapters in adapted}
    assert len({fingerprint(model), *found}) == 6


def test_a_fingerprint_does_not_read_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    with open(path, "wb") as file:
        file.truncate(1 << 30)
    monkeypatch.setattr("tinyllm_chat.chat.fingerprint.HEAD_BYTES", 1000)
    first = fingerprint(path)
    with open(path, "r+b") as file:
        file.seek((1 << 30) * 33 // 64)
        file.write(b"x")
    assert fingerprint(path) != first


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(b"GGUF")
    assert model_files(parts[0]) == parts
    first = fingerprint(parts[0])
    parts[1].write_bytes(b"GGUX")
    assert fingerprint(parts[0]) != first


# Memory


def test_free_memory_is_told_here() -> None:
    assert (free_memory() or 1) > 0


def test_a_container_limits_the_memory(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:   8000 kB\n")
    assert _linux_free(meminfo, tmp_path) == 8000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 600\ninactive_file 300\n")
    assert _linux_free(meminfo, tmp_path) == 8000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert _linux_free(meminfo, tmp_path) == 4300
    assert _linux_free(tmp_path / "none", tmp_path) == 4300
    assert _linux_free(tmp_path / "none", tmp_path / "none") is None


def test_the_report_of_vm_stat() -> None:
    report = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               10.
Pages active:                            500.
Pages inactive:                            5.
"""
    assert _parse_vm_stat(report) == 15 * 16384
    assert _parse_vm_stat("") is None


# The log


@pytest.fixture
def quiet_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, raising = list(root.handlers), logging.raiseExceptions
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    logging.raiseExceptions = raising
    logging.captureWarnings(False)


@pytest.mark.usefixtures("quiet_root")
def test_the_log_is_private_and_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyllm_chat.chat.logs.FILE_BYTES", 2000)
    log_file = tmp_path / "state" / "chat.log"
    assert start_logging(log_file) is not None
    for number in range(100):
        logging.getLogger("tinyllm_chat.test").info("line %d \ud800", number)
    logging.getLogger("someone.else").info("not ours")
    files = sorted(path.name for path in log_file.parent.iterdir())
    assert files == ["chat.log", "chat.log.1", "chat.log.2", "chat.log.3"]
    assert all(path.stat().st_size <= 2200 for path in log_file.parent.iterdir())
    text = log_file.read_text()
    assert "line 99" in text
    assert "not ours" not in text
    if os.name == "posix":
        assert {stat.S_IMODE(path.stat().st_mode) for path in log_file.parent.iterdir()} == {0o600}


@pytest.mark.usefixtures("quiet_root")
def test_a_log_that_cannot_be_written_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert start_logging(tmp_path / "file" / "chat.log") is None
    logging.getLogger("tinyllm_chat.test").error("unheard")
    assert capsys.readouterr().err == ""
