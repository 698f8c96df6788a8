"""The part of a session that holds the sampling values: presets, and what is turned while an answer is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyllm_chat.chat import settings as settings_module
from tinyllm_chat.chat.backend import Backend
from tinyllm_chat.chat.errors import SettingsError
from tinyllm_chat.chat.events import Event, Notice
from tinyllm_chat.chat.presets import NONE, Presets, find_preset
from tinyllm_chat.chat.settings import COMMAND_LINE, ENVIRONMENT, PRESET, SAMPLING_NAMES, SESSION, Settings

RANDOM = "random"  # origin of a seed that was drawn, not set


@dataclass(frozen=True, slots=True)
class SamplingValue:
    """A sampling value and where it comes from: one of `settings.ORIGINS`, or "random" for a drawn seed."""

    value: Any
    origin: str


class Sampling:
    """A part of `Session`."""

    settings: Settings
    presets: Presets
    preset: str | None  # the one in force
    seed: int | None  # used by the latest answer
    _backend: Backend
    _own_events: list[Event]

    @property
    def sampling(self) -> dict[str, SamplingValue]:
        """Every sampling value with its origin, in the order of the panel."""
        values = {name: SamplingValue(self.settings.value(name), self.settings.origin(name)) for name in SAMPLING_NAMES}
        if values["seed"].value < 0 and self.seed is not None:
            values["seed"] = SamplingValue(self.seed, RANDOM)
        return values

    def use_preset(self, name: str) -> str | None:
        """Takes the values of a preset from the next token on; what it names and was turned by hand is given up.

        NONE: no preset. Returns the one in force. Raises SettingsError.
        """
        self.preset = find_preset(self.presets, name)
        values = self.presets[self.preset] if self.preset is not None else {}
        turned = self.settings.layers.get(SESSION, {})
        kept = {name: value for name, value in turned.items() if name not in values} | {"preset": self.preset or ""}
        self.settings = self.settings.with_layer(PRESET, values).with_layer(SESSION, kept)
        self._backend.set_sampling(**self.settings.sampling())
        return self.preset

    def next_preset(self) -> str | None:
        """Takes the preset behind the present one; none after the last. Returns the one in force."""
        names = [*self.presets, NONE]
        return self.use_preset(names[(names.index(self.preset or NONE) + 1) % len(names)])

    def _start_preset(self) -> None:
        """The preset of the settings. What was typed or in the environment is stronger."""
        try:
            self.preset = find_preset(self.presets, self.settings.value("preset") or NONE)
        except SettingsError as error:
            self._own_events.append(Notice(f"preset of the settings ({self.settings.origin('preset')}): {error}"))
            self.preset = None
        layers = self.settings.layers
        given = {*layers.get(COMMAND_LINE, {}), *layers.get(ENVIRONMENT, {})}
        values = self.presets[self.preset] if self.preset is not None else {}
        self.settings = self.settings.with_layer(PRESET, {name: values[name] for name in values if name not in given})

    def set_sampling(self, name: str, value: Any) -> None:
        """Sets a sampling value from the next token on. Raises SettingsError with one line."""
        if name not in SAMPLING_NAMES:
            raise SettingsError(f"{name} is not a sampling setting")
        self.settings = self.settings.with_value(SESSION, name, value)
        self._backend.set_sampling(**{name: self.settings.value(name)})

    def nudge(self, name: str, steps: int) -> None:
        """Moves a sampling value by natural increments, clamped to its range. Raises SettingsError."""
        self.set_sampling(name, settings_module.nudge(name, self.settings.value(name), steps))
