"""The chat in a browser: what is refused, and what is said where the extra is missing."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner
from tinyllm_chat.cli.program import program
from tinyllm_chat.cli.serve import is_loopback, is_own

URL = "http://127.0.0.1:8000"


def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    result = CliRunner().invoke(program, ["serve", "smollm2", "--temp", "0"])
    assert result.exit_code == 1
    assert result.output == "tinyllm-chat: the browser needs an extra package: pip install textual-serve\n"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost")],
        *[(host, False) for host in ("0.0.0.0", "::", "192.168.1.5", "example.org", "localhost.evil")],
    ],
)
def test_only_this_machine_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("host", "origin", "own"),
    [
        ("127.0.0.1:8000", None, True),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("127.0.0.1:8000", "http://localhost:8000", True),
        ("localhost:8000", "http://localhost:8000", True),
        ("[::1]:8000", "http://[::1]:8000", True),
        ("127.0.0.1:8000", "http://evil.example", False),
        ("127.0.0.1:8000", "http://localhost:3000", False),
        ("127.0.0.1:8000", "null", False),
        ("evil.example:8000", "http://evil.example:8000", False),
        ("evil.example:8000", None, False),
    ],
)
def test_pages_of_others_are_refused_on_this_machine(host: str, origin: str | None, own: bool) -> None:
    assert is_own(True, URL, host, origin) is own


@pytest.mark.parametrize(
    ("host", "origin", "own"),
    [
        ("box:8000", "http://box:8000", True),
        ("10.0.0.2:8000", "http://10.0.0.2:8000", True),
        ("box:8000", "http://evil.example", False),
        ("box:8000", "http://localhost:8000", False),
    ],
)
def test_pages_of_others_are_refused_in_a_network(host: str, origin: str, own: bool) -> None:
    assert is_own(False, "http://box:8000", host, origin) is own
