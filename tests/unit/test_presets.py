"""Presets: the program's, the user's own, and what stays of values that were set in other ways."""

import pytest
from tinyllm_chat.chat.errors import SettingsError
from tinyllm_chat.chat.events import Notice
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.presets import NONE, load_presets
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import COMMAND_LINE, CONFIG, Settings, load_settings

BUILT_IN = ["precise", "balanced", "creative"]


def a_session(layers=None, presets=None, **backend):
    session = Session(ScriptedBackend(["One two three"], **backend), None, Settings(layers or {}), presets=presets)
    session.open_model("/models/a.gguf")
    session.drain()
    return session


def test_the_programs_own():
    warnings = []
    presets = load_presets({}, "config.toml", warnings)
    assert list(presets) == BUILT_IN
    assert presets["precise"]["temperature"] < presets["balanced"]["temperature"] < presets["creative"]["temperature"]
    assert warnings == []


def test_the_users_own_stand_beside_them_or_in_place_of_them(tmp_path):
    paths = Paths(*[tmp_path] * 4)
    paths.config_file.write_text(
        "[presets.brief]\ntemperature = 0.4\ntop_k = 10\n[presets.precise]\ntemperature = 0\n[sampling]\nmin_p = 0.1\n"
    )
    loaded = load_settings({}, {}, paths)
    presets = load_presets(loaded.presets, "config.toml", loaded.warnings)
    assert (loaded.warnings, loaded.settings.value("min_p")) == ([], 0.1)
    assert list(presets) == [*BUILT_IN, "brief"]
    assert (presets["brief"], presets["precise"]) == ({"temperature": 0.4, "top_k": 10}, {"temperature": 0.0})


@pytest.mark.parametrize(
    ("own", "warning"),
    [
        (
            {"a": {"temperatur": 1}},
            "c.toml: [presets.a] temperatur: there is no such setting, did you mean temperature?",
        ),
        ({"a": {"temperature": 9}}, "c.toml: [presets.a] temperature: expected a number from 0 to 5, found 9.0"),
        ({"a": {"theme": "x"}}, "c.toml: [presets.a] theme: it belongs under [interface], it is no sampling value"),
        ({"a": 1}, "c.toml: [presets.a]: expected a table of sampling values"),
        ({"A b": {}}, "c.toml: [presets.'A b']: expected a name of a-z, 0-9, - and _, and not none"),
        ({NONE: {}}, "c.toml: [presets.'none']: expected a name of a-z, 0-9, - and _, and not none"),
    ],
)
def test_what_is_wrong_is_said_and_not_used(own, warning):
    warnings = []
    presets = load_presets(own, "c.toml", warnings)
    assert warnings == [warning + " (not used)"]
    assert presets.get("a", {}) == {}


def test_a_preset_acts_on_the_running_answer_and_says_where_its_values_come_from():
    session = a_session({COMMAND_LINE: {"temperature": 0.5}, CONFIG: {"repeat_penalty": 1.2}}, automatic=False)
    session._backend.finish_opening()
    session.drain()
    session.send("Why?")
    session._backend.step(1)
    session.drain()
    session.set_sampling("top_k", 7)
    session.set_sampling("repeat_penalty", 1.3)
    session.use_preset("creative")
    assert (session.preset, session.sampling["temperature"].value) == ("creative", 1.1)
    assert session.sampling["temperature"].origin == "preset"
    assert session.sampling["top_k"].origin == "preset"  # turned by hand before
    assert (session.sampling["repeat_penalty"].value, session.sampling["repeat_penalty"].origin) == (1.3, "session")
    session._backend.step(1)
    session.drain()
    assert session.conversation.leaf.sampling_spans[-1].values["temperature"] == 1.1
    session.set_sampling("temperature", 0.9)
    assert session.sampling["temperature"].origin == "session"
    session.forget_setting("temperature")
    assert session.sampling["temperature"].value == 1.1
    session.use_preset(NONE)
    assert (session.preset, session.sampling["temperature"].value) == (None, 0.5)


def test_all_of_them_in_turn():
    session = a_session(presets={"a": {}, "b": {}})
    assert [session.next_preset() for _ in range(4)] == ["a", "b", None, "a"]


def test_one_that_does_not_exist_is_named_with_what_is_near():
    session = a_session()
    for name, hint in (("creatve", "did you mean creative?"), ("xyz", "there are precise, balanced, creative, none")):
        with pytest.raises(SettingsError, match=f"there is no preset '{name}': {hint}".replace("?", r"\?")):
            session.use_preset(name)
    assert session.preset is None


def test_the_settings_name_one_to_start_with_and_the_command_line_is_stronger():
    session = a_session({CONFIG: {"preset": "precise", "temperature": 0.6}, COMMAND_LINE: {"top_k": 3}})
    assert (session.preset, session.sampling["temperature"].value) == ("precise", 0.2)
    assert (session.sampling["top_k"].value, session.sampling["top_k"].origin) == (3, COMMAND_LINE)


def test_a_preset_of_the_settings_that_does_not_exist_is_a_notice():
    session = Session(ScriptedBackend(), None, Settings({CONFIG: {"preset": "wild"}}))
    (notice,) = [event for event in session.drain() if isinstance(event, Notice)]
    assert notice.message.startswith("preset of the settings (config): there is no preset 'wild'")
    assert session.preset is None


def test_the_setting_is_the_preset_in_force():
    session = a_session({CONFIG: {"preset": "precise"}})
    session.use_preset("creative")
    assert (session.settings.value("preset"), session.settings.origin("preset")) == ("creative", "session")
    session.set_setting("preset", "balanced")
    assert session.preset == "balanced"
    assert session.sampling["temperature"].value == session.presets["balanced"]["temperature"]
    with pytest.raises(SettingsError, match=r"did you mean creative\?"):
        session.set_setting("preset", "creatve")
    assert session.settings.value("preset") == "balanced"
    session.set_setting("preset", "")
    assert (session.preset, session.sampling["temperature"].origin) == (None, "built-in")
    session.forget_setting("preset")
    assert (session.preset, session.sampling["temperature"].value) == ("precise", 0.2)
