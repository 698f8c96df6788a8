"""Everything a user can make the chat do, each with its keys, its slash command and its help, written once.

Key bindings, hints, command palette, slash commands and the help screen are all read from here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tinyllm_chat.chat.attaching import completed
from tinyllm_chat.chat.context_policy import POLICIES
from tinyllm_chat.chat.errors import ExportError, SettingsError
from tinyllm_chat.chat.exports import FORMATS
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA, parse
from tinyllm_chat.tui.message_actions import MessageActions
from tinyllm_chat.tui.model_actions import ModelActions
from tinyllm_chat.tui.registry import PROGRAM, SAMPLING, VIEW, Commands, action, actions_of, values_of
from tinyllm_chat.tui.text import label, sampling_value

if TYPE_CHECKING:
    from tinyllm_chat.tui.app import TinyLLMChatApp

QUIT_SECONDS = 2.0  # within which a second Ctrl+C quits
_ALIASES = {"temp": "temperature"}
_POLICIES = dict(
    zip(
        POLICIES,
        (
            "the chat stops and says what can be done",
            "the model no longer sees the oldest turns",
            "the oldest turns leave the cache while the answer is written",
            "the model condenses the oldest turns into a summary",
        ),
        strict=True,
    )
)


class Actions(MessageActions, ModelActions):
    """The handlers. Errors of the chat layer pass through: whoever runs an action shows them."""

    def __init__(self, app: TinyLLMChatApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._session = app.session
        self._quit_until = 0.0

    # Chat

    @action("Send the message; it waits while a model loads or an answer is written", keys="enter", hint="send")
    def send(self) -> None:
        draft = self._app.prompt.draft
        try:
            self._app.prompt.take()
            self._app.writing.submit(draft)
        except Exception:
            self._app.prompt.set_draft(draft)
            raise

    @action("Start a new line in the message", keys="ctrl+j shift+enter", hint="new line", rank=4)
    def newline(self) -> None:
        self._app.prompt.insert("\n")

    @action("Write the message in your own editor, which $VISUAL or $EDITOR names", keys="ctrl+g", slash="editor")
    def editor(self) -> None:
        self._app.writing.edit_outside()

    @action("Attach a text file; @ and its name do the same", keys="alt+a", slash="attach", argument="[FILE]")
    def attach(self, argument: str) -> None:
        self._app.prompt.insert(completed("@", argument) if argument else "@")

    @action("Show in full what was pasted", keys="alt+x", slash="expand")
    def expand(self) -> None:
        if not self._app.prompt.unfold():
            self._app.say("Nothing is folded in the input, or more than can be shown", "warning")

    @action("Take the last message that waits back into the input; Up does it too", keys="alt+w", slash="unqueue")
    def take_back(self) -> None:
        self._app.writing.take_back()

    @action("Stop the answer; its text stays", keys="escape", slash="stop", hint="stop", rank=1)
    def stop(self) -> None:
        self._app.screen.clear_selection()
        if self._app.writing.leave_edit():
            return
        if self._app.pane.selected is not None:
            self.leave_messages()
            return
        self._app.models.stop_fetching()
        self._app.writing.return_to_prompt(self._session.stop())

    @action(
        "Leave this chat, which stays on disk, for a new one", keys="ctrl+n", slash="new clear", hint="new chat", rank=7
    )
    def new_chat(self) -> None:
        self._session.new_chat()
        self._app.start_over()

    @action("Find a chat among all that are kept", keys="ctrl+l", slash="history chats find search", argument="[WORDS]")
    def history(self, argument: str) -> None:
        self._app.choose_chat(argument)

    @action("Go back to the chat that was written before this one", keys="alt+l", slash="last")
    def last_chat(self) -> None:
        self._app.open_chat(self._session.chat_before())

    @action("Write on where the last answer ends", keys="ctrl+t", slash="continue")
    def continue_answer(self) -> None:
        self._session.continue_answer()
        self._app.pane.follow()

    @action("Say what the model is told before the conversation", keys="alt+r", slash="system", argument="[TEXT]")
    def system(self, argument: str) -> None:
        if argument:
            self._session.set_system_prompt(argument)
        else:
            self._app.edit_system_prompt()

    @action("Give this chat a name; without one it is called by its first message", slash="rename", argument="NAME")
    def rename(self, argument: str) -> None:
        self._session.rename(argument)

    @action("Pin this chat, which keeps it at the top of the list, or unpin it", keys="alt+k", slash="pin")
    def pin(self) -> None:
        self._session.pin(not self._session.conversation.pinned)
        self._app.say("Pinned" if self._session.conversation.pinned else "No longer pinned")

    @action("Let the model think before it answers, or not", slash="think", argument="[on|off|auto]")
    def think(self, argument: str) -> None:
        if argument:
            self._session.set_think(argument.lower())
        value, model = self._session.settings.value("think"), self._session.model
        answer = {"on": "on", "off": "off", "auto": "as the model has it"}[value]
        doubt = "" if model is None or model.reasons else "; this model does not seem to know how"
        self._app.say(f"Thinking is {answer}, from the next answer on{doubt}" if argument else f"Thinking is {answer}")

    @action("Leave the oldest turns out of what the model sees", slash="drop")
    def drop(self) -> None:
        self._session.drop_oldest()

    @action("Show the model the whole chat again", slash="undrop")
    def undrop(self) -> None:
        self._session.show_all()

    @action("Condense the oldest turns into a summary", slash="summarize compact")
    def summarize(self) -> None:
        self._session.summarize()
        self._app.pane.follow()

    @action("Edit the summary of what was condensed", slash="summary", argument="[TEXT]")
    def summary(self, argument: str) -> None:
        if argument:
            self._session.set_summary(argument)
            return
        cut = self._session.conversation.cut
        self._app.prompt.set_text(f"/summary {cut.summary if cut is not None else ''}")

    @action(
        "When the context is full: " + ", ".join(POLICIES),
        slash="context-full",
        argument="[POLICY]",
        complete=lambda _actions, _argument: POLICIES,
    )
    def context_full(self, argument: str) -> None:
        if argument:
            self._session.set_context_full(argument.lower())
        self._app.say(f"When the context is full: {_POLICIES[self._session.settings.value('context_full')]}")

    @action(
        "Write this chat as a document: md, html, or json with all branches",
        keys="ctrl+s f4",
        slash="save export",
        argument="[FILE|TYPE]",
        complete=lambda _actions, _argument: FORMATS,
    )
    def save(self, argument: str) -> None:
        if argument in FORMATS:
            path = self._session.export(format=argument)
        else:
            path = self._session.export(Path(os.path.expanduser(argument)) if argument else None)
        self._app.say(f"Saved to {path}")

    @action("Open the chat in a JSON or Markdown file that was saved", slash="import", argument="FILE")
    def load(self, argument: str) -> None:
        if not argument:
            raise ExportError("/import needs the name of a file")
        self._session.import_chat(Path(os.path.expanduser(argument)))
        self._app.start_over()

    # Sampling

    @action(
        "Temperature up",
        keys="alt+up ctrl+up f6",
        group=SAMPLING,
        hint="temperature",
        hint_with="temperature_down",
        rank=5,
    )
    def temperature_up(self) -> None:
        self._nudge("temperature", 1)

    @action("Temperature down", keys="alt+down ctrl+down f5", group=SAMPLING)
    def temperature_down(self) -> None:
        self._nudge("temperature", -1)

    @action("Top-p up", keys="alt+right f8", group=SAMPLING, hint="top-p", hint_with="top_p_down", rank=6)
    def top_p_up(self) -> None:
        self._nudge("top_p", 1)

    @action("Top-p down", keys="alt+left f7", group=SAMPLING)
    def top_p_down(self) -> None:
        self._nudge("top_p", -1)

    @action("Set the temperature", slash="temp temperature", argument="VALUE", group=SAMPLING)
    def temperature(self, argument: str) -> None:
        self._set("temperature", argument)

    @action("Set top-p", slash="top_p", argument="VALUE", group=SAMPLING)
    def top_p(self, argument: str) -> None:
        self._set("top_p", argument)

    @action(
        "Set any sampling value by its name",
        slash="set",
        argument="NAME VALUE",
        complete=lambda actions, argument: actions.assignments(argument),
        group=SAMPLING,
    )
    def set(self, argument: str) -> None:
        name, _, value = argument.replace("=", " ").partition(" ")
        name = name.replace("-", "_").lower()
        self._set(_ALIASES.get(name, name), value.strip())

    # View

    @action("Show or hide the panels", keys="ctrl+b f3", slash="panels", group=VIEW)
    def panels(self) -> None:
        self._app.figures.toggle()

    @action("Show what the model thought, or fold it", keys="ctrl+o", slash="thoughts", group=VIEW)
    def thoughts(self) -> None:
        self._app.pane.turn_thoughts()

    @action("Scroll up", keys="shift+up", group=VIEW)
    def scroll_up(self) -> None:
        self._app.pane.scroll_relative(y=-1, animate=False)

    @action("Scroll down", keys="shift+down", group=VIEW)
    def scroll_down(self) -> None:
        self._app.pane.scroll_relative(y=1, animate=False)

    @action("Scroll up a page", keys="pageup", group=VIEW)
    def page_up(self) -> None:
        self._app.pane.scroll_page_up(animate=False)

    @action("Scroll down a page", keys="pagedown", group=VIEW)
    def page_down(self) -> None:
        self._app.pane.scroll_page_down(animate=False)

    @action("Go to the first message", keys="ctrl+home", group=VIEW)
    def scroll_top(self) -> None:
        self._app.pane.go_to_start()

    @action("Go to the end and follow it", keys="ctrl+end", slash="end", group=VIEW)
    def scroll_bottom(self) -> None:
        self._app.pane.follow()

    @action(
        "Choose the colours",
        slash="theme",
        argument="[NAME]",
        complete=lambda actions, _: actions.theme_names(),
        group=VIEW,
    )
    def theme(self, argument: str) -> None:
        if not argument:
            self._app.show_themes()
        elif argument in self._app.available_themes:
            self._app.choose_theme(argument)
        else:
            raise SettingsError(f"there is no theme {argument!r}; /theme lists them")

    # Program

    @action(
        "Choose a model, or open one by its name or file",
        slash="model",
        argument="[NAME]",
        keys="f2",
        complete=lambda actions, _: actions.model_paths(),
        group=PROGRAM,
    )
    def model(self, argument: str) -> None:
        if argument:
            self._app.models.find(argument)
        else:
            self._app.models.choose()

    @action(
        "See and change every setting, and save it to config.toml",
        keys="alt+s f12",
        slash="settings",
        argument="[NAME]",
        complete=lambda actions, _: list(SCHEMA),
        group=PROGRAM,
    )
    def settings(self, argument: str) -> None:
        self._app.show_settings(argument)

    @action("Find any action by its name", keys="ctrl+p", slash="palette", group=PROGRAM, hint="commands", rank=3)
    def palette(self) -> None:
        self._app.show_palette()

    @action("Show every key and command", keys="f1", slash="help ?", group=PROGRAM, hint="help", rank=2)
    def help(self) -> None:
        self._app.show_help()

    @action(
        "Copy what is selected, else clear the input, else stop the answer, else quit when pressed twice",
        keys="ctrl+c",
        group=PROGRAM,
    )
    def interrupt(self) -> None:
        prompt, screen = self._app.prompt, self._app.screen
        if selected := screen.get_selected_text() or prompt.selected_text:
            self._app.copy(selected, "What is selected")
            screen.clear_selection()
        elif prompt.text:
            prompt.remember(prompt.take())
        elif self._session.busy or self._session.queued:
            self.stop()
        elif self._clock() < self._quit_until:
            self._app.exit()
        else:
            self._quit_until = self._clock() + QUIT_SECONDS
            self._app.say(f"{self._app.keymap.key('interrupt')} again quits", seconds=QUIT_SECONDS)

    @action("Quit, when the input is empty", keys="ctrl+d", group=PROGRAM)
    def leave(self) -> None:
        if self._app.prompt.text:
            self._app.prompt.action_delete_right()
        else:
            self._app.exit()

    @action("Put the program aside; the shell's fg brings it back", keys="ctrl+z", slash="suspend", group=PROGRAM)
    def suspend(self) -> None:
        if os.name == "nt":
            self._app.say("Windows cannot put programs aside", "warning")
        else:
            self._app.action_suspend_process()

    @action("Quit", keys="ctrl+q", slash="quit exit bye", group=PROGRAM)
    def quit(self) -> None:
        self._app.exit()

    # What arguments can be

    def assignments(self, argument: str) -> list[str]:
        name, space, _ = argument.partition(" ")
        if not space:
            return [f"{name} " for name in SAMPLING_NAMES]
        return [f"{name} {value}" for value in values_of(SCHEMA[name])] if name in SCHEMA else []

    def theme_names(self) -> list[str]:
        return sorted(self._app.available_themes)

    def model_paths(self) -> Sequence[str]:
        return self._app.models.paths()

    # Inside

    def _nudge(self, name: str, steps: int) -> None:
        self._session.nudge(name, steps)
        self._app.figures.flash(name)

    def _set(self, name: str, text: str) -> None:
        if name not in SAMPLING_NAMES:
            raise SettingsError(f"{name or 'nothing'} cannot be set; one of {', '.join(SAMPLING_NAMES)} can")
        if not text:
            self._app.say(f"{label(name)} is {sampling_value(self._session.sampling[name].value)}")
            return
        self._session.set_sampling(name, parse(name, text))
        self._app.figures.flash(name)


ACTIONS = actions_of(Actions)
COMMANDS = Commands(ACTIONS, SAMPLING_NAMES)
