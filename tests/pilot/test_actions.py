"""One registry: every action is reached by its keys, its slash command and the palette, and help lists it."""

from __future__ import annotations

import threading
import time

import pytest
from textual.command import CommandPalette
from textual.content import Content
from textual.widgets import OptionList
from tinyllm_chat.chat.describing import ModelFacts
from tinyllm_chat.chat.settings import SAMPLING_NAMES
from tinyllm_chat.tui.actions import ACTIONS, COMMANDS, Actions
from tinyllm_chat.tui.app import TinyLLMChatApp
from tinyllm_chat.tui.hints import hints
from tinyllm_chat.tui.models import ModelChoice
from tinyllm_chat.tui.palette import ActionProvider, keys_and_command
from tinyllm_chat.tui.picker import ModelScreen
from tinyllm_chat.tui.registry import Action, UnknownCommand, is_command, key_name, key_names
from tinyllm_chat.tui.screens import HelpRow, HelpScreen
from tinyllm_chat.tui.widgets.prompt import Prompt


@pytest.fixture
def ran(monkeypatch) -> list[tuple[str, str]]:
    """Names and arguments of the actions that were run; none of them does anything but sending."""
    calls: list[tuple[str, str]] = []

    original = TinyLLMChatApp.run_entry

    def run_entry(self, entry: Action, argument: str = "") -> bool:
        if entry.name == "send":  # which reads slash commands
            return original(self, entry, argument)
        calls.append((entry.name, argument))
        return True

    monkeypatch.setattr(TinyLLMChatApp, "run_entry", run_entry)
    return calls


KEYS = [(entry.name, key) for entry in ACTIONS if entry.name != "send" for key in entry.keys]
SLASHES = [(entry.name, slash) for entry in ACTIONS for slash in entry.slash]


async def test_every_key_reaches_its_action_from_the_input(open_chat, ran):
    async with open_chat() as chat:
        assert isinstance(chat.app.focused, Prompt)
        for name, key in KEYS:
            ran.clear()
            await chat.pilot.press(key)
            assert ran == [(name, "")], key


async def test_every_slash_command_reaches_its_action(open_chat, ran):
    async with open_chat() as chat:
        for name, slash in SLASHES:
            ran.clear()
            await chat.type(f"/{slash} an argument")
            await chat.pilot.press("enter")
            assert ran[-1] == (name, "an argument"), slash


async def test_every_key_on_a_selected_message_reaches_its_action(open_chat, ran):
    async with open_chat() as chat:
        chat.app.pane.focus()
        for entry in ACTIONS:
            for key in entry.message_keys:
                ran.clear()
                await chat.pilot.press(key)
                assert ran == [(entry.name, "")], key
        await chat.pilot.press("3")
        assert ran[-1] == ("copy_code", "3")


async def test_the_palette_reaches_every_action(open_chat, ran):
    async with open_chat() as chat:
        provider = ActionProvider(chat.app.screen)
        listed = [hit.text async for hit in provider.discover()]
        assert set(listed) == {entry.help for entry in ACTIONS} - {
            entry.help for entry in ACTIONS if entry.name in ("palette", "newline", "send")
        }
        await chat.press("ctrl+p")  # only recorded here: actions do nothing
        assert ran == [("palette", "")]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("search", "history"),
        ("exit", "quit"),
        ("retry", "regenerate"),
        ("export", "save"),
        ("clear", "new_chat"),
        ("model", "model"),
    ],
)
async def test_the_palette_finds_a_command_first_by_any_of_its_names(open_chat, typed, name):
    async with open_chat() as chat:
        hits = [hit async for hit in ActionProvider(chat.app.screen).search(typed)]
        first = max(hits, key=lambda hit: hit.score)
        assert first.command.args[0].name == name


def test_the_palette_shows_keys_and_commands_whole():
    shown = {entry.name: Content.from_markup(keys_and_command(entry)).plain for entry in ACTIONS}
    assert shown["attach"] == "Alt+A   /attach [FILE]"
    assert all(entry.usage in shown[entry.name] for entry in ACTIONS)


