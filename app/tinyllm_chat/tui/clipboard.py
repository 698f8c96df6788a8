"""Putting text on the clipboard, and saying truthfully which way it went.

On this machine's own desktop its clipboard program takes the text. Elsewhere - over ssh, without such a program - the
terminal is asked to (OSC 52), which does not answer: then it can only be said that the text was sent. tmux keeps such
requests from the terminal unless it is configured otherwise, so it is given the text by its own command.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

OSC_LIMIT = 74_994  # bytes of text: their base64 and the rest of the request make the 100,000 that terminals take
SCREEN_CHUNK = 500  # bytes that GNU screen passes on in one piece
SECONDS = 3.0  # that a clipboard program may take


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of a text."""

    how: str  # "copied with wl-copy", "sent to the terminal", "not copied: …"
    done: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that reads the text from its standard input."""

    name: str
    arguments: tuple[str, ...]
    said: str
    encoding: str = "utf-8"


Run = Callable[[Sequence[str], bytes], bool]


class Clipboard:
    """`write` puts a sequence on the terminal; the rest is the world, to be replaced in tests."""

    def __init__(
        self,
        write: Callable[[str], None],
        env: Mapping[str, str],
        *,
        which: Callable[[str], str | None] = shutil.which,
        run: Run | None = None,
        platform: str = sys.platform,
    ) -> None:
        self._write = write
        self._env = env
        self._which = which
        self._run = run or _run
        self._platform = platform

    @property
    def tools(self) -> list[Tool]:
        """Programs to try, the best first."""
        env, found = self._env, []
        if not (env.get("SSH_CONNECTION") or env.get("SSH_TTY")):  # else this machine's screen is not the user's
            if self._platform == "darwin":
                found.append(Tool("pbcopy", (), "copied with pbcopy"))
            if self._platform == "win32" or env.get("WSL_DISTRO_NAME"):
                found.append(Tool("clip.exe", (), "copied with clip.exe", "utf-16-le"))
            if env.get("WAYLAND_DISPLAY"):
                found.append(Tool("wl-copy", (), "copied with wl-copy"))
            if env.get("DISPLAY"):
                found.append(Tool("xclip", ("-selection", "clipboard"), "copied with xclip"))
                found.append(Tool("xsel", ("--clipboard", "--input"), "copied with xsel"))
        if env.get("TMUX"):
            found.append(Tool("tmux", ("load-buffer", "-w", "-"), "given to tmux, which passes it to the terminal"))
        return [tool for tool in found if self._which(tool.name) is not None]

    def copy(self, text: str) -> Copied:
        """Copies a text by the first way there is. May wait for a program: not for the thread of the screen."""
        for tool in self.tools:
            if self._run([tool.name, *tool.arguments], text.encode(tool.encoding, "replace")):
                return Copied(tool.said)
        return self.send(text)

    def send(self, text: str) -> Copied:
        """Asks the terminal. Returns at once."""
        data = text.encode("utf-8", "replace")
        if len(data) > OSC_LIMIT:
            limit = f"{len(data):,} bytes are more than terminals take ({OSC_LIMIT:,}); /save writes a file"
            return Copied(f"not copied: {limit}", False)
        self._write(self._wrapped(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"))
        return Copied("sent to the terminal")

    def _wrapped(self, sequence: str) -> str:
        """The request as it gets through a terminal multiplexer."""
        if self._env.get("TMUX"):
            # Both: tmux takes the first where it is set to, and passes on what is wrapped where that is allowed.
            return sequence + "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
        if self._env.get("STY"):
            chunks = [sequence[start : start + SCREEN_CHUNK] for start in range(0, len(sequence), SCREEN_CHUNK)]
            return "".join(f"\x1bP{chunk}\x1b\\" for chunk in chunks)
        return sequence


def _run(command: Sequence[str], data: bytes) -> bool:
    """Runs a clipboard program. Some stay behind and serve the text: their output must not be waited for."""
    try:
        done = subprocess.run(
            list(command),
            input=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
