"""`--plain`: the chat as lines of text, for screen readers, braille displays and terminals that can do nothing else.

A screen that is drawn anew has no order in which it could be read. Here everything is said once, in the order in which
it happens, in words: no box, no bar, nothing that moves. What is typed is a line, with the line editing of the system.
An answer comes sentence by sentence, and its end is announced. Slash commands and settings are those of the screen.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from tinyllm_chat.chat.attaching import attachments
from tinyllm_chat.chat.errors import ChatError, ExportError, SessionError
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    Condensed,
    Condensing,
    Event,
    MessageRefused,
    ModelFailed,
    ModelLoading,
    ModelReady,
    Notice,
    ReadingPrompt,
    TextDelta,
)
from tinyllm_chat.chat.exports import FORMATS
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.presets import NONE
from tinyllm_chat.chat.safe_text import printable
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA, parse
from tinyllm_chat.cli.spoken import Spoken
from tinyllm_chat.cli.text import one_line
from tinyllm_chat.tui.actions import COMMANDS
from tinyllm_chat.tui.registry import Action, UnknownCommand, is_command
from tinyllm_chat.tui.text import count, duration, sampling_value, size

LOOK = 0.02  # seconds between two looks at what the backend did
PATIENCE = 3.0  # seconds of reading or opening after which is said how far it is
ENDINGS = {
    "cancelled": "Answer stopped",
    "length": "Answer stopped at the token limit; /continue writes on",
    "context_full": "Answer stopped: the context is full",
}
WELCOME = "Plain chat. Type a message and press Enter. /help lists the commands, Ctrl+C stops an answer, Ctrl+D leaves."


class PlainChat:
    """`read` asks for a line and raises EOFError at the end; `write` puts text out at once.

    `find`: from the name of a model to its file. Raises ChatError.
    """

    def __init__(
        self,
        session: Session,
        *,
        read: Callable[[str], str] = input,
        write: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        find: Callable[[str], str] = os.path.expanduser,
    ) -> None:
        self._session = session
        self._read = read
        self._write = write or _print
        self._clock = clock
        self._find = find
        self._spoken = Spoken()
        self._said_stage, self._said_at = "", 0.0
        self._thinking = False
        self._leaving = False

    def run(self, model: Path | None, warnings: list[str]) -> None:
        """Until the user leaves."""
        self._say(WELCOME)
        for warning in warnings:
            self._say(f"Warning: {warning}")
        if model is not None:
            self._open(str(model))
        else:
            self._say("No model is open. /model NAME opens one.")
        if self._session.conversation.leaf is not None:
            self._repeat()
        while not self._leaving:
            try:
                text = self._read("You: ")
            except KeyboardInterrupt:
                self._say("\nCtrl+D leaves.")
                continue
            except EOFError:
                self._say("")
                return
            self._take(text.strip())

    # What is said

    def _say(self, text: str) -> None:
        self._write(printable(text) + "\n")

    def _repeat(self) -> None:
        """The chat so far, in short: what was said last."""
        path = [message for message in self._session.conversation.path() if message.role != "system"]
        self._say(f"This chat is {self._session.title}, {count(len(path), 'message')}. The last one:")
        self._say(("You: " if path[-1].role == "user" else "Answer: ") + path[-1].content)

    def _progress(self, stage: str, done: int, total: int) -> None:
        """Says a new stage at once, and how far it is from time to time."""
        now = self._clock()
        if stage == self._said_stage and now < self._said_at + PATIENCE:
            return
        share = f", {100 * done // total} percent" if total and stage == self._said_stage else ""
        self._said_stage, self._said_at = stage, now
        self._say(f"{stage[:1].upper()}{stage[1:]}{share}.")

    # What is typed

    def _take(self, text: str) -> None:
        if not text:
            return
        try:
            if is_command(text):
                self._command(text)
            elif self._session.model is None:
                self._say("No model is open: the message was not sent. /model NAME opens one.")
            else:
                files = attachments(text, Path.cwd())
                for file in files:
                    self._say(f"With the file {file.name}, {size(len(file.text.encode()))}.")
                self._session.send(text.replace("//", "/", 1) if text.startswith("//") else text, files)
                self._answer()
        except (ChatError, OSError, UnknownCommand) as error:
            self._say(f"Error: {one_line(str(error))}")

    def _command(self, text: str) -> None:
        entry, argument = COMMANDS.parse(text)
        handler = getattr(self, f"_do_{entry.name}", None)
        if handler is None:
            self._say(f"/{entry.slash[0]} needs the screen: start without --plain.")
            return
        handler(argument)

    # Waiting

    def _open(self, path: str) -> None:
        self._session.open_model(path)
        while self._session.loading is not None:
            for event in self._session.drain():
                match event:
                    case ModelLoading(stage, done, total):
                        self._progress(stage, done, total)
                    case ModelReady(info):
                        self._say(f"{info.name} is open, with {info.context_length} tokens of context.")
                        for note in info.notes:
                            self._say(f"Note: {note}")
                    case ModelFailed(message):
                        self._say(f"Error: {message}")
                    case Notice():
                        self._notice(event)
            time.sleep(LOOK)

    def _answer(self) -> None:
        """Until the answer that was asked for has ended; Ctrl+C stops it."""
        self._thinking = False
        self._said_stage, self._said_at = "reading the prompt", self._clock()
        while True:
            try:
                for event in self._session.drain():
                    if self._is_over(event):
                        return
                if not self._session.busy and not self._session.queued:
                    return  # it was refused
                time.sleep(LOOK)
            except KeyboardInterrupt:
                self._session.stop()

    def _is_over(self, event: Event) -> bool:
        match event:
            case ReadingPrompt(done=done, total=total):
                self._progress("reading the prompt", done, total)
            case TextDelta(reasoning=True):
                if not self._thinking:
                    self._say("Thinking.")
                self._thinking = True
            case TextDelta(text=text):
                self._write(self._spoken.feed(text))
            case AnswerFinished(reason=reason, stats=stats):
                self._write(self._spoken.end())
                ending = ENDINGS.get(reason, "Answer finished")
                took = duration(stats.first_token_seconds + stats.decode_seconds)
                self._say(f"{ending}. {count(stats.generated_tokens, 'token')}, {took}.")
                return not self._session.busy  # where the context was full, it may go on
            case AnswerFailed(message=message):
                self._write(self._spoken.end())
                self._say(f"Error: {message}")
                return True
            case Condensing(messages=messages, done=done, total=total):
                self._progress(f"summarizing {count(messages, 'message')}", done, total)
            case Condensed():
                self._said_stage, self._said_at = "reading the prompt", self._clock()
            case Notice() | MessageRefused():
                self._notice(event)
        return False

    def _notice(self, notice: Notice | MessageRefused) -> None:
        if isinstance(notice, MessageRefused):
            kind = "Not sent"
        else:
            kind = {"error": "Error", "warning": "Warning"}.get(notice.severity, "Note")
        self._say(f"{kind}: {notice.message}")
        for entry in COMMANDS.actions:
            if entry.name in notice.offers:
                self._say(f"{entry.usage}: {entry.help}.")

    # What commands do, by the names of the screen's actions

    def _do_help(self, _argument: str) -> None:
        for entry in self.commands():
            self._say(f"{entry.usage}: {entry.help}.")
        self._say("A setting's name is a command too: /top_k 20. A message that starts with / is written //.")

    @classmethod
    def commands(cls) -> list[Action]:
        """The actions that work here."""
        return [entry for entry in COMMANDS.actions if entry.slash and hasattr(cls, f"_do_{entry.name}")]

    def _do_quit(self, _argument: str) -> None:
        self._leaving = True

    def _do_new_chat(self, _argument: str) -> None:
        self._session.new_chat()
        self._say("A new chat.")

    def _do_last_chat(self, _argument: str) -> None:
        self._session.open_chat(self._session.chat_before())
        self._repeat()

    def _do_rename(self, argument: str) -> None:
        self._session.rename(argument)
        self._say(f"This chat is {self._session.title}.")

    def _do_pin(self, _argument: str) -> None:
        self._session.pin(not self._session.conversation.pinned)
        self._say("Pinned." if self._session.conversation.pinned else "No longer pinned.")

    def _do_delete(self, _argument: str) -> None:
        leaf = self._session.conversation.leaf
        if leaf is None:
            raise SessionError("there is no message for that yet")
        self._session.delete(leaf.id)
        self._say("Deleted the last message; /undo brings it back.")

    def _do_undo(self, _argument: str) -> None:
        self._say(f"Undone: {self._session.undo().what}; /redo does it again.")

    def _do_redo(self, _argument: str) -> None:
        self._say(f"Done again: {self._session.redo().what}.")

    def _do_regenerate(self, _argument: str) -> None:
        self._session.regenerate()
        self._answer()

    def _do_continue_answer(self, _argument: str) -> None:
        self._session.continue_answer()
        self._answer()

    def _do_previous_answer(self, _argument: str) -> None:
        self._other_answer(-1)

    def _do_next_answer(self, _argument: str) -> None:
        self._other_answer(1)

    def _other_answer(self, step: int) -> None:
        conversation = self._session.conversation
        leaf = conversation.leaf
        if leaf is None or len(siblings := conversation.siblings(leaf.id)) < 2:
            self._say("The last answer has no alternatives; /regen makes one.")
            return
        self._session.select_sibling(leaf.id, step)
        shown = conversation.leaf
        assert shown is not None
        self._say(f"Answer {siblings.index(shown.id) + 1} of {len(siblings)}:")
        self._say(shown.content)

    def _do_system(self, argument: str) -> None:
        if argument:
            self._session.set_system_prompt(argument)
        system = self._session.conversation.system
        self._say(f"System prompt: {system.content if system is not None and system.content else 'none'}")

    def _do_think(self, argument: str) -> None:
        if argument:
            self._session.set_think(argument.lower())
        self._say(f"Thinking: {self._session.settings.value('think')}.")

    def _do_save(self, argument: str) -> None:
        if argument in FORMATS:
            path = self._session.export(format=argument)
        else:
            path = self._session.export(Path(os.path.expanduser(argument)) if argument else None)
        self._say(f"Saved to {path}")

    def _do_load(self, argument: str) -> None:
        if not argument:
            raise ExportError("/import needs the name of a file")
        self._session.import_chat(Path(os.path.expanduser(argument)))
        self._repeat()

    def _do_context_full(self, argument: str) -> None:
        if argument:
            self._session.set_context_full(argument.lower())
        self._say(f"When the context is full: {self._session.settings.value('context_full')}.")

    def _do_drop(self, _argument: str) -> None:
        self._session.drop_oldest()
        self._answer()

    def _do_undrop(self, _argument: str) -> None:
        self._session.show_all()
        self._say("The model sees the whole chat again.")

    def _do_summarize(self, _argument: str) -> None:
        self._session.summarize()
        self._answer()

    def _do_summary(self, argument: str) -> None:
        if argument:
            self._session.set_summary(argument)
        cut = self._session.conversation.cut
        self._say(f"Summary: {cut.summary if cut is not None and cut.summary else 'none'}")

    def _do_model(self, argument: str) -> None:
        if argument:
            self._open(self._find(argument))
        else:
            model = self._session.model
            self._say(f"The model is {model.name}, {model.path}" if model is not None else "No model is open.")

    def _do_temperature(self, argument: str) -> None:
        self._setting("temperature", argument)

    def _do_top_p(self, argument: str) -> None:
        self._setting("top_p", argument)

    def _do_preset(self, argument: str) -> None:
        session = self._session
        if argument:
            session.use_preset(argument)
        self._tell_preset()
        if not argument:
            self._say(f"There are {', '.join([*session.presets, NONE])}.")

    def _do_next_preset(self, _argument: str) -> None:
        self._session.next_preset()
        self._tell_preset()

    def _tell_preset(self) -> None:
        session = self._session
        values = session.presets[session.preset] if session.preset is not None else {}
        told = ", ".join(f"{name} {sampling_value(value)}" for name, value in values.items())
        self._say(f"Preset: {session.preset or NONE}{f': {told}' if told else ''}.")

    def _do_set(self, argument: str) -> None:
        name, _, value = argument.replace("=", " ").partition(" ")
        self._setting(name, value.strip())

    def _do_settings(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        if name:
            self._setting(name, value.strip())
            return
        for name in SCHEMA:
            self._say(self._described(name))
        self._say("/settings NAME explains one, /settings NAME VALUE sets it for this session.")

    def _setting(self, name: str, value: str) -> None:
        name = name.replace("-", "_").lower()
        name = "temperature" if name == "temp" else name
        if value or name not in SCHEMA:
            self._session.set_setting(name, parse(name, value))
        else:
            self._say(f"{SCHEMA[name].help} Expected: {SCHEMA[name].expected}.")
        self._say(self._described(name))

    def _described(self, name: str) -> str:
        settings = self._session.settings
        return f"{name}: {sampling_value(settings.value(name)) or 'empty'}, {settings.origin(name)}"


def run(session: Session, model: Path | None, warnings: list[str]) -> None:
    """Chats on standard input and output until the user leaves."""
    from tinyllm_chat.cli.models import openable

    _prepare_line_editing()
    for stream in (sys.stdout, sys.stdin):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    PlainChat(session, find=lambda name: str(openable(name, Paths.default()))).run(model, warnings)


def _prepare_line_editing() -> None:
    """Arrow keys, history and Tab, where the system has readline."""
    with contextlib.suppress(ImportError):
        import readline

        def complete(_text: str, state: int) -> str | None:
            known = [f"/{name}" for entry in PlainChat.commands() for name in entry.slash]
            known += [f"/{name}" for name in SAMPLING_NAMES]
            found = [name for name in known if name.startswith(readline.get_line_buffer())]
            return found[state] if state < len(found) else None

        readline.set_completer_delims(" ")
        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")


def _print(text: str) -> None:
    click.echo(text, nl=False)
    sys.stdout.flush()