async def test_an_action_is_chosen_in_the_palette(open_chat):
    async with open_chat() as chat:
        await chat.press("ctrl+p")
        await chat.until(lambda: isinstance(chat.app.screen, CommandPalette))
        await chat.pilot.press(*"temperature up")
        await chat.until(lambda: chat.app.screen.query_one(OptionList).option_count == 1)
        await chat.press("down", "enter")
        await chat.until(lambda: chat.session.sampling["temperature"].value == pytest.approx(0.85))
        assert not isinstance(chat.app.screen, CommandPalette)


async def test_an_action_that_needs_a_value_asks_for_it_in_the_input(open_chat):
    async with open_chat() as chat:
        chat.app.choose_action(next(entry for entry in ACTIONS if entry.name == "temperature"))
        assert chat.app.prompt.text == "/temp "


@pytest.mark.parametrize("close", ["escape", "f1", "q", "ctrl+c"])
async def test_help_lists_every_action_with_keys_and_command(open_chat, close):
    async with open_chat(size=(120, 200)) as chat:
        await chat.press("f1")
        assert isinstance(chat.app.screen, HelpScreen)
        assert len(chat.app.screen.query(HelpRow)) == len(ACTIONS)
        text = "\n".join(chat.screen)
        for entry in ACTIONS:
            assert entry.help[:40] in text
            assert entry.usage in text
            for key in key_names(entry):
                assert key in text
        await chat.press(close)
        assert not isinstance(chat.app.screen, HelpScreen)
        assert not chat.toasts


async def test_help_begins_with_what_comes_first(open_chat):
    async with open_chat() as chat:
        await chat.press("f1")
        shown = "\n".join(chat.screen)
        assert shown.index("Send the message") < shown.index("Stop the answer") < shown.index("Ctrl+P search")


async def test_one_can_search_from_the_help(open_chat):
    async with open_chat() as chat:
        await chat.press("f1")
        await chat.press("ctrl+p")
        await chat.until(lambda: isinstance(chat.app.screen, CommandPalette))


async def test_help_fits_a_small_terminal(open_chat):
    async with open_chat(size=(60, 20)) as chat:
        await chat.send("/help")
        assert isinstance(chat.app.screen, HelpScreen)
        await chat.press("end")
        await chat.until(lambda: "Ctrl+Q" in "\n".join(chat.screen))


async def test_hints_are_clickable(open_chat):
    async with open_chat(size=(160, 30)) as chat:
        await chat.pilot.click(offset=(chat.screen[-1].index("F1 help") + 1, 29))
        await chat.until(lambda: isinstance(chat.app.screen, HelpScreen))


async def test_hints_give_way_when_there_is_little_room(open_chat):
    async with open_chat(size=(160, 30)) as chat:
        assert all(hint.label in chat.screen[-1] for hint in hints())
        await chat.pilot.resize_terminal(30, 10)
        await chat.pilot.pause()
        assert "Enter send" in chat.screen[-1]
        assert "Esc stop" in chat.screen[-1]
        assert "new chat" not in chat.screen[-1]


def test_sending_comes_first_wherever_actions_are_listed():
    assert ACTIONS[0].name == "send"
    assert hints()[0].label == "send"


def test_no_key_and_no_command_means_two_things():
    keys = [key for entry in ACTIONS for key in entry.keys]
    slashes = [slash for entry in ACTIONS for slash in entry.slash]
    assert len(keys) == len(set(keys))
    assert len(slashes) == len(set(slashes))
    message_keys = [key for entry in ACTIONS for key in entry.message_keys]
    assert len(message_keys) == len(set(message_keys))
    assert not {"ctrl+h", "ctrl+i", "ctrl+m", "ctrl+a", "tab", "f10", "f11"} & set(keys)


def test_handlers_are_methods_with_an_entry():
    assert [entry.name for entry in ACTIONS] == [
        name for part in Actions.__mro__ for name, member in vars(part).items() if hasattr(member, "action")
    ]
    assert all(entry.help and entry.help[0].isupper() and not entry.help.endswith(".") for entry in ACTIONS)
    assert all(entry.keys or entry.slash for entry in ACTIONS)


