"""Writes the tables of docs/guide.md that are made from the program: its settings, keys and commands.

python scripts/guide_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tinyllm_chat.chat.settings import SCHEMA, TABLES, Setting
from tinyllm_chat.tui.actions import ACTIONS
from tinyllm_chat.tui.registry import GROUPS, key_names

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
_TABLE = re.compile(r"(<!-- table: ([a-z ]+) -->\n)(?:\|.*\n)*")


def filled(text: str) -> str:
    """The text with a fresh table behind each line `<!-- table: NAME -->`. Raises KeyError for another name."""
    made = {name: "".join(f"{line}\n" for line in lines) for name, lines in tables()}
    return _TABLE.sub(lambda match: match[1] + made[match[2]], text)


def tables() -> Iterator[tuple[str, list[str]]]:
    """Every table by its name: those of config.toml, and all that can be done with its keys and commands."""
    for name in TABLES:
        rows = [_setting_row(setting) for setting in SCHEMA.values() if setting.table == name]
        yield name, _table(("name", "what it is", "default", "range"), rows)
    yield "actions", _table(("keys", "command", ""), _action_rows())


def _action_rows() -> Iterator[Sequence[str]]:
    for group in GROUPS:
        yield "", "", f"**{group}**"
        for entry in ACTIONS:
            if entry.group == group:
                yield "  ".join(key_names(entry)), _code(entry.usage), entry.help


def _setting_row(setting: Setting) -> Sequence[str]:
    default = setting.default
    value = ", ".join(map(_value, default)) or "none" if isinstance(default, tuple) else _value(default)
    if setting.choices:
        allowed = ", ".join(map(_code, setting.choices))
    elif setting.range is not None:
        allowed = f"{_number(setting.range[0])} to {_number(setting.range[1])}"
    else:
        allowed = {bool: "`true`, `false`", tuple: "texts"}.get(type(default), "a text")
    return _code(setting.name), setting.help, value, allowed


def _value(value: object) -> str:
    if isinstance(value, str):
        return _code(value.replace("\n", "\\n")) or "empty"
    return _code(str(value).lower())


def _number(value: float) -> str:
    """Limits of whole numbers as powers of two."""
    bits = int(value + 1).bit_length() - 1
    return str(value) if value < 2**31 - 1 else f"2^{bits}" if value == 2**bits else f"2^{bits} - 1"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


if __name__ == "__main__":
    GUIDE.write_text(filled(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
