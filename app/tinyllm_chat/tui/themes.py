"""The program's own colours: quiet grounds and one accent. Textual's themes can be chosen beside them."""

from __future__ import annotations

from textual.theme import Theme

DEFAULT = "tinyllm-dark"

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
    ),
)
