"""Presets: sampling values under a name, those of the program and the user's own."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from tinyllm_chat.chat.assets import asset
from tinyllm_chat.chat.errors import SettingsError
from tinyllm_chat.chat.settings import PRESETS_TABLE, SAMPLING_NAMES, SCHEMA, check

NONE = "none"  # what stands for no preset
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,29}")

Presets = Mapping[str, Mapping[str, Any]]  # the sampling values of each, by setting name


def load_presets(own: Mapping[str, Any], where: str, warnings: list[str]) -> Presets:
    """The program's presets and then the user's, which may replace some.

    own: the table [presets] of the config file, unchecked; where: the file. What is wrong in it is a warning.
    """
    with open(asset("presets.toml"), "rb") as file:
        built_in = tomllib.load(file)
    presets = {name: {key: check(key, value) for key, value in values.items()} for name, values in built_in.items()}
    for name, values in own.items():
        named = _NAME.fullmatch(name) is not None and name != NONE
        place = f"{where}: [{PRESETS_TABLE}.{name if named else repr(name[:40])}]"
        if not named:
            warnings.append(f"{place}: expected a name of a-z, 0-9, - and _, and not {NONE} (not used)")
        elif not isinstance(values, dict):
            warnings.append(f"{place}: expected a table of sampling values (not used)")
        else:
            presets[name] = _checked(values, place, warnings)
    return presets


def _checked(values: Mapping[str, Any], place: str, warnings: list[str]) -> dict[str, Any]:
    checked = {}
    for key, value in values.items():
        try:
            checked[key] = check(key, value)
        except SettingsError as error:
            warnings.append(f"{place} {error} (not used)")
            continue
        if key not in SAMPLING_NAMES:
            warnings.append(
                f"{place} {key}: it belongs under [{SCHEMA[key].table}], it is no sampling value (not used)"
            )
            del checked[key]
    return checked


def find_preset(presets: Presets, name: str) -> str | None:
    """The preset of that name; None for NONE. Raises SettingsError with the nearest names."""
    wanted = name.strip().lower()
    if wanted == NONE:
        return None
    if wanted in presets:
        return wanted
    near = difflib.get_close_matches(wanted, [*presets, NONE], 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join([*presets, NONE])}"
    raise SettingsError(f"there is no preset {name[:40]!r}: {hint}")
