"""Colours: the program's own themes, beside those of Textual, and themes that users write.

A theme of a user is a file NAME.toml in the folder `themes` beside config.toml. `primary` has to be there, everything
else is worked out from it:

    dark = true
    primary = "#7fb4ca"
    background = "#181a1f"
    muted = "#a0a0a0"
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from tinyllm_chat.chat.errors import reason_of
from tinyllm_chat.chat.files import read_file
from tinyllm_chat.tui.text import clean_line

DEFAULT = "tinyllm-dark"
FILE_LIMIT = 1 << 16  # bytes of a theme
MOST_FILES = 200
MUTED_SHARE, FAINT_SHARE = 0.6, 0.3  # of the foreground, where a theme does not say what explains and what is off

_COLOURS = (
    *("primary", "secondary", "accent", "foreground", "background", "surface", "panel"),
    *("warning", "error", "success"),
)
_VARIABLES = ("muted", "faint")
_KEYS = ("dark", *_COLOURS, *_VARIABLES)

THEMES = (
    Theme(
        name="tinyllm-dark",
        primary="#7fb4ca",
        secondary="#8a9a7b",
        accent="#7fb4ca",
        warning="#dca561",
        error="#e46876",
        success="#98bb6c",
        foreground="#d5d6d2",
        background="#181a1f",
        surface="#1f2228",
        panel="#272b33",
        dark=True,
    ),
    Theme(
        name="tinyllm-light",
        primary="#1f6f8b",
        secondary="#5f7a4b",
        accent="#1f6f8b",
        warning="#9a5f00",
        error="#b3263c",
        success="#3f7a2a",
        foreground="#2b2e33",
        background="#faf9f6",
        surface="#f1f0ec",
        panel="#e6e4df",
        dark=False,
        variables={"muted": "#2b2e33b2"},  # less is hard to read on a light ground
    ),
    # Every text, also what explains and what is off, stands out from its ground by at least 7 to 1.
    Theme(
        name="high-contrast-dark",
        primary="#5cd6ff",
        secondary="#b8f28c",
        accent="#ffe14d",
        warning="#ffc14d",
        error="#ff8f8f",
        success="#8cff8c",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#262626",
        dark=True,
        variables={"muted": "#e0e0e0", "faint": "#b8b8b8"},
    ),
    Theme(
        name="high-contrast-light",
        primary="#003d80",
        secondary="#1f4d00",
        accent="#5c0080",
        warning="#663300",
        error="#800000",
        success="#004d00",
        foreground="#000000",
        background="#ffffff",
        surface="#ffffff",
        panel="#e6e6e6",
        dark=False,
        variables={"muted": "#262626", "faint": "#4d4d4d"},
    ),
)


def shades(theme: Theme) -> dict[str, str]:
    """Our own variables, for themes that do not define them."""
    if theme.ansi:
        return dict.fromkeys(_VARIABLES, "ansi_default")
    foreground = Color.parse(theme.to_color_system().generate()["foreground"])
    shares = (MUTED_SHARE, FAINT_SHARE)
    return {name: foreground.with_alpha(share).hex for name, share in zip(_VARIABLES, shares, strict=True)}


@dataclass(frozen=True, slots=True)
class UserThemes:
    """What was found in the themes folder, and what was wrong there: one line each."""

    themes: tuple[Theme, ...] = ()
    warnings: tuple[str, ...] = ()


class ThemeMistake(ValueError):
    """A theme that cannot be used; the message is one line."""


def user_themes(folder: Path, taken: Iterable[str] = ()) -> UserThemes:
    """The themes in `folder`, none where there is no such folder. `taken`: names that are others' already."""
    themes, warnings = [], []
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".toml")[:MOST_FILES]
    except OSError:
        return UserThemes()
    names = set(taken)
    for path in files:
        try:
            if path.stem in names:
                raise ThemeMistake(f"there is a theme {clean_line(path.stem)} already: give the file another name")
            themes.append(_theme(path))
        except ThemeMistake as error:
            warnings.append(f"{clean_line(str(path))}: {error} (not used)")
    return UserThemes(tuple(themes), tuple(warnings))


def _theme(path: Path) -> Theme:
    """Raises ThemeMistake."""
    entries = _entries(path)
    for key in entries:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            raise ThemeMistake(f"{clean_line(key)[:40]}: {'did you mean ' + near[0] if near else 'unknown key'}?")
    if not isinstance(dark := entries.pop("dark", True), bool):
        raise ThemeMistake(f"dark: expected true or false, found {_shown(dark)}")
    if "primary" not in entries:
        raise ThemeMistake("primary: expected a colour, found nothing")
    colours: dict[str, Any] = {key: _colour(key, value) for key, value in entries.items()}
    variables = {key: colours.pop(key) for key in _VARIABLES if key in colours}
    return Theme(name=path.stem, dark=dark, variables=variables, **colours)


def _entries(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(path, FILE_LIMIT).decode("utf-8-sig"))
    except OSError as error:
        raise ThemeMistake(f"cannot be read: {reason_of(error)}") from error
    except RecursionError as error:
        raise ThemeMistake("nested too deeply") from error
    except ValueError as error:
        raise ThemeMistake(clean_line(str(error))) from error


def _colour(key: str, value: Any) -> str:
    try:
        if not isinstance(value, str):
            raise ColorParseError("no text")
        colour = Color.parse(value)
    except ColorParseError as error:
        raise ThemeMistake(f'{key}: expected a colour like "#7fb4ca", found {_shown(value)}') from error
    if colour.a < 1:
        raise ThemeMistake(f"{key}: expected a colour that covers what is below, found {_shown(value)}")
    return colour.hex if colour.ansi is None else value


def _shown(value: Any) -> str:
    return clean_line(repr(value))[:40]
