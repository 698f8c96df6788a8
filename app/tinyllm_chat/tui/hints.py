"""What stands at the foot of the screen, and the single keys that act on messages: read from the actions."""

from __future__ import annotations

from collections.abc import Sequence

from tinyllm_chat.tui.actions import ACTIONS
from tinyllm_chat.tui.registry import Action, key_name, key_names, pair_name
from tinyllm_chat.tui.widgets.bars import Hint


def hints(actions: Sequence[Action] = ACTIONS) -> list[Hint]:
    """What stands at the foot of the screen: of actions that have a key."""
    keys = {entry.name: entry.keys[0] for entry in actions if entry.keys}

    def shown(entry: Action) -> str:
        other = keys.get(entry.hint_with)
        return pair_name(keys[entry.name], other) if other else key_name(keys[entry.name])

    return [
        Hint(shown(entry), entry.hint, entry.command, entry.rank)
        for entry in actions
        if entry.hint and entry.name in keys
    ]


def message_hints() -> list[Hint]:
    """What stands there while single keys act on the selected message."""
    return [
        Hint(key_names(entry)[len(entry.keys)], entry.message_hint, entry.command, rank)
        for rank, entry in enumerate(ACTIONS)
        if entry.message_hint
    ]


def message_keys() -> dict[str, str]:
    """The action string of every key that acts on the selected message."""
    keys = {key: entry.command for entry in ACTIONS for key in entry.message_keys}
    return keys | {str(number): f"app.act('copy_code', '{number}')" for number in range(1, 10)}
