"""Settings: every source, every origin, every kind of mistake."""

from __future__ import annotations

import math
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_chat.chat.errors import SettingsError
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.settings import (
    BUILT_IN,
    COMMAND_LINE,
    CONFIG,
    ENVIRONMENT,
    MODEL,
    ORIGINS,
    PRESET,
    SAMPLING_NAMES,
    SCHEMA,
    SESSION,
    TABLES,
    Settings,
    check,
    load_settings,
    nudge,
    parse,
)
from tinyllm_engine.sampling import SamplingParams


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.default({"TINYLLM_CONFIG_DIR": str(tmp_path / "config")})


def write(paths: Paths, text: str | bytes) -> None:
    paths.config.mkdir(exist_ok=True)
    paths.config_file.write_bytes(text.encode() if isinstance(text, str) else text)


def warnings_of(paths: Paths, text: str | bytes) -> list[str]:
    write(paths, text)
    return load_settings({}, {}, paths).warnings


def test_the_table_is_consistent() -> None:
    for setting in SCHEMA.values():
        assert check(setting.name, setting.default) == setting.default
        is_number = isinstance(setting.default, int | float) and not isinstance(setting.default, bool)
        assert is_number == (setting.range is not None)


def test_sampling_defaults_are_the_engines() -> None:
    engine = SamplingParams()
    ours = Settings().sampling()
    assert ours.pop("seed") == -1
    assert ours == {name: getattr(engine, name) for name in ours}


@pytest.mark.parametrize("end", [0, 1])
def test_the_engine_accepts_whatever_is_in_range(end: int) -> None:
    for name in SAMPLING_NAMES:
        allowed = SCHEMA[name].range or (SCHEMA[name].default,) * 2
        SamplingParams(**{name: allowed[end]})


def test_the_stronger_origin_wins(paths: Paths) -> None:
    write(paths, "[sampling]\ntemperature = 0.3\ntop_p = 0.3\ntop_k = 3\n")
    env = {"TINYLLM_TEMPERATURE": "0.4", "TINYLLM_TOP_P": "0.4"}
    settings = load_settings({"temperature": 0.5, "min_p": None}, env, paths).settings
    settings = settings.with_layer(MODEL, {"top_k": 7, "min_p": 0.2})
    found = {name: (settings.value(name), settings.origin(name)) for name in SAMPLING_NAMES[:5]}
    assert found == {
        "temperature": (0.5, COMMAND_LINE),
        "top_p": (0.4, ENVIRONMENT),
        "top_k": (3, CONFIG),
        "min_p": (0.2, MODEL),
        "typical_p": (1.0, BUILT_IN),
    }
    turned = settings.with_value(SESSION, "temperature", 1.5)
    assert (turned.value("temperature"), turned.origin("temperature")) == (1.5, SESSION)
    assert settings.value("temperature") == 0.5


def test_origins_are_ordered_as_documented() -> None:
    assert ORIGINS == (SESSION, PRESET, COMMAND_LINE, ENVIRONMENT, CONFIG, MODEL, BUILT_IN)


def test_the_first_run_writes_a_private_commented_file_that_sets_nothing(paths: Paths) -> None:
    result = load_settings({}, {}, paths)
    assert result.warnings == []
    assert {result.settings.origin(name) for name in SCHEMA} == {BUILT_IN}
    text = paths.config_file.read_text()
    assert all(setting.help in text for setting in SCHEMA.values())
    assert tomllib.loads(text) == {table: {} for table in TABLES}
    if os.name == "posix":
        assert stat.S_IMODE(paths.config_file.stat().st_mode) == 0o600


def test_the_file_of_the_first_run_is_right_once_uncommented(paths: Paths) -> None:
    load_settings({}, {}, paths)
    lines = paths.config_file.read_text().splitlines()
    names = tuple(f"# {name} = " for name in SCHEMA)
    active = "\n".join(line.removeprefix("# ") if line.startswith(names) else line for line in lines)
    write(paths, active)
    result = load_settings({}, {}, paths)
    assert result.warnings == []
    assert {result.settings.origin(name) for name in SCHEMA} == {CONFIG}
    assert {name: result.settings.value(name) for name in SCHEMA} == {name: row.default for name, row in SCHEMA.items()}


