"""What the screen looks like, as pictures. After a change that is wanted, run this with --snapshot-update."""

from __future__ import annotations

import time
from importlib.metadata import version

import pytest
from support.chat_driver import MODEL, Chat
from textual.widgets import Input, OptionList
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.tui import details
from tinyllm_chat.tui.app import TinyLLMChatApp
from tinyllm_chat.tui.palette import ActionProvider

RECORDED_WITH = {"textual": "8.2.8", "rich": "15.0.0"}  # others may draw the same screen as another picture

pytestmark = pytest.mark.skipif(
    any(version(package) != recorded for package, recorded in RECORDED_WITH.items()),
    reason=f"the pictures were recorded with {RECORDED_WITH}",
)

ANSWER = """Gravity is a **fundamental concept** in physics that describes the curvature of spacetime by mass.

## What it does

- it acts between *all* masses, however far apart
- near the surface of the Earth it gives everything the same acceleration, `g = 9.81 m/s²`

```python
def force(m1: float, m2: float, r: float) -> float:
    return 6.674e-11 * m1 * m2 / r**2  # newtons
```

| body  | g in m/s² |
|-------|-----------|
| Earth | 9.81      |
| Moon  | 1.62      |

> What goes up must come down.
"""


small_and_large = pytest.mark.parametrize(
    ("theme", "size"), [("", (80, 24)), ("tinyllm-light", (160, 45))], ids=["80x24", "160x45-light"]
)


def an_app(*answers, theme: str = "", **backend) -> TinyLLMChatApp:
    """An app whose figures do not depend on how fast the test runs."""
    scripted = ScriptedBackend(answers or (ANSWER,), automatic=False, **backend)
    app = TinyLLMChatApp(Session(scripted, None, Settings({CONFIG: {"theme": theme}})), model=MODEL)
    app.feed._clock = lambda: 0.0
    return app


def chat_of(pilot) -> Chat:
    return Chat(pilot.app, pilot.app.session._backend, pilot)


async def answered(pilot) -> None:
    chat = chat_of(pilot)
    await chat.ready()
    await chat.ask("What is gravity?")
    await chat.type("Tell me more about")
    await chat.until(lambda: "4 tokens" in "\n".join(chat.screen))


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_an_answer(snap_compare, size):
    assert snap_compare(an_app(), terminal_size=size, run_before=answered)


def test_light(snap_compare):
    assert snap_compare(an_app(theme="tinyllm-light"), terminal_size=(160, 45), run_before=answered)


def test_sampling_turned_and_another_answer_that_failed(snap_compare):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.ask("What is gravity?", steps=12)
        await chat.press("alt+up")
        await chat.write(3)
        await chat.press("escape")
        await chat.sees("stopped")
        await chat.send("And why?")
        await chat.until(lambda: len(chat.backend.requests) == 2)
        chat.backend.finish()
        await chat.sees("120 MB are free")
        await chat.until(lambda: not chat.app.figures.flashing)

    app = an_app(ANSWER, RuntimeError("not enough memory: 512 MB are needed, 120 MB are free"))
    assert snap_compare(app, terminal_size=(100, 30), run_before=run)


def test_waiting_for_a_model(snap_compare):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.until(lambda: chat.backend.opened)
        chat.backend.loading("compiling kernels", 7, 20)
        await chat.send("Are you there?")
        await chat.sees("compiling kernels 35 %")

    assert snap_compare(an_app(), terminal_size=(80, 24), run_before=run)


def test_a_context_that_was_full(snap_compare):
    """Some of the chat is no longer seen by the model; in the map of the rest, one message is pointed at."""

    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.send("/context-full drop-oldest")
        await chat.send("/system Answer in a few words.")
        for text in ("What is gravity?", "What does it act on? " * 20, "And how far? " * 12):
            await chat.ask(text)
        await chat.ask("Who found that out?")
        pilot.app.clear_notifications()
        await chat.until(lambda: "of 310 tokens" in "\n".join(chat.screen))
        left = chat.app.figures.panels.cache.region.x
        top = next(row for row, line in enumerate(chat.screen) if "of 310 tokens" in line) + 1
        await pilot.hover(offset=(left + 8, top))
        await chat.until(lambda: "And how far?" in "\n".join(line[left:] for line in chat.screen))

    brief = ("It pulls masses together.", "On all masses. " * 20, "Without an end. " * 20, "Newton did.")
    assert snap_compare(an_app(*brief, context_length=310), terminal_size=(130, 40), run_before=run)


