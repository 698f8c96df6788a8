"""Which keys run which action: those the program comes with, changed by what `[keys]` of config.toml says.

    [keys]
    stop = "escape ctrl+x"
    regenerate = ""        # no key

Keys are written as people write them: Ctrl+J, alt+., PgUp, f5.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from textual.keys import Keys

from tinyllm_chat.tui.registry import KEY_CHARACTERS, Action, key_name
from tinyllm_chat.tui.text import clean_line

RESERVED = {"tab": "completes a command"}
_MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
_SPELLINGS = {
    "esc": "escape",
    "return": "enter",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "pgdown": "pagedown",
    "control": "ctrl",
    "option": "alt",
    "cmd": "super",
    "↑": "up",
    "↓": "down",
    "←": "left",
    "→": "right",
}
# What terminals send for these is another key's.
_SENT_AS = {"ctrl+h": "backspace", "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+left_square_bracket": "escape"}
_SENT_ALSO = {"ctrl+slash": ("ctrl+slash", "ctrl+underscore")}


_CHARACTERS = {character: key for key, character in KEY_CHARACTERS.items()}
_PLAIN = {*string.ascii_lowercase, *string.digits, *KEY_CHARACTERS, "space"}
_NAMED = {word for key in Keys if (word := key.value.split("+")[-1]).isidentifier() and len(word) > 1}
_KNOWN = _PLAIN | _NAMED


class KeyMistake(ValueError):
    """A key that does not exist or cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class Keymap:
    """The actions with the keys in force, and what was wrong with those asked for: one line each."""

    actions: tuple[Action, ...]
    warnings: tuple[str, ...] = ()

    def key(self, name: str) -> str:
        """The first key of an action as people write it; its slash command where it has no key."""
        entry = next(entry for entry in self.actions if entry.name == name)
        return key_name(entry.keys[0]) if entry.keys else entry.usage


def keymap(actions: Sequence[Action], wanted: Mapping[str, Any]) -> Keymap:
    """`wanted`: for the name of an action its keys, separated by spaces. What is wrong there is not used."""
    warnings: list[str] = []
    names = {entry.name: entry for entry in actions}
    chosen: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}  # by whom
    for written, keys in wanted.items():
        name = written.lower().replace("-", "_")
        if name not in names:
            warnings.append(f"[keys] {clean_line(written)}: there is no such action{_near(name, names)} (not used)")
        elif not isinstance(keys, str):
            warnings.append(f'[keys] {name}: expected keys in one text, like "ctrl+j f5", found {_shown(keys)}')
        else:
            chosen[name] = tuple(_usable(name, keys, taken, warnings))
    entries = []
    for entry in actions:
        if entry.name in chosen:
            entries.append(replace(entry, keys=chosen[entry.name]))
            continue
        kept = tuple(key for key in entry.keys if key not in taken)
        if lost := [key for key in entry.keys if key in taken]:
            left = f"keeps {' and '.join(map(key_name, kept))}" if kept else "has no key now"
            warnings.append(f"[keys] {taken[lost[0]]} takes {key_name(lost[0])} from {entry.name}, which {left}")
        entries.append(replace(entry, keys=kept))
    return Keymap(tuple(entries), tuple(f"config.toml: {warning}" for warning in warnings))


def _usable(name: str, keys: str, taken: dict[str, str], warnings: list[str]) -> Iterable[str]:
    """The keys of one action that can be had; `taken` learns of them."""
    for written in keys.split():
        try:
            found = parse_key(written)
        except KeyMistake as error:
            warnings.append(f"[keys] {name}: {error} (not used)")
            continue
        for key in found:
            if key in RESERVED:
                warnings.append(f"[keys] {name}: {key_name(key)} {RESERVED[key]} (not used)")
            elif taken.setdefault(key, name) == name:
                yield key
            else:
                warnings.append(f"[keys] {name}: {key_name(key)} is already the key of {taken[key]} (not used)")


def parse_key(written: str) -> tuple[str, ...]:
    """A key as Textual names it; several where terminals differ. Raises KeyMistake."""
    shown = clean_line(written)[:40]
    *modifiers, last = written.replace("++", "+plus").split("+") if written != "+" else ["plus"]
    modifiers = sorted({_SPELLINGS.get(word.lower(), word.lower()) for word in modifiers})
    last = _SPELLINGS.get(last.lower(), last.lower()).replace("-", "_") if last != "-" else last
    last = _CHARACTERS.get(last, last)
    for word in modifiers:
        if word not in _MODIFIERS:
            raise KeyMistake(f"{shown}: there is no such modifier{_near(word, _MODIFIERS)}")
    if last not in _KNOWN:
        raise KeyMistake(f"{shown}: there is no such key{_near(last, sorted(_KNOWN))}")
    key = "+".join([*modifiers, last])
    if last in _PLAIN and not set(modifiers) - {"shift"}:
        raise KeyMistake(f"{shown}: that types a character")
    if key in _SENT_AS:
        raise KeyMistake(f"{shown}: terminals send that as {key_name(_SENT_AS[key])}")
    return _SENT_ALSO.get(key, (key,))


def listing(actions: Iterable[Action]) -> str:
    """All actions as the `[keys]` of a config file that changes nothing."""
    rows = ["[keys]  # the keys of each action, separated by spaces"]
    rows += [f'# {entry.name} = "{" ".join(entry.keys)}"  # {entry.help}' for entry in actions]
    return "\n".join(rows)


def _near(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known), 1)
    return f", did you mean {matches[0]}?" if matches else ""


def _shown(value: Any) -> str:
    return clean_line(repr(value))[:40]