def test_an_existing_file_is_never_written(paths: Paths) -> None:
    write(paths, "# mine\n[sampling]\ntop_k = 2")
    load_settings({}, {}, paths)
    assert paths.config_file.read_text() == "# mine\n[sampling]\ntop_k = 2"


def test_a_folder_that_cannot_be_made_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = load_settings({}, {}, Paths.default({"TINYLLM_CONFIG_DIR": str(tmp_path / "file" / "config")}))
    assert result.settings.value("temperature") == 0.8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[sampling]\ntemprature = 1", ["[sampling] temprature", "did you mean temperature?"]),
        ("[sampling]\ntemp = 1", ["[sampling] temp:", "did you mean temperature?"]),
        ("[sampling]\nTop-K = 1", ["'Top-K'", "did you mean top_k?"]),
        ("[sampling]\nxyzzy = 1", ["[sampling] xyzzy: there is no such setting (not used)"]),
        ("[modle]\nthreads = 1", ["[modle]", "did you mean model?"]),
        ("threads = 1", ["threads: it belongs under [model]"]),
        ("model = 1", ["model: it belongs under [model]"]),
        ("sampling = 1", ["sampling: expected the table [sampling]"]),
        ("[sampling]\nthreads = 1", ["[sampling] threads: it belongs under [model]"]),
        ("[sampling]\ntop_p = 2.0", ["[sampling] top_p: expected a number from 0 to 1, found 2.0"]),
        ("[sampling]\ntop_p = nan", ["top_p: expected a number from 0 to 1, found nan"]),
        ("[sampling]\ntop_k = 1.5", ["top_k: expected a whole number from 0", "found 1.5"]),
        ("[sampling]\ntop_k = true", ["top_k: expected a whole number from 0", "found True"]),
        ("[sampling]\ntemperature = 'hot'", ["temperature: expected a number from 0 to 5, found 'hot'"]),
        ("[sampling]\ntemperature = 99999999999999999999", ["temperature: expected a number from 0 to 5"]),
        ("[sampling]\ntemperature = [1]", ["temperature: expected a number from 0 to 5, found [1]"]),
        ("[model]\ncache_type_k = 'q8'", ["cache_type_k: expected one of f32, f16, bf16, q8_0, q4_0, found 'q8'"]),
        ("[model]\nsystem_prompt = 1", ["system_prompt: expected a text, found 1"]),
        ("[interface]\nshow_panels = 1", ["show_panels: expected true or false, found 1"]),
        ("a b", ["line 1"]),
        ("[sampling]\ntop_k = 1\ntop_k = 2", ["the file is not used"]),
        (b"[model]\nmodel = '\xff'", ["byte 17 is not UTF-8"]),
        ("a = " + "[" * 5000, ["the file is not used"]),
        ("# " + "x" * (1 << 20), ["larger than 1 MiB"]),
    ],
)
def test_a_mistake_in_the_file_is_one_warning_that_names_it(
    paths: Paths, text: str | bytes, expected: list[str]
) -> None:
    (warning,) = warnings_of(paths, text)
    assert str(paths.config_file) in warning
    assert all(part in warning for part in expected), warning
    assert warning.isprintable()


def test_what_is_right_beside_a_mistake_is_used(paths: Paths) -> None:
    write(paths, "[sampling]\ntop_k = 'many'\ntop_p = 0.5\n")
    settings = load_settings({}, {}, paths).settings
    assert (settings.value("top_k"), settings.origin("top_k")) == (40, BUILT_IN)
    assert (settings.value("top_p"), settings.origin("top_p")) == (0.5, CONFIG)


def test_names_in_the_file_cannot_steer_the_terminal(paths: Paths) -> None:
    (warning,) = warnings_of(paths, '[sampling]\n"a\\u001b[31m" = 1')
    assert warning.isprintable()


