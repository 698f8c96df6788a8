"""Esc is a key as soon as nothing came behind it, and never cuts a sequence in two."""

import codecs

import pytest
from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.drivers.headless_driver import HeadlessDriver
from tinyllm_chat.tui import input_parser
from tinyllm_chat.tui.input_parser import InputParser, forgiving_decoder, more_comes, use_input_parser


class Terminal:
    """Waits for nothing: the time is over at once, and is then what the parser asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, more: bool) -> None:
        self.now = 100.0
        self.waited: list[float] = []
        self._more = more
        monkeypatch.setattr(input_parser, "get_time", lambda: self.now)
        monkeypatch.setattr("textual._parser.get_time", lambda: self.now)
        self.parser = InputParser(more_comes=self.more_comes)

    def more_comes(self, seconds: float) -> bool:
        self.waited.append(seconds)
        if not self._more:
            self.now += seconds
        return self._more

    def keys(self, data: str) -> list[str]:
        return [event.key for event in self.parser.feed(data) if isinstance(event, events.Key)]


def test_esc_alone_is_a_key_after_the_time_for_more(monkeypatch):
    terminal = Terminal(monkeypatch, more=False)
    assert terminal.keys("a\x1b") == ["a", "escape"]
    assert terminal.waited == [pytest.approx(constants.ESCAPE_DELAY + input_parser.LATE)]
    assert terminal.keys("b") == ["b"]


def test_what_comes_in_pieces_stays_together(monkeypatch):
    terminal = Terminal(monkeypatch, more=True)
    assert terminal.keys("\x1b") == []
    assert terminal.keys("[") == []
    assert terminal.keys("A") == ["up"]
    assert len(terminal.waited) == 2


def test_nothing_is_waited_for_behind_whole_keys(monkeypatch):
    terminal = Terminal(monkeypatch, more=False)
    assert terminal.keys("a\x1b[A\r") == ["a", "up", "enter"]
    assert terminal.keys("") == []
    assert terminal.waited == []


def test_without_a_terminal_there_is_nothing_to_wait_for(monkeypatch):
    monkeypatch.setattr("sys.__stdin__", None)
    assert more_comes(60.0)


def test_only_a_driver_that_reads_a_terminal_is_given_it(monkeypatch):
    from textual.drivers import linux_driver

    monkeypatch.setattr(linux_driver, "XTermParser", XTermParser)
    monkeypatch.setattr(linux_driver, "getincrementaldecoder", codecs.getincrementaldecoder)
    use_input_parser(linux_driver.LinuxDriver)
    assert linux_driver.XTermParser is InputParser
    assert linux_driver.getincrementaldecoder is forgiving_decoder
    use_input_parser(HeadlessDriver)


@pytest.mark.parametrize("data", ["é 漢字 🙂".encode(), b"a\xe4b", b"\xff\xfe\x00", bytes(range(256))])
def test_bytes_that_are_no_utf_8_are_no_end(data):
    decode = forgiving_decoder("utf-8")().decode
    assert "".join(decode(bytes([byte])) for byte in data) + decode(b"", True) == data.decode(errors="replace")
