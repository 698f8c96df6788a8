"""JSON that keeps the marks: the text of `json.dumps`, with strings in it that still know where they came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tinyllm_engine.chat_template.marked_text import MarkedText, marks_of, plain


@dataclass(frozen=True)
class JsonStyle:
    """The arguments of `json.dumps` of the same names; indent: what stands for one level, None for a single line."""

    ensure_ascii: bool = False
    indent: str | None = None
    item_separator: str = ", "
    key_separator: str = ": "
    sort_keys: bool = False


def json_parts(value: Any, style: JsonStyle, level: int = 0) -> Iterator[str]:
    """Pieces of the text, in order. TypeError for what JSON cannot say, as from `json.dumps`."""
    if isinstance(value, str):
        yield _quoted(value, style)
    elif isinstance(value, Mapping):
        yield "{"
        for number, key in enumerate(sorted(value) if style.sort_keys else value):
            yield _lead(style, number, level + 1)
            yield _key(key, style)
            yield style.key_separator
            yield from json_parts(value[key], style, level + 1)
        yield _new_line(style, level) + "}" if value else "}"
    elif isinstance(value, (list, tuple)):
        yield "["
        for number, item in enumerate(value):
            yield _lead(style, number, level + 1)
            yield from json_parts(item, style, level + 1)
        yield _new_line(style, level) + "]" if value else "]"
    else:
        yield json.dumps(value)


def _lead(style: JsonStyle, number: int, level: int) -> str:
    """What comes before the item of this number."""
    return (style.item_separator if number else "") + _new_line(style, level)


def _new_line(style: JsonStyle, level: int) -> str:
    return "" if style.indent is None else "\n" + style.indent * level


def _key(key: Any, style: JsonStyle) -> str:
    if isinstance(key, str):
        return _quoted(key, style)
    if key is None or isinstance(key, (bool, int, float)):
        return f'"{json.dumps(key)}"'
    raise TypeError(f"keys must be str, int, float, bool or None, not {type(key).__name__}")


def _quoted(text: str, style: JsonStyle) -> MarkedText:
    """The quotes are the template's, what is between them is not. Characters are escaped one by one, so runs can be."""
    parts = ['"']
    start = 0
    for mark, run in groupby(marks_of(text)):
        stop = start + len(list(run))
        escaped = json.dumps(plain(text)[start:stop], ensure_ascii=style.ensure_ascii)[1:-1]
        parts.append(MarkedText(escaped, mark * len(escaped)))
        start = stop
    return MarkedText().join([*parts, '"'])
