"""Keys of the user: how they are written, and what is said of those that cannot be had."""

from __future__ import annotations

import tomllib

import pytest
from textual._xterm_parser import XTermParser
from textual.events import Key
from tinyllm_chat.tui.actions import ACTIONS
from tinyllm_chat.tui.keymap import KeyMistake, keymap, listing, parse_key
from tinyllm_chat.tui.registry import key_name, pair_name


def keys_of(wanted: dict[str, object]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    found = keymap(ACTIONS, wanted)
    return {entry.name: entry.keys for entry in found.actions}, found.warnings


DEFAULTS = {entry.name: entry.keys for entry in ACTIONS}


def test_nothing_asked_for_changes_nothing() -> None:
    assert keys_of({}) == (DEFAULTS, ())


def test_what_is_asked_for_replaces_all_keys_of_the_action_alone() -> None:
    keys, warnings = keys_of({"stop": "F14 Ctrl+X", "new-chat": ""})
    assert warnings == ()
    assert keys == {**DEFAULTS, "stop": ("f14", "ctrl+x"), "new_chat": ()}


@pytest.mark.parametrize(
    ("wanted", "said", "changed"),
    [
        ({"stopp": "f14"}, "[keys] stopp: there is no such action, did you mean stop? (not used)", {}),
        ({"\x1b[31mx": "f14"}, "there is no such action (not used)", {}),
        ({"stop": 5}, "[keys] stop: expected keys in one text", {}),
        ({"stop": "escpe"}, "[keys] stop: escpe: there is no such key, did you mean escape? (not used)", {"stop": ()}),
        ({"stop": "crtl+x f14"}, "no such modifier, did you mean ctrl? (not used)", {"stop": ("f14",)}),
        ({"stop": "x"}, "x: that types a character", {"stop": ()}),
        ({"stop": "ctrl+i"}, "terminals send that as Tab", {"stop": ()}),
        ({"stop": "tab"}, "Tab completes a command", {"stop": ()}),
        (
            {"stop": "f14", "help": "f1 f14"},
            "[keys] help: F14 is already the key of stop (not used)",
            {"stop": ("f14",), "help": ("f1",)},
        ),
        (
            {"stop": "ctrl+r"},
            "[keys] stop takes Ctrl+R from regenerate, which has no key now",
            {"stop": ("ctrl+r",), "regenerate": ()},
        ),
        (
            {"stop": "f6"},
            "[keys] stop takes F6 from temperature_up, which keeps Alt+↑ and Ctrl+↑",
            {"stop": ("f6",), "temperature_up": ("alt+up", "ctrl+up")},
        ),
    ],
)
def test_a_mistake_is_one_line_and_the_rest_applies(
    wanted: dict[str, object], said: str, changed: dict[str, tuple[str, ...]]
) -> None:
    keys, warnings = keys_of({**wanted, "copy": "f11"})
    assert keys == {**DEFAULTS, **changed, "copy": ("f11",)}
    (warning,) = warnings
    assert warning.startswith("config.toml: [keys] ")
    assert said in warning
    assert "\n" not in warning
    assert "\x1b" not in warning


def test_a_key_that_was_taken_on_purpose_is_no_mistake() -> None:
    assert keys_of({"stop": "ctrl+r", "regenerate": "escape"})[1] == ()


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("Ctrl+J", "ctrl+j"),
        ("alt+.", "alt+full_stop"),
        ("Alt+↑", "alt+up"),
        ("PgUp", "pageup"),
        ("Esc", "escape"),
        ("shift+ctrl+x", "ctrl+shift+x"),
        ("ctrl++", "ctrl+plus"),
        ("return", "enter"),
        ("alt+-", "alt+minus"),
    ],
)
def test_keys_are_read_as_people_write_them(written: str, key: str) -> None:
    assert parse_key(written) == (key,)


def test_what_is_shown_is_understood() -> None:
    for keys in DEFAULTS.values():
        for key in keys:
            assert key in parse_key(key_name(key))


def test_a_key_that_terminals_report_differently_is_all_of_them() -> None:
    assert parse_key("ctrl+/") == ("ctrl+slash", "ctrl+underscore")


@pytest.mark.parametrize("written", ["+", "", "ctrl+", "ctrl+ctrl", "\x1b", "F99", "ü", "a" * 1000])
def test_what_is_no_key_is_refused_in_a_short_line(written: str) -> None:
    with pytest.raises(KeyMistake) as error:
        parse_key(written)
    assert len(str(error.value)) < 120
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [("alt+up", "alt+down", "Alt+↑↓"), ("f6", "f5", "F6/F5"), ("ctrl+u", "alt+d", "Ctrl+U/Alt+D")],
)
def test_two_keys_in_little_room(first: str, second: str, shown: str) -> None:
    assert pair_name(first, second) == shown


def test_the_listing_is_a_config_file_that_changes_nothing() -> None:
    text = "\n".join(line.removeprefix("# ") for line in listing(ACTIONS).splitlines())
    assert keys_of(tomllib.loads(text)["keys"]) == (DEFAULTS, ())


def plain_keys() -> set[str]:
    """What terminals without any newer protocol send: control characters, Alt as Escape, and xterm's sequences."""
    sent = [chr(code) for code in range(32)] + ["\x7f"]
    sent += [f"\x1b{chr(code)}" for code in range(33, 127) if chr(code) not in "[O"]
    sent += [f"\x1b[{letter}" for letter in "ABCDHF"] + [f"\x1b[{number}~" for number in range(1, 25)]
    sent += [f"\x1b[1;{modifier}{letter}" for modifier in (2, 3, 5) for letter in "ABCDHF"]
    sent += [f"\x1bO{letter}" for letter in "PQRS"] + ["\x1b[Z"]
    return {key for text in sent for key in read(text)}


def read(text: str) -> list[str]:
    """The keys of what a terminal sends, when nothing follows it for a while."""
    parser = XTermParser()
    events = [*parser.feed(text)]
    if parser._timeout_time is not None:
        parser._timeout_time = 0.0
    return [event.key for event in [*events, *parser.tick()] if isinstance(event, Key)]


def test_every_action_with_keys_has_one_that_a_plain_terminal_sends() -> None:
    plain = plain_keys()
    assert {"escape", "enter", "ctrl+j", "alt+up", "f5", "pageup"} <= plain
    assert [entry.name for entry in ACTIONS if entry.keys and not set(entry.keys) & plain] == []


@pytest.mark.parametrize("of", ["keys", "message_keys", "slash"])
def test_nothing_that_is_pressed_or_typed_means_two_actions(of: str) -> None:
    named = [name for entry in ACTIONS for name in getattr(entry, of)]
    assert sorted(named) == sorted(set(named))
