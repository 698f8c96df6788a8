"""What an action is, and what is read from the list of all actions: bindings, slash commands, hints."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from textual.binding import Binding

from tinyllm_chat.tui.text import clean_line

CHAT, SAMPLING, VIEW, PROGRAM = "Chat", "Sampling", "View", "Program"
GROUPS = (CHAT, SAMPLING, VIEW, PROGRAM)

_LONG = ("/system ", "/summary ")  # commands whose argument may have several lines
_KEY_NAMES = {
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "comma": ",",
    "full_stop": ".",
}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can be done. `run` takes the object that holds the handlers, and a slash command's argument."""

    name: str
    help: str
    run: Callable[[Any, str], None]
    keys: tuple[str, ...] = ()
    slash: tuple[str, ...] = ()  # the first is the one that is shown
    argument: str = ""  # what the slash command takes: VALUE, or [VALUE] where it may be left out
    hint: str = ""  # its word at the foot of the screen
    hint_key: str = ""  # its key there, where one hint stands for two actions
    rank: int = 0  # among the hints: the lowest stay longest when there is little room
    group: str = CHAT

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
    help: str, *, keys: str = "", slash: str = "", **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a method as an action under its own name. `keys` and `slash` are lists separated by spaces."""

    def mark(method: Callable[..., Any]) -> Callable[..., Any]:
        takes_argument = bool(more.get("argument"))
        run = method if takes_argument else lambda holder, _argument: method(holder)
        entry = Action(method.__name__, help, run, tuple(keys.split()), tuple(slash.split()), **more)
        method.action = entry  # type: ignore[attr-defined]
        return method

    return mark


def actions_of(holder: type) -> tuple[Action, ...]:
    """The actions among a class's methods, in the order they are written."""
    return tuple(member.action for member in vars(holder).values() if hasattr(member, "action"))


def bindings(actions: Iterable[Action]) -> Iterator[Binding]:
    for entry in actions:
        for key in entry.keys:
            yield Binding(key, entry.command, entry.help, show=False, id=f"{entry.name}.{key}")


def commands_by_key(actions: Iterable[Action]) -> dict[str, str]:
    """The action string of every key."""
    return {key: entry.command for entry in actions for key in entry.keys}


def key_name(key: str) -> str:
    """A key as people write it: Ctrl+J, Alt+↑."""
    *modifiers, last = key.split("+")
    shown = _KEY_NAMES.get(last) or (last.upper() if len(last) <= 2 else last.capitalize())
    return "+".join([*(modifier.capitalize() for modifier in modifiers), shown])


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

    def starting_with(self, text: str) -> list[Action]:
        """What the beginning of a command may become; nothing once its argument has begun."""
        if not text.startswith("/") or text.startswith("//") or any(character.isspace() for character in text):
            return []
        word = text[1:].lower()
        return [entry for entry in self.actions if any(name.startswith(word) for name in entry.slash)]


def is_command(text: str) -> bool:
    if not text.startswith("/") or text.startswith("//"):
        return False
    return "\n" not in text.strip() or text.startswith(_LONG)
