"""Choosing colours: looked at before they are taken, and kept."""

from __future__ import annotations

import tomllib

from tinyllm_chat.tui.theme_screen import ThemeScreen


async def test_a_theme_is_seen_while_it_is_looked_at_and_saved_when_it_is_taken(open_chat, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text("# mine\n")
    async with open_chat(config=config) as chat:
        await chat.send("/theme")
        assert isinstance(chat.app.screen, ThemeScreen)
        before = chat.app.theme
        await chat.press("home")
        await chat.until(lambda: chat.app.theme == "high-contrast-dark")
        await chat.press("escape")
        assert chat.app.theme == before
        await chat.send("/theme")
        await chat.press("home", "enter")
        assert chat.app.theme == "high-contrast-dark"
        assert tomllib.loads(config.read_text())["interface"] == {"theme": "high-contrast-dark"}
        await chat.send("/theme")
        await chat.press("down", "ctrl+t")
        assert chat.app.theme == "tinyllm-dark"
        assert "high-contrast-dark" in config.read_text()
        await chat.send("/theme nord")
        assert "nord" in config.read_text()


async def test_themes_of_the_user(open_chat, tmp_path):
    folder = tmp_path / "themes"
    folder.mkdir()
    (folder / "mine.toml").write_text('primary = "#ff0000"\nmuted = "#00ff00"\n')
    (folder / "broken.toml").write_text("primary = 1\n")
    async with open_chat(settings={"theme": "mine"}, config_folder=tmp_path) as chat:
        assert chat.app.theme == "mine"
        assert chat.app.theme_variables["muted"] == "#00FF00"
        await chat.sees("primary: expected a colour")


async def test_the_choice_fits_and_shows_what_is_chosen(open_chat):
    async with open_chat(size=(60, 20), settings={"theme": "ansi-light"}) as chat:
        await chat.send("/theme")
        shown = "\n".join(chat.screen)
        assert "ansi-light" in shown
        assert "Enter take and save" in shown
