"""Text from a file or from standard input."""

from __future__ import annotations

import click

from tinyllm_chat.cli.failure import Failure

TEXT_LIMIT = 64 << 20  # bytes


def read_text(file: str) -> str:
    """The text of `file` (- is standard input): UTF-8, lines ended by \\n. Raises Failure, OSError."""
    name = "standard input" if file == "-" else file
    with click.open_file(file, "rb") as stream:
        data: bytes = stream.read(TEXT_LIMIT + 1)
    if len(data) > TEXT_LIMIT:
        raise Failure(f"{name}: more than {TEXT_LIMIT >> 20} MiB of text; no model reads that much")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failure(f"{name}: expected UTF-8 text, found byte {data[error.start]:#04x} at {error.start}") from error
    return text.replace("\r\n", "\n")
