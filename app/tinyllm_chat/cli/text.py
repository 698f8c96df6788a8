"""Text of models, files and errors made safe to print on a terminal."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from typing import Any

import click

# C0 without tab and newline, DEL, C1, the bidirectional overrides, and lone surrogates (undecodable bytes of a file).
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text without the characters that steer a terminal; newlines and tabs stay."""
    return _UNPRINTABLE.sub("", text)


def one_line(text: str) -> str:
    """The text on one line, safe to print."""
    return printable(" ".join(text.split()))


def size(nbytes: float) -> str:
    """A number of bytes in decimal units, as file listings and download pages give it: 98.4 MB."""
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.4g} TB"


def put_out(data: str | bytes | os.PathLike[str], nl: bool = True) -> None:
    """Writes what others made on standard output: harmless to a terminal, to a pipe or a file byte for byte."""
    raw = data if isinstance(data, bytes) else os.fsencode(data)
    click.echo(printable(raw.decode("utf-8", "replace")) if is_terminal() else raw, nl=nl)


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def print_json(value: Any) -> None:
    """One JSON object on standard output, valid whatever the values: undecodable bytes as \\ufffd, NaN as null."""
    click.echo(json.dumps(_json_value(value), indent=2))


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {_json_value(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
