"""Settings: one table that says what there is, and frozen values that know where they come from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Where a value can come from, strongest first.
SESSION, COMMAND_LINE, ENVIRONMENT, CONFIG, MODEL, BUILT_IN = (
    "session",
    "command line",
    "environment",
    "config",
    "model",
    "built-in",
)
ORIGINS = (SESSION, COMMAND_LINE, ENVIRONMENT, CONFIG, MODEL, BUILT_IN)


class SettingsError(ValueError):
    """A setting that does not exist or a value that it cannot take; the message is one line."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    name: str
    table: str  # of config.toml
    type: type  # int, float, str, bool
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    step: float | None = None  # what one press of a key changes


_SETTINGS = (
    Setting("model", "model", str, "", "Model to open when none is named: a path, or a name known to `pull --list`."),
    Setting(
        "context_length", "model", int, 0, "Tokens of context; 0: as many as the model and memory allow.", 0, 2**31
    ),
    Setting("threads", "model", int, 0, "Threads that compute; 0: one for each processor core.", 0, 1024),
    Setting("cache_type", "model", str, "f16", "Number format of the KV cache.", choices=("f16", "f32")),
    Setting("max_tokens", "model", int, 0, "Longest answer in tokens; 0: no limit but the context.", 0, 2**31),
    Setting("system_prompt", "model", str, "", "What the model is told before the conversation."),
    Setting(
        "temperature", "sampling", float, 0.8, "Higher is more varied; 0 always takes the likeliest.", 0, 5, step=0.05
    ),
    Setting("top_k", "sampling", int, 40, "Keep the k likeliest tokens; 0: all.", 0, 2**20, step=5),
    Setting("top_p", "sampling", float, 0.95, "Keep the likeliest tokens that sum to p; 1: all.", 0, 1, step=0.01),
    Setting("min_p", "sampling", float, 0.05, "Drop tokens below p times the likeliest; 0: none.", 0, 1, step=0.01),
    Setting(
        "typical_p", "sampling", float, 1.0, "Keep tokens of typical surprise that sum to p; 1: all.", 0, 1, step=0.01
    ),
    Setting("repeat_penalty", "sampling", float, 1.0, "Above 1 makes repetition less likely.", 0.01, 10, step=0.05),
    Setting(
        "repeat_last_n", "sampling", int, 64, "Tokens the penalties look back; 0: none, -1: all.", -1, 2**31, step=16
    ),
    Setting("presence_penalty", "sampling", float, 0.0, "Taken off once for a token that occurred.", -10, 10, step=0.1),
    Setting(
        "frequency_penalty", "sampling", float, 0.0, "Taken off for each time a token occurred.", -10, 10, step=0.1
    ),
    Setting("seed", "sampling", int, -1, "Same seed, same answer; -1: another one each time.", -1, 2**32 - 1, step=1),
    Setting("theme", "interface", str, "", "Colour theme; empty: the program's own."),
    Setting("show_panels", "interface", bool, True, "Panels beside the chat where the terminal is wide enough."),
)
SCHEMA: dict[str, Setting] = {setting.name: setting for setting in _SETTINGS}
SAMPLING_NAMES = tuple(setting.name for setting in _SETTINGS if setting.table == "sampling")


@dataclass(frozen=True, slots=True)
class Settings:
    """Frozen values in layers; the strongest layer that has a value wins."""

    layers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        return self._find(name)[0]

    def origin(self, name: str) -> str:
        return self._find(name)[1]

    def sampling(self) -> dict[str, Any]:
        """All sampling values by name."""
        return {name: self.value(name) for name in SAMPLING_NAMES}

    def with_layer(self, origin: str, values: Mapping[str, Any]) -> Settings:
        """A copy in which exactly `values` come from `origin`. Raises SettingsError for a value that is not valid."""
        checked = {name: check(name, value) for name, value in values.items()}
        return Settings({**self.layers, origin: checked})

    def with_value(self, origin: str, name: str, value: Any) -> Settings:
        """A copy with one more value from `origin`. Raises SettingsError."""
        return self.with_layer(origin, {**self.layers.get(origin, {}), name: value})

    def _find(self, name: str) -> tuple[Any, str]:
        for origin in ORIGINS:
            layer = self.layers.get(origin, {})
            if name in layer:
                return layer[name], origin
        return SCHEMA[name].default, BUILT_IN


def check(name: str, value: Any) -> Any:
    """`value` as the setting's type. Raises SettingsError with one line."""
    setting = SCHEMA.get(name)
    if setting is None:
        raise SettingsError(f"there is no setting {name!r}")
    if setting.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not setting.type:  # bool is an int to isinstance
        raise SettingsError(f"{name} is {value!r}, expected {setting.type.__name__}")
    if setting.choices and value not in setting.choices:
        raise SettingsError(f"{name} is {value!r}, expected one of {', '.join(setting.choices)}")
    if setting.minimum is not None and setting.maximum is not None:
        in_range = math.isfinite(value) and setting.minimum <= value <= setting.maximum
        if not in_range:
            raise SettingsError(f"{name} is {value!r}, expected {setting.minimum} to {setting.maximum}")
    return value


def nudge(name: str, value: Any, steps: int) -> Any:
    """`value` moved by `steps` natural increments and clamped to its range. Raises SettingsError if it has none."""
    setting = SCHEMA.get(name)
    if setting is None or setting.step is None or setting.minimum is None or setting.maximum is None:
        raise SettingsError(f"{name} cannot be turned up or down")
    moved = min(max(value + steps * setting.step, setting.minimum), setting.maximum)
    # 0.1 + 0.2 shall read 0.3: the increments have two decimals.
    return round(float(moved), 4) if setting.type is float else int(moved)
