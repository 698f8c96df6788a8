"""Files that a message names with @: found in its text, completed while it is typed, read when it is sent."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tinyllm_chat.chat.conversation import Attachment
from tinyllm_chat.chat.errors import ChatError, reason_of

LIMIT = 1_000_000  # bytes of one file
LOOKED_AT = 5000  # entries of a folder that a completion looks at
OFFERED = 100
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_UNFINISHED = re.compile(r'(?<!\S)@(?:"([^"\n]*)|([^\s"]*))\Z')
_PUNCTUATION = ".,;:!?)]}'\""


class AttachingError(ChatError):
    """A file that cannot go with a message; the message is one line."""


def attachments(text: str, folder: Path, known: Sequence[Attachment] = ()) -> tuple[Attachment, ...]:
    """The files that `text` names, read; a name of no file is text. `known` stand in for files that are gone.

    Raises AttachingError for what is no text, too large or not readable.
    """
    earlier = {attachment.name: attachment for attachment in known}
    found: dict[str, Attachment] = {}
    for name in mentioned(text, folder, earlier):
        path = _path(name, folder)
        found[name] = read(name, path) if path.exists() or name not in earlier else earlier[name]
    return tuple(found.values())


def named(text: str, files: Sequence[Attachment]) -> tuple[Attachment, ...]:
    """Those of `files` that a text still names."""
    return tuple(each for each in files if f"@{each.name}" in text or f'@"{each.name}"' in text)


def mentioned(text: str, folder: Path, known: Sequence[str] | dict[str, Attachment] = ()) -> list[str]:
    """Names in `text` that are those of files; a word like @someone is none."""
    names = []
    for match in _MENTION.finditer(text):
        quoted, word = match.groups()
        # A sentence may go on or end behind the name.
        for name in [quoted] if quoted is not None else [word, word.rstrip(_PUNCTUATION)]:
            if name and name not in names and (name in known or _is_there(_path(name, folder))):
                names.append(name)
                break
    return names


def read(name: str, path: Path) -> Attachment:
    """Raises AttachingError."""
    try:
        if not path.is_file():
            raise AttachingError(f"{name}: not attached: it is no regular file")
        with open(path, "rb") as file:
            data = file.read(LIMIT + 1)
    except (OSError, ValueError) as error:
        raise AttachingError(f"{name}: not attached: {reason_of(error)}") from error
    if len(data) > LIMIT:
        raise AttachingError(f"{name}: not attached: it is larger than {LIMIT:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttachingError(f"{name}: not attached: it is no UTF-8 text") from error
    if "\0" in text:
        raise AttachingError(f"{name}: not attached: it is binary")
    return Attachment(name, text.replace("\r\n", "\n"))


def unfinished(text: str) -> str | None:
    """The name that is being typed at the end of `text`; None if none is."""
    match = _UNFINISHED.search(text)
    if match is None:
        return None
    quoted, word = match.groups()
    return quoted if quoted is not None else word


def completions(name: str, folder: Path) -> list[str]:
    """Files and folders (with a slash) that begin as `name` does. Hidden ones only when asked for."""
    head, tail = os.path.split(name)
    try:
        with os.scandir(_path(head, folder)) as entries:
            found = [
                os.path.join(head, entry.name) + ("/" if entry.is_dir() else "")
                for entry in islice(entries, LOOKED_AT)
                if entry.name.lower().startswith(tail.lower())
                and entry.name.startswith(".") == tail.startswith(".")
                and entry.name.isprintable()
                and '"' not in entry.name
            ]
    except (OSError, ValueError):
        return []
    return sorted(found, key=lambda path: (not path.endswith("/"), path.lower()))[:OFFERED]


def completed(text: str, name: str) -> str:
    """`text` with the name being typed at its end replaced by `name`."""
    match = _UNFINISHED.search(text)
    start = match.start() if match is not None else len(text)
    written = f'@"{name}' if any(character.isspace() for character in name) else f"@{name}"
    if not name.endswith("/"):
        written += '" ' if written.startswith('@"') else " "
    return text[:start] + written


def _path(name: str, folder: Path) -> Path:
    return folder / os.path.expanduser(name)


def _is_there(path: Path) -> bool:
    """A file, or something else that was surely meant: folders are words, too."""
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):
        return False