@pytest.mark.parametrize("name", SAMPLING_NAMES)
def test_every_sampling_value_is_a_command(name):
    entry, argument = COMMANDS.parse(f"/{name} 1")
    assert (entry.name, argument) in [("set", f"{name} 1"), (name, "1")]
    assert COMMANDS.parse(f"/{name.replace('_', '-')} 1")


@pytest.mark.parametrize("text", ["/", "/ x", "/nothing", "/TEMPERATUR 1", "/\x1b[31m", "/" + "x" * 1000])
def test_an_unknown_command_is_refused_in_one_clean_line(text):
    with pytest.raises(UnknownCommand) as error:
        COMMANDS.parse(text)
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


def test_commands_are_told_from_messages():
    assert is_command("/temp 1")
    assert is_command("/QUIT")
    assert not is_command("//temp")
    assert not is_command("temp")
    assert not is_command("/a\n/b")
    assert COMMANDS.parse("/QUIT")[0].name == "quit"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("ctrl+j", "Ctrl+J"),
        ("alt+up", "Alt+↑"),
        ("escape", "Esc"),
        ("f1", "F1"),
        ("alt+full_stop", "Alt+."),
        ("pageup", "PgUp"),
    ],
)
def test_keys_are_written_as_people_write_them(key, shown):
    assert key_name(key) == shown


async def test_save_says_where(open_chat, tmp_path):
    async with open_chat("One.") as chat:
        await chat.ask("Count")
        target = tmp_path / "chat.md"
        await chat.send(f"/save {target}")
        assert chat.toasts == [f"Saved to {target}"]
        assert "One." in target.read_text()
        await chat.send("/save /no/such/folder/at/all/chat.md")
        assert "/no/such/folder" in chat.toasts[-1]


async def test_copy_takes_the_last_answer_as_it_was_written(open_chat):
    async with open_chat("Some **bold** words.") as chat:
        await chat.press("ctrl+y")
        assert chat.app.clipboard == ""
        await chat.ask("Go")
        await chat.press("ctrl+y")
        assert chat.app.clipboard == "Some **bold** words."


@pytest.mark.parametrize("keys", [("ctrl+r",), ("ctrl+t",), ("alt+comma",), ("f4",)])
async def test_what_cannot_be_done_now_is_said(open_chat, keys):
    async with open_chat() as chat:
        await chat.press(*keys)
        assert len(chat.toasts) == 1


