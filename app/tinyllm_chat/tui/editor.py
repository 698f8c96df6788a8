"""The user's own editor for a text: the screen steps aside until it ends."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from textual.app import SuspendNotSupported

from tinyllm_chat.chat.errors import ChatError, reason_of

USUAL = ("nano", "vi", "notepad.exe")  # tried where none is named
FILE_LIMIT = 16 << 20  # bytes


class EditorError(ChatError):
    """The editor could not be used; the text is what it was."""


def editor_command(env: Mapping[str, str], which: Callable[[str], str | None] = shutil.which) -> list[str]:
    """$VISUAL, else $EDITOR, else a usual one. Raises EditorError."""
    for variable in ("VISUAL", "EDITOR"):
        if named := env.get(variable, "").strip():
            try:
                return shlex.split(named, posix=sys.platform != "win32")
            except ValueError as error:
                raise EditorError(f"${variable} is {named!r}, which cannot be understood: {error}") from error
    for name in USUAL:
        if which(name) is not None:
            return [name]
    raise EditorError("no editor is set: name one in $VISUAL or $EDITOR")


def edited(
    text: str, suspended: Callable[[], AbstractContextManager[None]], env: Mapping[str, str] = os.environ
) -> str:
    """Has the user edit a text. `suspended` gives the terminal away as long as it lasts. Raises EditorError."""
    command = editor_command(env)
    with tempfile.TemporaryDirectory(prefix="tinyllm-chat-") as folder:  # which only the user can enter
        path = Path(folder) / "message.md"
        path.write_bytes(text.encode("utf-8", "replace"))
        try:
            with suspended():
                # Descriptor 2 is the log file while the screen stands.
                code = subprocess.run([*command, str(path)], stderr=_terminal(), check=False).returncode
        except SuspendNotSupported as error:
            raise EditorError("this terminal cannot be given to an editor") from error
        except OSError as error:
            raise EditorError(f"{command[0]}: cannot be started: {reason_of(error)}") from error
        if code:
            raise EditorError(f"{command[0]} ended with code {code}: the text stays as it was")
        return _read(path)


def _terminal() -> int | None:
    try:
        return sys.__stderr__.fileno() if sys.__stderr__ is not None else None
    except (OSError, ValueError):
        return None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_LIMIT:
            raise EditorError(f"what the editor left is larger than {FILE_LIMIT >> 20} MiB")
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise EditorError("what the editor left is no UTF-8 text") from error
    except OSError as error:
        raise EditorError(f"what the editor left cannot be read: {reason_of(error)}") from error
