"""Folders: where they are, what moves them, who may enter them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tinyllm_chat.chat.events import Notice
from tinyllm_chat.chat.files import make_private_folder, write_atomically
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import load_settings
from tinyllm_chat.chat.transcript import TranscriptStore

POSIX = os.name == "posix"


def test_the_platform_names_the_folders() -> None:
    paths = Paths.default({})
    assert {paths.config.name, paths.data.name, paths.state.name, paths.cache.name} <= {"tinyllm-chat", "Cache", "Logs"}
    assert all(path.is_absolute() for path in paths.listed().values())


def test_each_folder_moves_on_its_own(tmp_path: Path) -> None:
    usual = Paths.default({})
    for variable, field in (
        ("TINYLLM_CONFIG_DIR", "config"),
        ("TINYLLM_DATA_DIR", "data"),
        ("TINYLLM_STATE_DIR", "state"),
        ("TINYLLM_CACHE_DIR", "cache"),
    ):
        moved = Paths.default({variable: str(tmp_path)})
        assert getattr(moved, field) == tmp_path
        others = {"config", "data", "state", "cache"} - {field}
        assert all(getattr(moved, other) == getattr(usual, other) for other in others)


@pytest.mark.skipif(not POSIX, reason="looks for the user elsewhere")
def test_who_has_no_home_keeps_nothing_and_is_told_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import pwd

    def nobody(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in [name for name in os.environ if name == "HOME" or name.startswith("XDG_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    paths = Paths.default({})
    assert all("HOME is not set" in str(path) for path in paths.listed().values())
    for folder in (paths.config, paths.data, paths.state, paths.cache):
        with pytest.raises(OSError, match="HOME is not set"):
            make_private_folder(folder)
    session = Session(ScriptedBackend(), TranscriptStore(paths.transcripts), load_settings({}, {}, paths).settings)
    session.open_model("m.gguf")
    session.drain()
    session.send("hello")
    said = [event for event in session.drain() if isinstance(event, Notice)]
    assert "HOME is not set" in said[0].message
    assert session.conversation.path()[-1].content == "Hello there."
    session.close()
    assert list(tmp_path.iterdir()) == []
    assert Paths.default({"TINYLLM_DATA_DIR": str(tmp_path)}).data == tmp_path


def test_an_empty_variable_moves_nothing() -> None:
    assert Paths.default({"TINYLLM_DATA_DIR": ""}) == Paths.default({})


def test_a_home_sign_and_a_relative_folder_are_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert Paths.default({"TINYLLM_DATA_DIR": "~/models"}).data == tmp_path / "models"
    assert Paths.default({"TINYLLM_DATA_DIR": "here"}).data == tmp_path / "here"


def test_naming_folders_creates_none(tmp_path: Path) -> None:
    paths = Paths.default({"TINYLLM_DATA_DIR": str(tmp_path / "data")})
    paths.listed()
    assert list(tmp_path.iterdir()) == []


def test_new_folders_and_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, b"text")
    assert path.read_bytes() == b"text"
    if POSIX:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file"):
        make_private_folder(tmp_path / "file")


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tinyllm_chat.chat.files.os.replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
