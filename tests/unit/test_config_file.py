"""Single settings written into config.toml: everything else in it stays, and nobody's change is lost."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_chat.chat import config_file
from tinyllm_chat.chat.config_file import ConfigChanged, write_setting
from tinyllm_chat.chat.errors import SettingsError
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, SCHEMA, SESSION, Settings, create_config, load_settings

MINE = """# my own file
[interface]
theme = 'nord'  # at night

[sampling]
# colder
temperature = 0.3   # a comment
dry_sequence_breakers = [
    "a",  # one
]

[keys]
stop = "f12"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def written(config: Path, before: str, name: str, value: Any, seen: Any = None) -> str:
    config.write_bytes(before.encode())
    write_setting(config, name, value, seen)
    return config.read_bytes().decode()


def test_a_value_changes_and_nothing_else(config: Path) -> None:
    assert written(config, MINE, "temperature", 0.5, 0.3) == MINE.replace("= 0.3 ", "= 0.5 ")


def test_a_value_goes_with_its_line_alone(config: Path) -> None:
    text = written(config, MINE, "temperature", None, 0.3)
    assert text == MINE.replace("temperature = 0.3   # a comment\n", "")


def test_a_new_value_stands_in_its_table(config: Path) -> None:
    text = written(config, MINE, "top_k", 7)
    assert text.replace("top_k = 7\n", "") == MINE
    assert tomllib.loads(text)["sampling"]["top_k"] == 7


def test_a_new_table_comes_last(config: Path) -> None:
    assert written(config, MINE, "threads", 3) == MINE + "\n[model]\nthreads = 3\n"
    assert written(config, "", "threads", 3) == "[model]\nthreads = 3\n"


def test_in_the_file_of_the_first_start_a_value_stands_below_its_comment(config: Path) -> None:
    create_config(config)
    text = config.read_text()
    write_setting(config, "top_p", 0.9, None)
    assert config.read_text() == text.replace("# top_p = 0.95\n", "# top_p = 0.95\ntop_p = 0.9\n")
    write_setting(config, "top_p", None, 0.9)
    assert config.read_text() == text


def test_a_file_that_is_not_there_is_made(config: Path) -> None:
    write_setting(config, "theme", "nord", None)
    assert tomllib.loads(config.read_text())["interface"] == {"theme": "nord"}
    assert "# temperature = 0.8" in config.read_text()


@pytest.mark.parametrize(
    "before",
    [
        "sampling = {temperature = 0.3}\n",
        "sampling.temperature = 0.3\n",
        "[sampling]\r\ntemperature = 0.3\r\n# end\r\n",
        '[model]\nsystem_prompt = """\n[sampling]\n# top_k = 40\n"""\n[sampling]\ntemperature = 0.3\n',
        "\ufeff[sampling]\ntemperature = 0.3\n",
        "[ sampling ] # mine\ntemperature=0.3",
        "[sampling]\n[interface]\n[[other]]\n",
        "# [sampling]\n# top_k = 40\n",
    ],
)
@pytest.mark.parametrize(
    ("name", "value"), [("temperature", 0.5), ("top_k", 3), ("theme", 'a "b"\n\\c'), ("stop", ["x"])]
)
def test_whatever_the_file_looks_like_only_the_value_changes(config: Path, before: str, name: str, value: Any) -> None:
    wanted = tomllib.loads(before.removeprefix("\ufeff"))
    seen = wanted.get(SCHEMA[name].table, {}).get(name)
    text = written(config, before, name, value, seen)
    wanted.setdefault(SCHEMA[name].table, {})[name] = value
    assert tomllib.loads(text.removeprefix("\ufeff")) == wanted
    assert text.startswith("\ufeff") == before.startswith("\ufeff")
    for line in before.splitlines():
        if line.strip().startswith("#"):
            assert line in text


def test_what_somebody_else_changed_is_not_overwritten(config: Path) -> None:
    config.write_text(MINE)
    with pytest.raises(ConfigChanged, match=r"temperature was changed there meanwhile, to 0\.3") as error:
        write_setting(config, "temperature", 0.5, 0.9)
    assert error.value.value == 0.3
    with pytest.raises(ConfigChanged, match="to nothing"):
        write_setting(config, "top_k", 3, 4)
    assert config.read_text() == MINE


