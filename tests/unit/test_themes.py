"""Themes: those of users are checked, and high contrast is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from tinyllm_chat.tui.themes import THEMES, shades, user_themes

MINE = 'dark = false\nprimary = "#205080"\nbackground = "rgb(250,250,250)"\nmuted = "#555"\n'


def test_a_theme_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "notes.txt").write_text("no theme")
    found = user_themes(tmp_path)
    assert found.warnings == ()
    (theme,) = found.themes
    assert (theme.name, theme.dark, theme.primary, theme.background) == ("mine", False, "#205080", "#FAFAFA")
    assert theme.variables == {"muted": "#555555"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("primry = '#fff'", "primry: did you mean primary?"),
        ("primary = '#fff'\nxyzzy = 1", "xyzzy: unknown key?"),
        ("primary = 'no colour'", "primary: expected a colour like \"#7fb4ca\", found 'no colour'"),
        ("primary = 5", "primary: expected a colour"),
        ("primary = '#ffffff80'", "expected a colour that covers"),
        ("dark = 'yes'\nprimary = '#fff'", "dark: expected true or false, found 'yes'"),
        ("", "primary: expected a colour, found nothing"),
        ("primary = ", "Invalid value"),
        (b"\xff", "utf-8"),
        (b"#" * 70000, "larger than 64 KiB"),
        ("a = " + "[" * 9000, ""),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path: Path, text: str | bytes, said: str) -> None:
    (tmp_path / "bad.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    (tmp_path / "good.toml").write_text(MINE)
    found = user_themes(tmp_path)
    assert [theme.name for theme in found.themes] == ["good"]
    (warning,) = found.warnings
    assert "bad.toml: " in warning
    assert said in warning
    assert "\n" not in warning


def test_names_that_are_taken_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "nord.toml").write_text(MINE)
    assert "there is a theme nord already" in user_themes(tmp_path, ["nord"]).warnings[0]
    assert user_themes(tmp_path / "none").warnings == ()


@pytest.mark.parametrize("theme", [theme for theme in THEMES if "contrast" in theme.name], ids=lambda theme: theme.name)
def test_high_contrast_is_seven_to_one(theme) -> None:
    texts = [theme.foreground, theme.primary, theme.warning, theme.error, theme.success, *theme.variables.values()]
    for ground in (theme.background, theme.surface):
        for text in texts:
            assert contrast(Color.parse(text), Color.parse(ground)) >= 7, (text, ground)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_explanations_can_be_read_in_every_theme(theme) -> None:
    muted = Color.parse((shades(theme) | theme.variables)["muted"])
    ground = Color.parse(theme.background)
    assert contrast(ground.blend(muted, muted.a), ground) >= 4.5


def contrast(first: Color, second: Color) -> float:
    """By the definition of WCAG 2."""

    def luminance(colour: Color) -> float:
        parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)
