"""Which way a text takes to the clipboard, and what is said of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import pytest
from tinyllm_chat.tui.clipboard import OSC_LIMIT, Clipboard

SSH = {"SSH_CONNECTION": "1 2 3 4"}


class World:
    """Programs that exist, those that fail, and what happened."""

    def __init__(self, env: Mapping[str, str], programs: Sequence[str] = (), failing: Sequence[str] = (), **more: str):
        self.written: list[str] = []
        self.ran: list[tuple[list[str], bytes]] = []
        self.failing = failing
        self.clipboard = Clipboard(
            self.written.append,
            env,
            which=lambda name: name if name in programs else None,
            run=self.run,
            **({"platform": "linux"} | more),
        )

    def run(self, command: Sequence[str], data: bytes) -> bool:
        self.ran.append(([*command], data))
        return command[0] not in self.failing


@pytest.mark.parametrize(
    ("env", "platform", "program", "said"),
    [
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "linux", "wl-copy", "copied with wl-copy"),
        ({"DISPLAY": ":0"}, "linux", "xclip", "copied with xclip"),
        ({}, "darwin", "pbcopy", "copied with pbcopy"),
        ({}, "win32", "clip.exe", "copied with clip.exe"),
        ({"WSL_DISTRO_NAME": "Debian"}, "linux", "clip.exe", "copied with clip.exe"),
        ({"TMUX": "/tmp/tmux,1,0", **SSH}, "linux", "tmux", "given to tmux, which passes it to the terminal"),
        ({"TMUX": "/tmp/tmux,1,0", "DISPLAY": ":0"}, "linux", "xclip", "copied with xclip"),
    ],
)
def test_the_program_of_the_system_takes_it(env: dict[str, str], platform: str, program: str, said: str) -> None:
    world = World(env, ["wl-copy", "xclip", "xsel", "pbcopy", "clip.exe", "tmux"], platform=platform)
    assert world.clipboard.copy("grün").how == said
    ((command, data),) = world.ran
    assert command[0] == program
    assert data.decode("utf-16-le" if program == "clip.exe" else "utf-8") == "grün"
    assert world.written == []


def test_without_a_program_the_terminal_is_asked() -> None:
    world = World({"DISPLAY": ":0"})
    assert world.clipboard.copy("grün").how == "sent to the terminal"
    assert world.written == [f"\x1b]52;c;{base64.b64encode('grün'.encode()).decode()}\x07"]


def test_a_program_that_fails_is_followed_by_the_next() -> None:
    world = World({"DISPLAY": ":0"}, ["xclip", "xsel"], ["xclip"])
    assert world.clipboard.copy("a").how == "copied with xsel"
    world = World({"DISPLAY": ":0"}, ["xclip", "xsel"], ["xclip", "xsel"])
    assert world.clipboard.copy("a").how == "sent to the terminal"


def test_over_ssh_the_programs_of_that_machine_are_not_used() -> None:
    world = World({"DISPLAY": "localhost:10.0", **SSH}, ["xclip"])
    assert world.clipboard.copy("a").how == "sent to the terminal"
    assert world.ran == []


def test_multiplexers_get_it_wrapped() -> None:
    plain = "\x1b]52;c;YQ==\x07"
    world = World({"TMUX": "x"}, ["tmux"], ["tmux"])
    world.clipboard.copy("a")
    assert world.written == [f"{plain}\x1bPtmux;\x1b{plain}\x1b\\"]
    world = World({"STY": "x"})
    world.clipboard.copy("a")
    assert world.written == [f"\x1bP{plain}\x1b\\"]
    world.clipboard.copy("a" * 1000)
    assert world.written[1].count("\x1bP") == 3


def test_what_terminals_would_cut_is_refused() -> None:
    world = World({})
    assert world.clipboard.copy("a" * OSC_LIMIT).done
    copied = world.clipboard.copy("a" * (OSC_LIMIT + 1))
    assert not copied.done
    assert copied.how == "not copied: 74,995 bytes are more than terminals take (74,994); /save writes a file"
    assert len(world.written) == 1
    assert World({"DISPLAY": ":0"}, ["xclip"]).clipboard.copy("a" * 10**6).how == "copied with xclip"


def test_half_characters_are_no_obstacle() -> None:
    assert World({}).clipboard.copy("a\ud800").done