def test_other_settings_may_have_changed_meanwhile(config: Path) -> None:
    assert "top_k = 9" in written(config, MINE.replace("[keys]", "top_k = 9\n[keys]"), "temperature", 0.5, 0.3)


def test_a_change_in_the_last_moment_is_not_overwritten(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(MINE)
    edited = config_file._edited

    def slow(*arguments: Any) -> str:
        config.write_text(MINE + "# more\n")
        return edited(*arguments)

    monkeypatch.setattr(config_file, "_edited", slow)
    with pytest.raises(SettingsError, match="changed just now"):
        write_setting(config, "temperature", 0.5, 0.3)
    assert config.read_text() == MINE + "# more\n"


@pytest.mark.parametrize("broken", [b"[sampling\n", b"\xff", b"x" * (1 << 20) + b"x", b"a = " + b"[" * 9000])
def test_a_broken_file_is_left_alone(config: Path, broken: bytes) -> None:
    config.write_bytes(broken)
    with pytest.raises(SettingsError, match="nothing is saved until that is put right") as error:
        write_setting(config, "temperature", 0.5, None)
    assert "\n" not in str(error.value)
    assert config.read_bytes() == broken


def test_a_value_of_the_wrong_kind_in_the_file_may_be_replaced(config: Path) -> None:
    assert written(config, "[sampling]\ntop_k = 'many'\n", "top_k", 5) == "[sampling]\ntop_k = 5\n"
    with pytest.raises(SettingsError, match="cannot be changed from here"):
        written(config, "sampling = 5\n", "top_k", 5)


@pytest.mark.skipif(os.name != "posix", reason="links need no rights there")
def test_a_link_stays_one(config: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = tmp_path / "dotfiles" / "real.toml"
    real.write_text(MINE)
    config.symlink_to(real)
    write_setting(config, "temperature", 0.5, 0.3)
    assert config.is_symlink()
    assert "0.5" in real.read_text()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        write_setting(tmp_path / "file" / "config.toml", "top_k", 5, None)


@given(st.sampled_from(["theme", "system_prompt"]), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back(name: str, text: str) -> None:
    edited = config_file._edited(MINE, tomllib.loads(MINE), name, text)
    assert tomllib.loads(edited)[SCHEMA[name].table][name] == text


# The session above it


@pytest.fixture
def session(tmp_path: Path) -> Session:
    paths = Paths.default({"TINYLLM_CONFIG_DIR": str(tmp_path)})
    return Session(ScriptedBackend(()), None, load_settings({}, {}, paths).settings, paths.config_file)


def test_a_saved_setting_is_the_files_and_no_longer_the_sessions(session: Session, config: Path) -> None:
    session.set_setting("temperature", 0.5)
    assert session.settings.origin("temperature") == SESSION
    session.save_setting("temperature", 0.6)
    assert (session.settings.value("temperature"), session.settings.origin("temperature")) == (0.6, CONFIG)
    session.set_setting("max_tokens", 5)
    session.forget_setting("max_tokens")
    session.save_setting("temperature", None)
    assert tomllib.loads(config.read_text())["sampling"] == {}
    assert session.settings.value("temperature") == 0.8


def test_what_the_file_says_instead_is_in_force_after_the_refusal(session: Session, config: Path) -> None:
    config.write_text(MINE)
    with pytest.raises(ConfigChanged):
        session.save_setting("temperature", 0.9)
    assert (session.settings.value("temperature"), session.settings.origin("temperature")) == (0.3, CONFIG)
    session.save_setting("temperature", 0.9)
    assert "temperature = 0.9 " in config.read_text()


def test_without_a_file_there_is_nothing_to_save_to() -> None:
    session = Session(ScriptedBackend(()), None, Settings())
    with pytest.raises(SettingsError, match="no config file"):
        session.save_setting("temperature", 0.9)
    with pytest.raises(SettingsError, match="temperature: expected"):
        session.set_setting("temperature", 9.0)