@small_and_large
def test_help(snap_compare, theme, size):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.press("f1")

    assert snap_compare(an_app(theme=theme), terminal_size=size, run_before=run)


def test_suggestions(snap_compare):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.type("/t")
        await chat.until(lambda: "/temp" in "\n".join(chat.screen))

    assert snap_compare(an_app(), terminal_size=(80, 24), run_before=run)


@pytest.mark.parametrize("size", [(80, 24), (130, 36)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_token_inspector(snap_compare, size):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.ask("What is gravity?")
        await chat.press("alt+i", "tab", "down")
        await chat.until(lambda: "torn between" in "\n".join(chat.screen))

    assert snap_compare(an_app(), terminal_size=size, run_before=run)


def test_tokens_in_colours(snap_compare):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.ask("What is gravity?")
        await chat.press("alt+h")
        await chat.sees("**fundamental concept**")

    assert snap_compare(an_app(theme="tinyllm-light"), terminal_size=(100, 30), run_before=run)


async def branched(pilot) -> None:
    """Two turns; the second one answered twice."""
    chat = chat_of(pilot)
    await chat.ready()
    await chat.ask("What is gravity?")
    await chat.ask("And why?")
    await chat.press("ctrl+r")
    await chat.until(lambda: len(chat.backend.requests) == 3)
    chat.backend.finish()
    await chat.until(lambda: not chat.session.busy)


def test_a_selected_message(snap_compare):
    async def run(pilot) -> None:
        await branched(pilot)
        await chat_of(pilot).press("shift+tab")

    app = an_app("It is the curvature of spacetime.", "Because *mass* bends it.", "```\nF = m * g\n```")
    assert snap_compare(app, terminal_size=(80, 24), run_before=run)


@small_and_large
def test_the_tree_of_a_conversation(snap_compare, theme, size):
    async def run(pilot) -> None:
        await branched(pilot)
        await chat_of(pilot).press("alt+t", "up")

    app = an_app("It is the curvature of spacetime.", "Because *mass* bends it.", "Nobody knows.", theme=theme)
    assert snap_compare(app, terminal_size=size, run_before=run)


@small_and_large
def test_the_system_prompt(snap_compare, theme, size):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.send("/system Answer in a few words.")
        await chat.press("alt+r")

    assert snap_compare(an_app(theme=theme), terminal_size=size, run_before=run)


@small_and_large
def test_settings(snap_compare, theme, size):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.send("/settings top_p")
        await chat.press("right")

    assert snap_compare(an_app(theme=theme), terminal_size=size, run_before=run)


@small_and_large
def test_the_palette(snap_compare, theme, size):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        await chat.press("ctrl+p")
        pilot.app.screen.query_one(Input).cursor_blink = False
        await chat.press(*"temp")
        hits = [hit async for hit in ActionProvider(pilot.app.screen).search("temp")]
        await chat.until(lambda: pilot.app.screen.query_one(OptionList).option_count == len(hits))

    assert snap_compare(an_app(theme=theme), terminal_size=size, run_before=run)


@small_and_large
def test_the_details_of_an_answer(snap_compare, monkeypatch, theme, size):
    monkeypatch.setattr(details.time, "localtime", time.gmtime)

    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await chat.ready()
        answer = await chat.ask("What is gravity?", steps=12)
        await chat.press("alt+up")
        chat.backend.finish()
        await chat.until(lambda: not chat.session.busy and not chat.app.figures.flashing)
        answer.created = 0.0
        await chat.press("alt+d")

    assert snap_compare(an_app(theme=theme), terminal_size=size, run_before=run)


def test_themes(snap_compare):
    async def run(pilot) -> None:
        chat = chat_of(pilot)
        await answered(pilot)
        await chat.send("/theme")

    assert snap_compare(an_app(theme="high-contrast-dark"), terminal_size=(80, 24), run_before=run)
