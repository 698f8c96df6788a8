"""Mistakes of the program's own: one line on the screen, a traceback in the log, and the input goes on working."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest
from textual import events
from textual.widgets import OptionList
from tinyllm_chat.chat.mishaps import describe
from tinyllm_chat.tui import actions, app, feed, history, inspector, picker, screens, settings_screen
from tinyllm_chat.tui.mishaps import QUIET_SECONDS, TOO_MANY, Mishaps
from tinyllm_chat.tui.widgets import bars, cache, lines, pane, panels, prompt, sampling, suggestions

MODULES = (app, history, inspector, picker, screens, settings_screen)
MODULES += (bars, cache, lines, pane, panels, prompt, sampling, suggestions)
HANDLERS = ("on_", "_on_", "watch_", "validate_", "render", "compose", "action_", "key_")


async def is_usable(chat: Any) -> None:
    """A question that is typed is answered."""
    chat.app._exception = None  # what tests are told of at their end
    await chat.type("")
    chat.app.prompt.focus()
    await chat.press("h", "i")
    assert chat.app.prompt.text == "hi"
    answer = await chat.ask("Are you there?")
    assert answer.content == "Hello there."
    assert chat.app.is_running


async def test_every_action_may_fail(open_chat, monkeypatch, caplog):
    def fail(*_: Any) -> None:
        raise ZeroDivisionError(f"in {name}")

    async with open_chat() as chat:
        for entry in actions.ACTIONS:
            name = entry.name
            chat.app.run_entry(replace(entry, run=fail))
            await chat.pilot.pause()
            assert any(f"ZeroDivisionError: in {name}" in toast for toast in chat.toasts)
            assert all("\n" not in toast for toast in chat.toasts)
        told = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(told) == len(actions.ACTIONS)
        assert all(record.exc_info for record in told)
        await is_usable(chat)


async def test_what_cannot_be_sent_stays_in_the_input(open_chat, monkeypatch):
    async with open_chat() as chat:
        with monkeypatch.context() as broken:
            broken.setattr(chat.session, "send", lambda *_: 1 / 0)
            await chat.send("a long question")
            assert chat.app.prompt.text == "a long question"
        assert any("ZeroDivisionError" in toast for toast in chat.toasts)
        await is_usable(chat)


def failing_once(name: str, method: Callable[..., Any], failed: list[str]) -> Callable[..., Any]:
    @wraps(method)
    def once(*arguments: Any, **options: Any) -> Any:
        if name not in failed:
            failed.append(name)
            raise ZeroDivisionError(f"in {name}")
        return method(*arguments, **options)

    return once


async def test_every_handler_may_fail(open_chat, monkeypatch, tmp_path):
    """Each of them fails the first time that it is called, all in one session."""
    failed: list[str] = []
    async with open_chat(size=(120, 40)) as chat:
        await chat.ask("Before")
        for module in MODULES:
            for owner in vars(module).values():
                if isinstance(owner, type) and owner.__module__ == module.__name__:
                    for name, method in list(vars(owner).items()):
                        if callable(method) and name.startswith(HANDLERS) and name not in ("_on_message", "on_unmount"):
                            whole = f"{owner.__name__}.{name}"
                            monkeypatch.setattr(owner, name, failing_once(whole, method, failed))
        for _ in range(2):  # what fails in another's place is called later
            for key in ("f1", "f2", "alt+s", "h"):
                await chat.pilot.press(key, "down", "x", "escape", "escape")
            for size in ((70, 20), (120, 40)):
                with suppress(ZeroDivisionError):  # the pilot lays out and draws by itself
                    await chat.pilot.resize_terminal(*size)
            with suppress(ZeroDivisionError):
                await chat.pilot.click(offset=(5, 10))
            await chat.press("escape", "escape")
            await chat.type("text")
            await chat.press("ctrl+c")
        await is_usable(chat)
        assert len(failed) > 10, failed
        assert chat.app.screen is chat.app.screen_stack[0]


async def test_every_report_of_the_backend_may_fail_to_be_shown(open_chat, monkeypatch):
    failed: list[str] = []
    async with open_chat() as chat:
        for name, method in list(vars(feed.Feed).items()):
            if callable(method) and name.startswith("_") and not name.startswith("__"):
                monkeypatch.setattr(feed.Feed, name, failing_once(name, method, failed))
        for _ in range(3):
            await chat.ask("a question")
        await is_usable(chat)
        assert "_text" in failed
        assert "_answer_ended" in failed


@pytest.mark.parametrize("name", ["_apply", "_record", "_start", "_own_file", "_after_full", "_make_room"])
async def test_every_step_of_the_session_may_fail(open_chat, monkeypatch, name):
    failed: list[str] = []
    async with open_chat() as chat:
        monkeypatch.setattr(type(chat.session), name, failing_once(name, getattr(type(chat.session), name), failed))
        await chat.send("a question")
        chat.backend.finish()
        await chat.until(lambda: failed, "the mishap")
        await chat.press("escape")
        await is_usable(chat)


async def test_an_answer_that_cannot_be_asked_for_ends_at_once(open_chat, monkeypatch):
    async with open_chat() as chat:
        with monkeypatch.context() as broken:
            broken.setattr(chat.backend, "answer", lambda *_, **__: 1 / 0)
            await chat.send("a question")
            await chat.sees("ZeroDivisionError")
        assert not chat.session.busy
        await is_usable(chat)


async def test_a_worker_may_fail(open_chat, monkeypatch):
    async with open_chat() as chat:
        chat.app.run_worker(lambda: 1 / 0, thread=True)
        await chat.until(lambda: any("ZeroDivisionError" in toast for toast in chat.toasts), "the mishap")
        await is_usable(chat)


async def test_a_timer_may_fail(open_chat):
    async with open_chat() as chat:
        chat.app.set_timer(0.001, lambda: 1 / 0)
        await chat.until(lambda: any("ZeroDivisionError" in toast for toast in chat.toasts), "the mishap")
        await is_usable(chat)


def test_the_same_mishap_is_told_once_in_a_while():
    now, told = [0.0], []
    mishaps = Mishaps(told.append, lambda: now[0])
    for now[0] in (0.0, 1.0, QUIET_SECONDS - 0.1):
        assert mishaps.survive(ValueError("again"))
    assert len(told) == 1
    now[0] = QUIET_SECONDS
    mishaps.survive(ValueError("again"))
    mishaps.survive(ValueError("another"))
    assert len(told) == 3


def test_a_mishap_that_comes_without_end_ends_the_program():
    mishaps = Mishaps(lambda text: None, lambda: 0.0)
    assert all(mishaps.survive(ValueError(str(number))) for number in range(TOO_MANY))
    assert not mishaps.survive(ValueError("one too many"))


def test_a_mishap_that_cannot_be_shown_is_logged(caplog):
    def fail(_text: str) -> None:
        raise RuntimeError("no screen")

    assert Mishaps(fail).survive(ValueError("a bug"))
    assert any(record.exc_info and "no screen" in str(record.exc_info[1]) for record in caplog.records)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "/a/file"), "/a/file: No space left on device"),
        (OSError(28, "No space left on device"), "m.gguf: No space left on device"),
        (MemoryError(), "m.gguf: not enough memory"),
        (
            ValueError("two\nlines \x1b[31m"),
            "unexpected error (details are in the log file): ValueError: two lines [31m",
        ),
    ],
)
def test_an_error_is_one_line(error, line):
    assert describe(error, "m.gguf") == line


@pytest.mark.parametrize("key", ["f1", "f12", "ctrl+p", "alt+t", "alt+d", "alt+r"])
async def test_a_sheet_that_is_closed_twice_takes_nothing_with_it(open_chat, key):
    """Two keys or clicks in a row, of which the first closes it."""
    async with open_chat(size=(100, 40)) as chat:
        await chat.ask("hello")
        await chat.press(*(["alt+s"] if key == "f1" else []), key)
        below, sheet = chat.app.screen_stack[-2:]
        sheet.dismiss(None)
        sheet.dismiss(None)
        await chat.until(lambda: chat.app.screen is below)
        sheet.dismiss(None)
        await chat.pilot.pause()
        assert chat.app.screen is below


async def test_a_sheet_below_another_one_stays_until_that_is_closed(open_chat):
    async with open_chat(size=(100, 40)) as chat:
        await chat.press("alt+s")
        settings = chat.app.screen
        await chat.press("f1")
        help_screen = chat.app.screen
        settings.dismiss(None)
        await chat.pilot.pause()
        assert chat.app.screen is help_screen


async def test_a_click_on_an_entry_that_is_gone_by_then_is_no_mishap(open_chat):
    async with open_chat(size=(100, 40)) as chat:
        await chat.press("alt+s")
        settings = chat.app.screen.query_one(OptionList)
        x, y = settings.content_region.x + 2, settings.content_region.y + 5
        style = chat.app.screen.get_style_at(x, y)
        assert style.meta["option"] > 1
        settings.clear_options()
        click = events.Click(settings, 2, 5, 0, 0, 1, False, False, False, x, y, style)
        await settings._on_click(click)
