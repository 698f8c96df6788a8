"""What an action is, and what is read from the list of all actions: bindings, slash commands, hints."""

from __future__ import annotations

import difflib
import string
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from textual.keys import KEY_NAME_REPLACEMENTS

from tinyllm_chat.chat.settings import SCHEMA, Setting
from tinyllm_chat.tui.text import clean_line

CHAT, SAMPLING, LOOK, VIEW, PROGRAM = "Chat", "Sampling", "Looking at the model", "View", "Program"
MESSAGES = "Messages (single letters act on the one that is selected)"
GROUPS = (CHAT, MESSAGES, SAMPLING, LOOK, VIEW, PROGRAM)

_LONG = ("/system ", "/summary ")  # commands whose argument may have several lines
_KEY_NAMES = {
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "delete": "Del",
}


def _key_of_character(character: str) -> str:
    name = unicodedata.name(character).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


KEY_CHARACTERS = {_key_of_character(character): character for character in string.punctuation}  # by Textual's names


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can be done. `run` takes the object that holds the handlers, and a slash command's argument."""

    name: str
    help: str
    run: Callable[[Any, str], None]
    keys: tuple[str, ...] = ()
    slash: tuple[str, ...] = ()  # the first is the one that is shown
    argument: str = ""  # what the slash command takes: VALUE, or [VALUE] where it may be left out, or its choices: a|b
    complete: Callable[[Any, str], Iterable[str]] | None = (
        None  # from the handlers and an unfinished argument: whole ones
    )
    hint: str = ""  # its word at the foot of the screen
    hint_with: str = ""  # the action that the hint stands for as well
    rank: int = 0  # among the hints: the lowest stay longest when there is little room
    group: str = CHAT
    message_keys: tuple[str, ...] = ()  # that act while a message is selected and the input is left
    message_hint: str = ""  # its word at the foot of the screen then

    @property
    def usage(self) -> str:
        return f"/{self.slash[0]} {self.argument}".rstrip() if self.slash else ""

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")

    @property
    def command(self) -> str:
        """The action string of key bindings and clicks."""
        return f"app.act({self.name!r})"


def action(
    help: str, *, keys: str = "", slash: str = "", on_message: str = "", **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a method as an action under its own name. `keys`, `slash` and `on_message` (which become `message_keys`)
    are lists separated by spaces.
    """

    def mark(method: Callable[..., Any]) -> Callable[..., Any]:
        takes_argument = bool(more.get("argument"))
        run = method if takes_argument else lambda holder, _argument: method(holder)
        entry = Action(
            method.__name__,
            help,
            run,
            tuple(keys.split()),
            tuple(slash.split()),
            message_keys=tuple(on_message.split()),
            **more,
        )
        method.action = entry  # type: ignore[attr-defined]
        return method

    return mark


def actions_of(holder: type) -> tuple[Action, ...]:
    """The actions among the methods of a class, then of those it is made of, in the order they are written."""
    members: dict[str, Any] = {}
    for part in holder.__mro__:
        members = {**members, **{name: member for name, member in vars(part).items() if name not in members}}
    return tuple(member.action for member in members.values() if hasattr(member, "action"))


def commands_by_key(actions: Iterable[Action]) -> dict[str, str]:
    """The action string of every key."""
    return {key: entry.command for entry in actions for key in entry.keys}


def key_names(entry: Action) -> list[str]:
    """All keys of an action as people write them; those that act on a selected message come last."""
    # Upper and lower case letters are two keys there.
    on_message = [key if len(key) == 1 else key_name(key) for key in entry.message_keys]
    return [*map(key_name, entry.keys), *on_message]


def key_name(key: str) -> str:
    """A key as people write it: Ctrl+J, Alt+↑."""
    *modifiers, last = key.split("+")
    shown = _KEY_NAMES.get(last) or KEY_CHARACTERS.get(last) or (last.upper() if len(last) <= 2 else last.capitalize())
    return "+".join([*(modifier.capitalize() for modifier in modifiers), shown])


def pair_name(first: str, second: str) -> str:
    """Two keys in little room: Alt+↑↓, F6/F5."""
    (start, one), (other_start, other) = (_split_name(key_name(key)) for key in (first, second))
    return (
        start + "".join(sorted(one + other))
        if start == other_start and len(one + other) == 2
        else f"{start}{one}/{other_start}{other}"
    )


def _split_name(name: str) -> tuple[str, str]:
    start, plus, last = name.rpartition("+")
    return start + plus, last


class UnknownCommand(ValueError):
    """A slash command that does not exist; the message is one line."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The slash commands. A setting's name is a command too: /top_k 20 is /set top_k 20."""

    actions: tuple[Action, ...]
    settings: tuple[str, ...]
    set_command: str = "set"

    def parse(self, text: str) -> tuple[Action, str]:
        """The action and its argument. Raises UnknownCommand."""
        word, _, argument = text.strip().removeprefix("/").partition(" ")
        word = word.lower()
        for entry in self.actions:
            if word in entry.slash:
                return entry, argument.strip()
        if word.replace("-", "_") in self.settings:
            return self.parse(f"/{self.set_command} {word.replace('-', '_')} {argument}")
        known = [name for entry in self.actions for name in entry.slash] + list(self.settings)
        near = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists all"
        raise UnknownCommand(f"there is no command /{clean_line(word)}: {hint} (a message may start with //)")

    def suggestions(self, draft: str, holder: Any) -> list[Suggestion]:
        """What the beginning of a command may become. `holder` has the actions' handlers."""
        if not is_command(draft) or "\n" in draft:
            return []
        word, space, argument = draft[1:].partition(" ")
        if not space:
            return self._commands(word.lower())
        try:
            entry, argument = self.parse(draft)
        except UnknownCommand:
            return []
        found = _whole_arguments(entry, holder, argument)
        near = [whole for whole in found if whole.lower().startswith(argument.lower())]
        if [whole.strip() for whole in near] == [argument]:
            return []
        command = word.lower() if word.lower() in entry.slash else entry.slash[0]
        return [Suggestion(f"/{command} {whole}", whole.strip()) for whole in near]

    def _commands(self, word: str) -> list[Suggestion]:
        found = [
            Suggestion(f"/{entry.slash[0]}{' ' if entry.argument else ''}", entry.usage, entry.help)
            for entry in self.actions
            if any(name.startswith(word) for name in entry.slash)
        ]
        known = {name for entry in self.actions for name in entry.slash}
        return found + [
            Suggestion(f"/{name} ", f"/{name} VALUE", SCHEMA[name].help)
            for name in self.settings
            if word and name.startswith(word.replace("-", "_")) and name not in known
        ]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a draft may become, and how that is shown."""

    text: str  # empty: it only tells something of the draft
    shown: str
    help: str = ""


def _whole_arguments(entry: Action, holder: Any, argument: str) -> Iterable[str]:
    if entry.complete is not None:
        return entry.complete(holder, argument)
    choices = entry.argument.strip("[]").split("|")
    return choices if len(choices) > 1 and entry.argument.islower() else ()


def values_of(setting: Setting) -> tuple[str, ...]:
    """The values a setting can have, where they can be counted."""
    return ("true", "false") if isinstance(setting.default, bool) else setting.choices


def is_command(text: str) -> bool:
    if not text.startswith("/") or text.startswith("//"):
        return False
    return "\n" not in text.strip() or text.startswith(_LONG)