class Models:
    """Two models here, one to fetch."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.fetched: list[str] = []
        self.remembered: list[str] = []

    def choices(self):
        return [
            ModelChoice("first", "98 MB", "/models/first.gguf"),
            ModelChoice("[b]second[/]", "1 GB", "/models/second.gguf"),
            ModelChoice("third", "98 MB to download"),
        ]

    def find(self, name, progress):
        if name.startswith("/"):
            return name
        progress("downloading", 40, 100)
        if self.failure is not None:
            raise self.failure
        self.fetched.append(name)
        return f"/models/{name}.gguf"

    def describe(self, path):
        return ModelFacts("llama", "Q4_1", 135_000_000, 8192, 290_000_000)

    def opened(self, path):
        self.remembered.append(path)


def choosing(chat):
    options = chat.app.screen.query(OptionList) if isinstance(chat.app.screen, ModelScreen) else ()
    return any(listed.option_count > 1 for listed in options)


async def test_without_a_model_one_is_chosen_first(open_chat):
    async with open_chat(model=None, models=Models()) as chat:
        await chat.until(lambda: choosing(chat))
        text = "\n".join(chat.screen)
        assert "first" in text
        assert "[b]second[/]" in text
        assert "to download" in text
        await chat.press("down", "enter")
        await chat.until(lambda: chat.backend.opened == ["/models/second.gguf"])
        assert isinstance(chat.app.focused, Prompt)


async def test_a_model_of_the_catalogue_is_fetched_and_opened(open_chat):
    models = Models()
    async with open_chat(model=None, models=models) as chat:
        await chat.until(lambda: choosing(chat))
        await chat.press("end", "enter")
        await chat.until(lambda: chat.backend.opened == ["/models/third.gguf"])
        assert models.fetched == ["third"]


async def test_a_download_that_fails_says_why(open_chat):
    from tinyllm_chat.chat.errors import DownloadError

    async with open_chat(model=None, models=Models(DownloadError("no connection to pypi.org"))) as chat:
        await chat.until(lambda: choosing(chat))
        await chat.press("end", "enter")
        await chat.sees("▌ no connection to pypi.org")
        assert chat.app.pane.progress is None
        assert not chat.backend.opened


async def test_a_download_can_be_stopped(open_chat):
    models = Models()
    going_on = threading.Event()

    def find(name, progress):
        while True:  # as long as nobody stops it
            progress("downloading", 40, 100)
            going_on.set()
            time.sleep(0.02)  # the network gives the screen some time

    models.find = find
    async with open_chat(model=None, models=models) as chat:
        await chat.until(lambda: choosing(chat))
        await chat.press("end", "enter")
        await chat.until(going_on.is_set)
        await chat.press("escape")
        await chat.sees("▌ the download of third was stopped")
        assert chat.app.pane.progress is None
        going_on.clear()
        await chat.press("f2")
        await chat.until(lambda: choosing(chat))
        await chat.press("end", "enter")
        await chat.until(going_on.is_set)
    # Leaving stops it as well: else the program would hang here.


async def test_a_file_is_opened_by_its_path(open_chat):
    async with open_chat() as chat:
        await chat.send("/model /models/other file.gguf")
        assert chat.backend.opened[-1] == "/models/other file.gguf"


async def test_a_list_of_models_that_cannot_be_read_says_why(open_chat, monkeypatch):
    from tinyllm_chat.chat.errors import CatalogueError

    models = Models()
    monkeypatch.setattr(models, "choices", lambda: (_ for _ in ()).throw(CatalogueError("catalogue.toml: broken")))
    async with open_chat(model=None, models=models) as chat:
        await chat.until(lambda: "catalogue.toml: broken" in "\n".join(chat.screen))
        await chat.press("escape")
        assert isinstance(chat.app.focused, Prompt)


async def test_a_model_can_be_changed_later(open_chat):
    async with open_chat(models=Models()) as chat:
        await chat.press("f2")
        await chat.until(lambda: choosing(chat))
        await chat.press("enter")
        await chat.until(lambda: chat.backend.opened[-1] == "/models/first.gguf")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("/settings", ["Save to config.toml", "Reset", "Turn a number down"]),
        ("/theme", ["Take and save", "Leave as it was"]),
        ("/model", ["Close"]),
    ],
)
async def test_help_begins_with_what_the_screen_can_do(open_chat, command, says):
    async with open_chat(size=(100, 40), models=Models()) as chat:
        await chat.send(command)
        below = chat.app.screen
        await chat.press("f1")
        assert isinstance(chat.app.screen, HelpScreen)
        shown = "\n".join(chat.screen)
        assert shown.index("On this screen") < shown.index("Send the message")
        assert all(text in shown for text in says)
        await chat.press("f1")
        assert chat.app.screen is below


# Why an action cannot be asked for in one of the three ways.
NO_KEY = "what it needs is typed: it is a command"
NO_COMMAND = "it is about the draft, or moves the view: typing a command would change what it acts on"
WITHOUT_KEY = {entry.name for entry in ACTIONS if entry.argument}
WITHOUT_COMMAND = {
    *("send", "newline", "interrupt", "leave"),
    *("scroll_up", "scroll_down", "page_up", "page_down", "scroll_top"),
    *("temperature_up", "temperature_down", "top_p_up", "top_p_down"),  # /temp and /top_p set them
}


def test_every_action_has_a_key_and_a_command_or_a_reason():
    assert {entry.name for entry in ACTIONS if not (entry.keys or entry.message_keys)} <= WITHOUT_KEY | {
        "undrop",
        "drop",
        "summarize",
    }, NO_KEY
    assert {entry.name for entry in ACTIONS if not entry.slash} == WITHOUT_COMMAND, NO_COMMAND
