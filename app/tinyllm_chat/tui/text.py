"""Text that others wrote, made safe and fit for cells: of users, models, files and errors."""

from __future__ import annotations

import re

from tinyllm_chat.chat.safe_text import UNSAFE


def clean(text: str) -> str:
    """The text with every character that could steer the terminal replaced by one that shows it was there."""
    return UNSAFE.sub(_shown, text)


def sign_for_sign(text: str) -> str:
    """The same with as many characters as before, for what has a cursor in it."""
    return UNSAFE.sub(lambda match: _shown(match) or "␍", text)


def clean_line(text: str) -> str:
    """The same on one line."""
    return " ".join(clean(text).split())


def _shown(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\r":
        return ""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # control pictures: ␛ for Escape
    if code == 0x7F:
        return "␡"
    return "\ufffd"


def shorten(text: str, width: int) -> str:
    """The text cut to `width` characters, the cut marked."""
    if len(text) <= width:
        return text
    return text[: max(0, width - 1)] + "…" if width > 0 else ""


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(nbytes: float) -> str:
    """Bytes in decimal units, as file listings and download pages give them; one decimal up to 100: 98.4 MB."""
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            if unit == "B" or value >= 99.95:
                return f"{value:.0f} {unit}"
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def rate(tokens_per_second: float) -> str:
    """Tokens per second without digits nobody can read while they change."""
    if tokens_per_second <= 0:
        return "–"
    return f"{tokens_per_second:.1f}" if tokens_per_second < 9.95 else f"{tokens_per_second:.0f}"


def duration(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def sampling_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return clean_line(" ".join(repr(text)[1:-1] for text in value)) or "none"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


SHORT_NAMES = {"temperature": "t", "top_p": "p", "top_k": "k", "min_p": "min"}


def label(setting: str) -> str:
    """A setting's name as people write it: top-p, repeat penalty."""
    if setting in ("top_k", "top_p", "min_p", "typical_p"):
        return setting.replace("_", "-")
    return setting.replace("_", " ")
