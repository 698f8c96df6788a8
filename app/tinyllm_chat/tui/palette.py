"""The command palette: every action by name, each with its keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from tinyllm_chat.tui.registry import Action, key_names

if TYPE_CHECKING:
    from tinyllm_chat.tui.app import TinyLLMChatApp

NAMED = 100.0  # more than any text scores: who types the name of a command means it
_NOT_LISTED = {"palette", "newline", "send"}  # what makes no sense from inside the palette


class ActionProvider(Provider):
    async def discover(self) -> Hits:
        for entry in self._entries():
            yield DiscoveryHit(entry.help, partial(self._run, entry), help=keys_and_command(entry))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for entry in self._entries():
            score = max(map(matcher.match, (entry.help, entry.usage, *entry.slash)))
            if any(name.startswith(query.lower()) for name in entry.slash):
                score += NAMED
            if score > 0:
                shown = matcher.highlight(entry.help)
                yield Hit(score, shown, partial(self._run, entry), help=keys_and_command(entry))

    def _entries(self) -> Iterator[Action]:
        actions = cast("TinyLLMChatApp", self.app).keymap.actions
        return (entry for entry in actions if entry.name not in _NOT_LISTED)

    def _run(self, entry: Action) -> None:
        app = cast("TinyLLMChatApp", self.app)
        app.call_later(app.choose_action, entry)


def keys_and_command(entry: Action) -> str:
    keys = ", ".join(key_names(entry))
    usage = entry.usage.replace("[", r"\[")  # the palette takes it for markup
    return "   ".join(part for part in (keys, usage) if part)
