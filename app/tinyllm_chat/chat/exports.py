"""Chats written as documents, and read from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.errors import ExportError, reason_of
from tinyllm_chat.chat.files import open_regular, write_atomically
from tinyllm_chat.chat.interchange import from_json, to_json
from tinyllm_chat.chat.markdown import file_stem, from_markdown, to_markdown
from tinyllm_chat.chat.webpage import to_html

LARGEST = 1 << 26  # bytes of a document that is read
FORMATS: dict[str, Callable[[Conversation], str]] = {"md": to_markdown, "html": to_html, "json": to_json}
_ENDINGS = {"markdown": "md", "htm": "html", **{name: name for name in FORMATS}}


def document(conversation: Conversation, format: str) -> bytes:
    """The chat in one of FORMATS. Raises ExportError."""
    if format not in FORMATS:
        raise ExportError(f"{format!r} is no format of a document: one of {', '.join(FORMATS)} is")
    if conversation.leaf is None:
        raise ExportError("there is nothing to save yet")
    return FORMATS[format](conversation).encode("utf-8", "replace")


def export(conversation: Conversation, path: Path, format: str | None = None) -> None:
    """Writes a chat, private to the user; `format` None: as the file's name says. Raises ExportError."""
    data = document(conversation, format or format_of(path))
    try:
        if path.exists() and not path.is_file():  # a device would be a file from now on
            raise ValueError("it is there, and no regular file")
        write_atomically(path, data)
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: cannot be written: {reason_of(error)}") from error


def format_of(path: Path) -> str:
    """The format that a file's name says; Markdown where it says none."""
    return _ENDINGS.get(path.suffix.removeprefix(".").lower(), "md")


def file_name(conversation: Conversation, format: str) -> str:
    return f"{file_stem(conversation)}.{format}"


def read_document(path: Path) -> tuple[Conversation, list[str]]:
    """The chat in a document that `export` wrote, and warnings in one line each. Raises ExportError."""
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"it has more than {LARGEST / 1e6:.0f} MB")
        if data.lstrip()[:1] in (b"{", b"["):
            return from_json(data, path.name)
        if data.lstrip()[:1] == b"<":
            raise ValueError("web pages are only written; JSON and Markdown can be read again")
        return from_markdown(data.decode("utf-8-sig")), []
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        if isinstance(error, UnicodeDecodeError):
            reason = f"it is no text in UTF-8, at byte {error.start}"
        raise ExportError(f"{path}: no chat can be read from it: {reason}") from error
