"""Text of models, files and errors made safe to print on a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

import click

from tinyllm_chat.chat.safe_text import printable


def one_line(text: str) -> str:
    """The text on one line, safe to print."""
    return printable(" ".join(text.split()))


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