def test_a_byte_order_mark_is_no_mistake(paths: Paths) -> None:
    write(paths, b"\xef\xbb\xbf[sampling]\ntop_k = 3")
    assert load_settings({}, {}, paths).settings.value("top_k") == 3


def test_a_folder_in_place_of_the_file_is_a_warning(paths: Paths) -> None:
    paths.config_file.mkdir(parents=True)
    (warning,) = load_settings({}, {}, paths).warnings
    assert "cannot be read" in warning


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("TEMPERATURE", "1", 1.0),
        ("TOP_K", " 7 ", 7),
        ("SHOW_PANELS", "Off", False),
        ("SYSTEM_PROMPT", "Be brief.", "Be brief."),
        ("CACHE_TYPE_V", "f32", "f32"),
    ],
)
def test_the_environment_is_read_as_text(paths: Paths, name: str, text: str, value: Any) -> None:
    result = load_settings({}, {f"TINYLLM_{name}": text}, paths)
    assert result.warnings == []
    assert result.settings.value(name.lower()) == value
    assert result.settings.origin(name.lower()) == ENVIRONMENT


@pytest.mark.parametrize(
    ("name", "text"), [("TEMPERATURE", "hot"), ("TOP_K", "1.5"), ("SHOW_PANELS", "maybe"), ("TOP_P", "inf")]
)
def test_a_mistake_in_the_environment_is_a_warning(paths: Paths, name: str, text: str) -> None:
    result = load_settings({}, {f"TINYLLM_{name}": text}, paths)
    (warning,) = result.warnings
    assert f"TINYLLM_{name}" in warning
    assert repr(text) in warning or text in warning
    assert result.settings.origin(name.lower()) == BUILT_IN


@pytest.mark.parametrize(("name", "value"), [("temperature", -1.0), ("top_k", "x"), ("nonsense", 1)])
def test_a_mistake_on_the_command_line_is_an_error(paths: Paths, name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=name):
        load_settings({name: value}, {}, paths)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("stop", "\\n\\n", ("\n\n",)),
        ("stop", '["END", "\\n"]', ("END", "\n")),
        ("stop", "", ()),
        ("dry_sequence_breakers", '["a\\\\b"]', ("a\\b",)),
        ("samplers", "top_k;temp", ("top_k;temp",)),
        ("logit_bias", '["7+1", "3-inf"]', ("7+1", "3-inf")),
        ("ignore_eos", "on", True),
    ],
)
def test_lists_of_texts(name: str, text: str, value: object) -> None:
    assert parse(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("samplers", "top_k;top_q", "samplers: expected some of penalties, .*; found 'top_q'"),
        ("logit_bias", "7*2", "logit_bias: expected ID.BIAS"),
        ("stop", "[1]", r"stop: expected a list of texts, found \[1\]"),
    ],
)
def test_lists_that_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse(name, text)


def test_ten_small_steps_give_a_round_number() -> None:
    value = 0.0
    for _ in range(10):
        value = nudge("temperature", value, 1)
    assert value == 0.5


@given(
    st.sampled_from([name for name in SAMPLING_NAMES if SCHEMA[name].step]),
    st.integers(-(10**6), 10**6),
    st.integers(0, 100),
)
def test_a_nudge_ends_inside_the_range(name: str, steps: int, start: int) -> None:
    allowed = SCHEMA[name].range
    assert allowed is not None
    begin = type(SCHEMA[name].default)(min(max(start, allowed[0]), allowed[1]))
    moved = nudge(name, begin, steps)
    assert check(name, moved) == moved
    if moved not in allowed:
        step = SCHEMA[name].step
        assert step is not None
        assert math.isclose(moved - begin, steps * step, abs_tol=1e-3)


@pytest.mark.parametrize("name", ["model", "threads", "nonsense"])
def test_what_has_no_steps_cannot_be_nudged(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        nudge(name, 1, 1)


@given(st.text(), st.text())
def test_no_text_breaks_the_parser(name: str, text: str) -> None:
    for key in (name, *SCHEMA):
        message = ""
        try:
            assert check(key, parse(key, text)) is not None
        except SettingsError as error:
            message = str(error)
        assert message.isprintable()
