"""The part of a session that sets any setting: for as long as it lasts, or in the config file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tinyllm_chat.chat import settings as settings_module
from tinyllm_chat.chat.config_file import ConfigChanged, write_setting
from tinyllm_chat.chat.errors import SettingsError
from tinyllm_chat.chat.presets import NONE
from tinyllm_chat.chat.sampled import Sampling
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SESSION


class SessionSettings(Sampling):
    """A part of `Session`."""

    _config: Path | None  # the file that settings are saved to

    def set_setting(self, name: str, value: Any) -> None:
        """Sets any setting for as long as this session lasts. Raises SettingsError with one line."""
        if name in SAMPLING_NAMES:
            self.set_sampling(name, value)
        elif name == "preset":
            self.use_preset(settings_module.check(name, value) or NONE)
        else:
            self.settings = self.settings.with_value(SESSION, name, value)

    @property
    def keeps_settings(self) -> bool:
        """There is a config file to save to."""
        return self._config is not None

    def save_setting(self, name: str, value: Any) -> None:
        """Writes a setting into the config file; None takes it out. Raises SettingsError, ConfigChanged.

        It is no longer the session's own then. After ConfigChanged the file's new value is in force.
        """
        if self._config is None:
            raise SettingsError("there is no config file to save to")
        if value is not None:
            value = settings_module.check(name, value)
        seen = self.settings.layers.get(settings_module.CONFIG, {}).get(name)
        try:
            write_setting(self._config, name, value, seen)
        except ConfigChanged as changed:
            self._take_saved(name, changed.value)
            raise
        self._take_saved(name, value)

    def forget_setting(self, name: str) -> None:
        """Goes back to what holds where this session has not set it."""
        self.settings = self.settings.without_value(SESSION, name)
        if name in SAMPLING_NAMES:
            self._backend.set_sampling(**{name: self.settings.value(name)})
        elif name == "preset":
            self._start_preset()
            self._backend.set_sampling(**self.settings.sampling())

    def set_think(self, value: str) -> None:
        """Shall the model reason before it answers: on, off, auto; from the next answer on. Raises SettingsError."""
        self.settings = self.settings.with_value(SESSION, "think", value)

    def _take_saved(self, name: str, value: Any) -> None:
        if value is None:
            self.settings = self.settings.without_value(settings_module.CONFIG, name)
        else:
            self.settings = self.settings.with_value(settings_module.CONFIG, name, value)
        self.forget_setting(name)
