"""The full-screen chat: lays the widgets out, runs actions, and hands events on."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.timer import Timer
from textual.worker import get_current_worker

from tinyllm_chat.chat.attaching import attachments, completed, completions, mentioned, unfinished
from tinyllm_chat.chat.conversation import MessageState
from tinyllm_chat.chat.drafts import Draft, DraftKeeper
from tinyllm_chat.chat.errors import ChatError, DownloadCancelled
from tinyllm_chat.chat.events import CacheState
from tinyllm_chat.chat.finding import Query
from tinyllm_chat.chat.presets import NONE
from tinyllm_chat.tui import themes
from tinyllm_chat.tui.actions import ACTIONS, COMMANDS, Actions
from tinyllm_chat.tui.clipboard import Clipboard, Copied
from tinyllm_chat.tui.feed import Feed, variant_of
from tinyllm_chat.tui.guard import stderr_to_log
from tinyllm_chat.tui.keymap import Keymap, keymap
from tinyllm_chat.tui.models import ModelChoice, ModelSource
from tinyllm_chat.tui.palette import ActionProvider
from tinyllm_chat.tui.registry import (
    Action,
    Suggestion,
    UnknownCommand,
    commands_by_key,
    is_command,
    key_name,
    key_names,
    pair_name,
)
from tinyllm_chat.tui.text import clean, clean_line, count, size
from tinyllm_chat.tui.widgets.bars import Hint, Hints, Rule, TitleBar, VerticalRule, status
from tinyllm_chat.tui.widgets.cache import CacheFigures, CachePanel
from tinyllm_chat.tui.widgets.ground import Column, PlainScreen, Row
from tinyllm_chat.tui.widgets.lines import CENTERED_FROM
from tinyllm_chat.tui.widgets.pane import ChatPane
from tinyllm_chat.tui.widgets.panels import Panels, Speed
from tinyllm_chat.tui.widgets.progress import Progress
from tinyllm_chat.tui.widgets.prompt import SHOWN_WHOLE, InputBar, Prompt
from tinyllm_chat.tui.widgets.sampling import SamplingPanel
from tinyllm_chat.tui.widgets.suggestions import Suggestions

if TYPE_CHECKING:
    from tinyllm_chat.chat.conversation import Attachment, Message
    from tinyllm_chat.chat.library import ChatLibrary
    from tinyllm_chat.chat.prompt_history import PromptHistory
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.tui.history import ChosenChat
    from tinyllm_chat.tui.inspector import Picked

PANEL_COLUMNS = 100  # a terminal this wide has room for the panels
PANEL_WIDTH = 38  # with the line before them
TALL = 30  # rows from which there is room for empty ones
TICK = 1 / 20  # seconds between two looks at what the backend did, while something is expected
IDLE_TICK = 1.0
NAME_CHARACTERS = 1000  # of the end of a draft in which a command or the name of a file is looked for
DRAFT_DELAY = 0.5  # seconds of peace after a key before the draft is put on disk
FLASH_SECONDS = 0.7
CLIPBOARD = "clipboard"  # the group of workers that wait for a clipboard program
DOWNLOAD = "download"  # the group of the worker that fetches a model
# Seconds after which a running thread hands the interpreter on. With Python's 5 ms the thread that calls the engine for
# every token waits for the screen longer than a token takes.
SWITCH_INTERVAL = 0.0005


class TinyLLMChatApp(App[None], inherit_bindings=False):
    """One chat window over a session.

    `model`: path to open once the screen stands. `models`: what to choose from, when there is no model and later.
    `chats`: those that are kept.
    `warnings`: lines to show from the start, such as settings that were not understood. `keymap`: the keys in force, if
    not those the program comes with. `config_folder`: where the user's themes are. `history` and `drafts` keep
    what is sent and what is being written; None: nothing is kept.
    """

    CSS_PATH = Path(__file__).with_name("style.tcss")  # not relative, so that a subclass finds it too
    ENABLE_COMMAND_PALETTE = False  # ours is opened by the registry, like everything else
    COMMANDS: ClassVar = {ActionProvider}
    TITLE = "tinyllm-chat"

    def __init__(
        self,
        session: Session,
        *,
        model: str | None = None,
        models: ModelSource | None = None,
        chats: ChatLibrary | None = None,
        warnings: Sequence[str] = (),
        keymap: Keymap | None = None,
        config_folder: Path | None = None,
        history: PromptHistory | None = None,
        drafts: DraftKeeper | None = None,
    ) -> None:
        super().__init__()
        self.session = session
        self.keymap = keymap or Keymap(ACTIONS)
        for entry in self.keymap.actions:
            for key in entry.keys:
                # Help is there on every screen, whatever covers the chat.
                self._bindings.bind(key, entry.command, entry.help, show=False, priority=entry.name == "help")
        self._model = model
        self._models = models
        self._chats = chats
        self._model_paths: Sequence[str] | None = None
        self._warnings = tuple(warnings)
        self._actions = Actions(self)
        self._panels_wanted = bool(session.settings.value("show_panels"))
        self.editing: str | None = None  # id of the message whose text is in the input
        self._draft_before = Draft()  # what was in the input before
        self._system_clipboard = Clipboard(self._write_to_terminal, os.environ)
        self._flashing: frozenset[str] = frozenset()
        self._flash_timer: Timer | None = None
        self._ticking: Timer | None = None
        self._speed = Speed()
        self.header = TitleBar()
        self.pane = ChatPane(lambda message: variant_of(session.conversation, message), message_keys())
        self.feed = Feed(self)
        self._top_rule = Rule(id="top-rule")
        self._input_rule = Rule(id="input-rule")
        self._suggestions = Suggestions()
        keys = commands_by_key(self.keymap.actions)
        self._input = InputBar(Prompt({"tab": "app.complete", **keys}, history, session.count_tokens))
        self._input.prompt.take_waiting = self._take_waiting
        self._drafts = drafts
        self._draft_timer: Timer | None = None
        self._folder = Path.cwd()  # where the names of files begin
        self._looked_at = ""  # the draft whose files are shown
        self._hints = Hints(hints(self.keymap.actions))
        self._panel_rule = VerticalRule()
        self._panels = Panels(self._text_of)
        self._panels.show_profile(session.settings.value("show_profile"))
        self._panels.styles.width = PANEL_WIDTH - 1
        for theme in themes.THEMES:
            self.register_theme(theme)
        if config_folder is not None:
            found = themes.user_themes(config_folder / "themes", self.available_themes)
            self._warnings += found.warnings
            for theme in found.themes:
                self.register_theme(theme)

    # Layout

    def get_default_screen(self) -> Screen[None]:
        return PlainScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield self.header
        yield self._top_rule
        with Row(id="middle"):
            with Column(id="chat"):
                yield self.pane
                yield self._suggestions
                yield self._input_rule
                yield self._input
            yield self._panel_rule
            yield self._panels
        yield self._hints

    def on_mount(self) -> None:
        self._set_first_theme()
        # Brought back by the shell, the terminal is empty; Textual would draw only what changes from then on.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.prompt.focus()
        if self._drafts is not None:
            self.prompt.set_draft(self._drafts.open())
        for warning in self._warnings:
            self.report(warning, "warning")
        self.pane.show_heat(self.session.settings.value("inspect_tokens"))
        self.feed.show_path()
        self.show_figures(Speed())
        self._ticking = self.set_interval(TICK, self._tick)
        self.set_interval(IDLE_TICK, self._tick)
        self.call_after_refresh(self._open_first)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height >= TALL, "-tall")
        self._arrange(event.size.width)

    def _arrange(self, width: int) -> None:
        shown = self._panels_wanted and width >= PANEL_COLUMNS
        self._panels.display = self._panel_rule.display = shown
        self._top_rule.set_joint(width - PANEL_WIDTH if shown else None)
        chat_width = width - PANEL_WIDTH if shown else width
        self.set_class(chat_width >= CENTERED_FROM, "-centered")
        self.show_figures(self._speed)

    def toggle_panels(self) -> None:
        self._panels_wanted = not self._panels_wanted
        if self._panels_wanted and self.size.width < PANEL_COLUMNS:
            self.say(
                f"The panels need a terminal of {PANEL_COLUMNS} columns; this one has {self.size.width}", "warning"
            )
        self._arrange(self.size.width)

    def _set_first_theme(self) -> None:
        name = self.session.settings.value("theme") or themes.DEFAULT
        if name not in self.available_themes:
            self.report(f"there is no theme {name!r}; /theme lists them", "warning")
            name = themes.DEFAULT
        self.theme = name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.shades(self.current_theme)

    def choose_theme(self, name: str, *, save: bool = True) -> None:
        """Takes a theme from now on, or for this session; where it cannot be saved, for the session as well."""
        try:
            self.session.set_setting("theme", name)
            if save and self.session.keeps_settings:
                self.session.save_setting("theme", name)
        except ChatError as error:
            self.report(str(error), "warning")
        self.setting_changed("theme")

    def show_themes(self) -> None:
        from tinyllm_chat.tui.theme_screen import ThemeScreen

        self.push_screen(ThemeScreen())

    # Events of the backend

    def _tick(self) -> None:
        self.feed.tick()
        if self._ticking is not None:
            if self.feed.idle:
                self._ticking.pause()
            else:
                self._ticking.resume()

    def wake(self) -> None:
        """Something was asked for: what comes of it is shown at once, and from now on at the full pace."""
        if self._ticking is not None:
            self._ticking.resume()
        self.feed.tick()

    # What is shown

    @property
    def prompt(self) -> Prompt:
        return self._input.prompt

    def say(self, text: str, severity: str = "information", seconds: float | None = None) -> None:
        """Something to read in passing."""
        kind = severity if severity in ("warning", "error") else "information"
        self.notify(clean_line(text), severity=kind, timeout=seconds, markup=False)  # type: ignore[arg-type]

    def report(self, text: str, severity: str, offers: Sequence[str] = ()) -> None:
        """Something that stays in sight: in the chat, unless it is good news. `offers`: actions that help."""
        if severity == "information":
            self.say(text)
        else:
            helpful = [entry for offer in offers for entry in ACTIONS if entry.name == offer]
            self.pane.add_note(text, severity, [Hint(entry.usage, entry.help, entry.command) for entry in helpful])

    def show_note(self, note: str) -> None:
        if note != self._input_rule.note:
            self._show_status(note)

    def show_figures(self, speed: Speed, sample: float | None = None) -> None:
        self._speed = speed
        if self._panels.display:
            model = self.session.model
            cache_type = model.cache_type if model is not None else ""
            self._panels.cache.show(
                CacheFigures(self._cache(), cache_type, self.session.conversation.cut, self.feed.reading)
            )
            self._panels.speed.show(speed, sample)
            self._panels.profile.show(self.session.profile)
            self._panels.sampling.show(self.session.sampling, self._flashing, self.session.preset or "")
        self._show_status(self._input_rule.note)

    def begin_curve(self) -> None:
        """Another answer begins: its speed is drawn from here on."""
        self._panels.speed.begin()

    def _cache(self) -> CacheState | None:
        """What is in the cache: nothing, as long as a model has not been asked anything."""
        model, cache = self.session.model, self.session.cache
        if cache is None and model is not None:
            full = model.context_length * model.cache_bytes_per_token
            return CacheState(0, model.context_length, 0, full)
        return cache

    def _show_status(self, note: str) -> None:
        line = None
        if not self._panels.display:
            line = status(self._cache(), self._speed.decode, self.session.sampling, self._flashing)
        self._input_rule.show(line, note)

    def flash(self, name: str) -> None:
        """Marks a value that was just changed."""
        self._flashing |= {name}
        if self._flash_timer is not None:
            self._flash_timer.stop()
        self._flash_timer = self.set_timer(FLASH_SECONDS, self._end_flash)
        self.show_figures(self._speed)

    def turn_values(self) -> None:
        """Lets the arrow keys turn the values of the sampling panel."""
        if self._panels.display:
            self._panels.sampling.focus()
        else:
            self.say(f"/set NAME VALUE turns any value; the panel needs {PANEL_COLUMNS} columns", "warning")

    def on_sampling_panel_turned(self, event: SamplingPanel.Turned) -> None:
        event.stop()
        if event.steps:
            self.session.nudge(event.name, event.steps)
        else:
            self.session.forget_setting(event.name)
        self.flash(event.name)

    def on_sampling_panel_left(self, event: SamplingPanel.Left) -> None:
        event.stop()
        self.prompt.focus()
        self.prompt.insert(event.text)

    def _end_flash(self) -> None:
        self._flashing = frozenset()
        self.show_figures(self._speed)

    def show_help(self) -> None:
        from tinyllm_chat.tui.screens import HelpScreen, help_of

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss(None)
        else:
            here = help_of(self.screen) if self.screen.is_modal else ()
            self.push_screen(HelpScreen(self.keymap.actions, here))

    def show_settings(self, first: str = "") -> None:
        from tinyllm_chat.tui.settings_screen import SettingsScreen

        self.push_screen(SettingsScreen(first.lower().replace("-", "_")))

    def setting_changed(self, name: str) -> None:
        """Shows what a setting that has another value now means for the screen."""
        if name == "theme":
            self._set_first_theme()
        elif name == "show_panels":
            self._panels_wanted = bool(self.session.settings.value(name))
            self._arrange(self.size.width)
        elif name == "inspect_tokens":
            self.pane.show_heat(self.session.settings.value(name))
        elif name == "show_profile":
            self.session.follow_profile()
            self._panels.show_profile(self.session.settings.value(name))
        elif name == "preset":
            try:
                self.session.use_preset(self.session.settings.value(name) or NONE)
            except ChatError as error:
                self.say(str(error), "error")
        self.show_figures(self._speed)
        self.wake()

    def show_palette(self) -> None:
        from textual.command import CommandPalette

        self.push_screen(CommandPalette())

    # Tokens

    @property
    def has_shades(self) -> bool:
        """Whether there are more colours than a terminal's own few."""
        return not (self.no_color or self.native_ansi_color)

    def inspect(self, message: Message, token: int | None = None) -> None:
        """Opens the inspector on an answer, which is read again first if that is needed to know about its tokens."""
        from tinyllm_chat.tui.inspector import InspectorScreen

        if not message.is_seen and message.state is not MessageState.WRITING:
            self.session.look_back(message.id)
        elif not message.choices:
            self.say("The tokens of this answer can be looked at when it is finished; /heat keeps them", "warning")
            return
        self.push_screen(InspectorScreen(message, token), self._branch)

    def _branch(self, picked: Picked | None) -> None:
        if picked is None:
            return
        try:
            self.session.branch(picked.message_id, picked.token, picked.place)
        except ChatError as error:
            self.say(str(error), "error")
            return
        self.pane.follow()
        self.wake()

    def turn_heat(self) -> None:
        """Colours answers by token, and keeps what their tokens were chosen from; or stops."""
        on = not self.pane.heated
        self.session.keep_choices(on)
        self.pane.show_heat(on)
        leaf = self.session.conversation.leaf
        if on and leaf is not None and leaf.role == "assistant" and not leaf.is_seen and not self.session.busy:
            self.session.look_back(leaf.id)

    def turn_profile(self) -> None:
        """Measures where the time of answers goes and shows it, or neither."""
        on = not self.session.settings.value("show_profile")
        self.session.show_profile(on)
        if on and not self._panels.display:
            self.say(f"The profile is shown in the panels, which need {PANEL_COLUMNS} columns", "warning")
        self._panels.show_profile(on)
        self.show_figures(self._speed)

    def show_details(self, message: Message) -> None:
        from tinyllm_chat.tui.details import DetailsScreen

        self.push_screen(DetailsScreen(message))

    def start_over(self) -> None:
        """The chat is another one."""
        self.leave_edit()
        self.pane.clear_notes()
        self.pane.follow()

    # Chats

    def choose_chat(self, words: str = "") -> None:
        """Lists the chats that are kept, those with all of `words`."""
        if self._chats is None:
            self.say("Chats are not kept here", "warning")
            return
        from tinyllm_chat.chat.keeper import Keeper
        from tinyllm_chat.tui.history import HistoryScreen

        self.push_screen(HistoryScreen(self._chats, Keeper(self.session, self._chats), words), self._chat_chosen)

    def _chat_chosen(self, chosen: ChosenChat | None) -> None:
        self.wake()  # another chat may have been deleted or renamed
        if chosen is None:
            return
        try:
            self.open_chat(chosen.id)
        except (ChatError, OSError) as error:
            self.say(str(error), "error")
            return
        messages = self.session.conversation.path()
        best = Query(chosen.words).best([message.content for message in messages])
        if best is not None:
            self.call_after_refresh(self.pane.scroll_to_message, messages[best].id)

    def open_chat(self, chat_id: str) -> None:
        """Raises ChatError."""
        if chat_id != self.session.chat_id:
            self.session.open_chat(chat_id)
            self.start_over()
            self.wake()

    # Models

    def _open_first(self) -> None:
        """Opens the model that was named, or lets the user choose one. The screen has been painted by now."""
        if self._model is not None:
            self.open_model(self._model)
        elif self.session.model is None:
            self.choose_model()

    def open_model(self, path: str) -> None:
        self.session.open_model(path)
        self.feed.opening(path)
        self.wake()

    def model_opened(self, path: str) -> None:
        """Remembers a model that was opened, for the next choice."""
        if (models := self._models) is not None:

            def remember() -> None:
                with contextlib.suppress(OSError):
                    models.opened(path)

            self.run_worker(remember, group="remember", thread=True)

    def choose_model(self) -> None:
        if self._models is None:
            self.say("No list of models here: name one on the command line", "warning")
            return
        from tinyllm_chat.tui.picker import ModelScreen

        self.push_screen(ModelScreen(self._models), self._model_chosen)

    def _model_chosen(self, choice: ModelChoice | None) -> None:
        if choice is None:
            return
        if choice.path is not None:
            self.open_model(choice.path)
        else:
            self.fetch_model(choice.name)

    def fetch_model(self, name: str) -> None:
        """Downloads a model and opens it."""
        if self._models is None:
            self.say("Models cannot be downloaded here", "warning")
            return
        self.feed.show_progress(Progress.of_stage(f"{clean_line(name)}: starting the download", 0, 0))
        self.run_worker(partial(self._fetch, name), group=DOWNLOAD, exclusive=True, thread=True)

    def model_paths(self) -> Sequence[str]:
        """Files of the models that are here, as soon as they are known: the first call looks for them."""
        if self._model_paths is None:
            self._model_paths = ()
            if self._models is not None:
                self.run_worker(self._look_for_models, thread=True)
        return self._model_paths

    def _look_for_models(self) -> None:
        """On a worker thread: folders may be slow."""
        assert self._models is not None
        with contextlib.suppress(ChatError, OSError):
            paths = tuple(choice.path for choice in self._models.choices() if choice.path is not None)
            self.call_from_thread(self._found_models, paths)

    def _found_models(self, paths: tuple[str, ...]) -> None:
        self._model_paths = paths
        self.on_text_area_changed()

    def stop_download(self) -> None:
        self.workers.cancel_group(self, DOWNLOAD)

    def _fetch(self, name: str) -> None:
        """On a worker thread: downloads a model, then has it opened."""
        assert self._models is not None

        worker = get_current_worker()

        def progress(stage: str, done: int, total: int) -> None:
            if worker.is_cancelled:
                raise DownloadCancelled(f"the download of {name} was stopped")
            self.call_from_thread(self.feed.show_progress, Progress.of_stage(f"{name}: {stage}", done, total))

        try:
            path = self._models.fetch(name, progress)
        except (ChatError, OSError) as error:
            if self.is_running:
                self.call_from_thread(self._fetch_failed, str(error))
        else:
            self.call_from_thread(self.open_model, path)

    def _fetch_failed(self, message: str) -> None:
        self.feed.show_progress(None)
        self.report(message, "error")

    # Actions

    def action_act(self, name: str, argument: str = "") -> None:
        self.run_entry(next(entry for entry in ACTIONS if entry.name == name), argument)

    def choose_action(self, entry: Action) -> None:
        """From the palette: what needs an argument is put into the input to be completed."""
        if entry.needs_argument:
            self.prompt.set_text(f"/{entry.slash[0]} ")
            self.prompt.focus()
        else:
            self.run_entry(entry)

    def run_entry(self, entry: Action, argument: str = "") -> bool:
        """Runs an action and shows what is wrong; False if something was."""
        return self.attempt(lambda: entry.run(self._actions, argument))

    def attempt(self, what: Callable[[], None]) -> bool:
        """Does something that may be refused, and shows that it was; False then."""
        try:
            what()
        except (ChatError, OSError) as error:
            self.say(str(error), "error")
            return False
        self.wake()
        return True

    def submit(self, text: str, typed: str | None = None) -> None:
        """Sends a text, or does what it commands. `typed`: the part of it that may name files; None: all of it.

        Raises ChatError for what cannot be sent.
        """
        if not text.strip():
            return
        if self.editing is None and is_command(text.strip()):
            self._command(text.strip())
            return
        known = self._attached_to(self.editing)
        files = attachments(text if typed is None else typed, self._folder, known)
        if self.editing is not None:
            self._finish_edit(self.editing, text, files)
        else:
            self.session.send(text.replace("//", "/", 1) if text.startswith("//") else text, files)
        self.prompt.remember(text)
        self.pane.follow()
        self.pane.show_queued(self.session.queued)
        if self.session.model is None and self.session.loading is None:
            self.say("No model is open: the message waits. /model opens one", "warning")

    def _attached_to(self, message_id: str | None) -> tuple[Attachment, ...]:
        conversation = self.session.conversation
        return conversation[message_id].attachments if message_id is not None and message_id in conversation else ()

    def _command(self, text: str) -> None:
        try:
            entry, argument = COMMANDS.parse(text)
        except UnknownCommand as error:
            self.say(str(error), "error")
            self.prompt.give_back(text)
            return
        if self.run_entry(entry, argument):
            self.prompt.remember(text)
        else:
            self.prompt.give_back(text)

    def begin_edit(self, message: Message) -> None:
        """Puts a message into the input; sending makes another branch of it."""
        if self.editing is None:
            self._draft_before = self.prompt.draft
        self.editing = message.id
        self.prompt.set_text(message.content)

    def leave_edit(self) -> bool:
        """Puts back what was in the input before; False if nothing was being edited."""
        if self.editing is None:
            return False
        self.editing, draft, self._draft_before = None, self._draft_before, Draft()
        self.prompt.set_draft(draft)
        return True

    def _finish_edit(self, message_id: str, text: str, files: Sequence[Attachment]) -> None:
        if message_id not in self.session.conversation:
            self.session.send(text, files)
        elif self.session.conversation[message_id].role == "assistant":
            self.session.edit_answer(message_id, text)
        else:
            self.session.resend(message_id, text, files)
        self.leave_edit()

    def copy_to_clipboard(self, text: str) -> None:
        """What the widgets of the library call."""
        self.copy(text, "What is selected")

    def copy(self, text: str, what: str) -> None:
        """Puts a text on the clipboard and says what became of it."""
        self._clipboard = text
        if self._system_clipboard.tools:
            self.run_worker(partial(self._copy_with_tool, text, what), group=CLIPBOARD, thread=True)
        else:
            self._say_copied(self._system_clipboard.send(text), text, what)

    def _copy_with_tool(self, text: str, what: str) -> None:
        """On a worker thread: programs may be slow."""
        copied = self._system_clipboard.copy(text)
        if self.is_running:
            self.call_from_thread(self._say_copied, copied, text, what)

    def _say_copied(self, copied: Copied, text: str, what: str) -> None:
        size = f"{what}, {len(text):,} {'character' if len(text) == 1 else 'characters'}"
        self.say(f"{clean_line(size)}: {copied.how}", "information" if copied.done else "warning")

    def _write_to_terminal(self, sequence: str) -> None:
        if self._driver is not None:
            self._driver.write(sequence)

    def edit_system_prompt(self) -> None:
        from tinyllm_chat.tui.system_prompt import SystemPromptScreen

        system = self.session.conversation.system
        self.push_screen(SystemPromptScreen(system.content if system is not None else ""), self._system_prompt_edited)

    def _system_prompt_edited(self, text: str | None) -> None:
        if text is not None:
            self.attempt(lambda: self.session.set_system_prompt(text))

    def edit_outside(self) -> None:
        """Has the draft written in the user's own editor. Raises EditorError."""
        from tinyllm_chat.tui.editor import edited

        self.prompt.set_text(clean(edited(self.prompt.whole_text, self.suspend)))

    def return_to_prompt(self, texts: Sequence[str]) -> None:
        """Gives back what was waiting to be sent."""
        if texts:
            text = "\n".join(texts)
            self.prompt.give_back(f"/{text}" if text.startswith("/") else text)  # no command: see `submit`
            self.pane.show_queued(())

    def action_complete(self) -> None:
        """Completes what is typed to the first that is suggested, and pressed again to the next."""
        completed = self._suggestions.completed(self.prompt.text)
        if completed is not None:
            self.prompt.set_draft(Draft(completed, self.prompt.draft.folded))

    def on_text_area_changed(self) -> None:
        self._suggestions.show(self._suggest())
        self._looked_at = ""
        if self._drafts is not None:
            if self._draft_timer is not None:
                self._draft_timer.stop()
            self._draft_timer = self.set_timer(DRAFT_DELAY, self._save_draft)

    def _save_draft(self) -> None:
        if self._drafts is not None:
            self._drafts.save(self.prompt.draft)

    def on_unmount(self) -> None:
        self._save_draft()
        if self._drafts is not None:
            self._drafts.close()

    def _suggest(self) -> list[Suggestion]:
        """What the text before the cursor may become."""
        text = self.prompt.text
        if self.prompt.cursor_location == self.prompt.document.end:
            end = text[-NAME_CHARACTERS:]
            if (name := unfinished(end)) is not None:
                names = completions(name, self._folder)
                return [Suggestion(text[: -len(end)] + completed(end, each), each) for each in names if each != name]
        return COMMANDS.suggestions(text, self._actions) if len(text) < NAME_CHARACTERS else []

    def _take_waiting(self) -> bool:
        """Brings the last text that waits back into the input, if there is one."""
        if not self.session.queued:
            return False
        self.take_back()
        return True

    def on_input_bar_draft_changed(self, event: InputBar.DraftChanged) -> None:
        event.stop()
        self.count_draft()

    def count_draft(self) -> None:
        draft = self.prompt.draft
        if not draft.text.strip() or is_command(draft.text):
            self._input.count.show(None)
            return
        if draft.text != self._looked_at and not self._suggestions.tabbed:
            self._looked_at = draft.text
            self._suggestions.show(self._attached_now(draft.text))
        tokens, model = self.session.count_tokens(draft.whole), self.session.model
        if tokens is None and model is not None:
            self._input.count_on()
            return
        self._input.count.show(tokens, too_many=model is not None and (tokens or 0) > model.context_length)

    def _attached_now(self, typed: str) -> list[Suggestion]:
        """The files that go with what is typed, each with its size; or why it cannot go."""
        lines = []
        known = self._attached_to(self.editing)
        for name in mentioned(typed[:SHOWN_WHOLE], self._folder, [each.name for each in known]):
            try:
                (file,) = attachments(f'@"{name}"', self._folder, known)
            except ChatError as error:
                lines.append(Suggestion("", f"+ {name}", str(error).removeprefix(f"{name}: ")))
                continue
            tokens = self.session.count_tokens(file.text) if len(file.text) <= SHOWN_WHOLE else None
            length = size(len(file.text.encode())) if tokens is None else count(tokens, "token")
            lines.append(Suggestion("", f"+ {name}", f"{length}, goes with the message"))
        return lines

    def on_chat_pane_variant_asked(self, event: ChatPane.VariantAsked) -> None:
        event.stop()
        self.attempt(lambda: self.session.select_sibling(event.message_id, event.step))

    def _text_of(self, message_id: str) -> str:
        conversation = self.session.conversation
        if message_id in conversation:
            return conversation[message_id].content
        system = conversation.system
        return system.content if system is not None and system.id == message_id else ""

    def on_cache_panel_message_chosen(self, event: CachePanel.MessageChosen) -> None:
        event.stop()
        self.pane.scroll_to_message(event.message_id)

    def on_chat_pane_token_clicked(self, event: ChatPane.TokenClicked) -> None:
        event.stop()
        self.inspect(self.session.conversation[event.message_id], event.token)

    def on_chat_pane_link_clicked(self, event: ChatPane.LinkClicked) -> None:
        event.stop()
        self.copy(event.address, f"The address {event.address}")

    def on_chat_pane_waiting_clicked(self, event: ChatPane.WaitingClicked) -> None:
        event.stop()
        self.take_back(event.index)

    def take_back(self, index: int = -1) -> None:
        """Puts a text that waits back into the input."""
        self.prompt.give_back(self.session.take_back(index))
        self.pane.show_queued(self.session.queued)
        self.prompt.focus()

    def on_chat_pane_typed(self, event: ChatPane.Typed) -> None:
        event.stop()
        self.pane.select(None)
        self.prompt.focus()
        self.prompt.paste(event.text)

    def on_chat_pane_focus_changed(self) -> None:
        self._hints.show(message_hints() if self.pane.has_focus else hints(self.keymap.actions))


def hints(actions: Sequence[Action] = ACTIONS) -> list[Hint]:
    """What stands at the foot of the screen: of actions that have a key."""
    keys = {entry.name: entry.keys[0] for entry in actions if entry.keys}

    def shown(entry: Action) -> str:
        other = keys.get(entry.hint_with)
        return pair_name(keys[entry.name], other) if other else key_name(keys[entry.name])

    return [
        Hint(shown(entry), entry.hint, entry.command, entry.rank)
        for entry in actions
        if entry.hint and entry.name in keys
    ]


def message_hints() -> list[Hint]:
    """What stands there while single keys act on the selected message."""
    return [
        Hint(key_names(entry)[len(entry.keys)], entry.message_hint, entry.command, rank)
        for rank, entry in enumerate(ACTIONS)
        if entry.message_hint
    ]


def message_keys() -> dict[str, str]:
    """The action string of every key that acts on the selected message."""
    keys = {key: entry.command for entry in ACTIONS for key in entry.message_keys}
    return keys | {str(number): f"app.act('copy_code', '{number}')" for number in range(1, 10)}


def run(
    session: Session,
    *,
    model: str | None = None,
    models: ModelSource | None = None,
    chats: ChatLibrary | None = None,
    warnings: Sequence[str] = (),
    keys: Mapping[str, Any] | None = None,
    config_folder: Path | None = None,
    history: PromptHistory | None = None,
    drafts: DraftKeeper | None = None,
    log_file: Path | None = None,
) -> int:
    """Shows the chat until the user leaves; returns the exit code. The session stays the caller's to close.

    `keys`: what the user wants of keys, by the names of actions.
    """
    chosen = keymap(ACTIONS, keys or {})
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        with stderr_to_log(log_file):
            app = TinyLLMChatApp(
                session,
                model=model,
                models=models,
                chats=chats,
                warnings=[*warnings, *chosen.warnings],
                keymap=chosen,
                config_folder=config_folder,
                history=history,
                drafts=drafts,
            )
            app.run()
        if app.return_code:
            where = f"; details are in {log_file}" if log_file is not None else ""
            print(f"tinyllm-chat: the screen stopped with an unexpected error{where}", file=sys.stderr)
        return app.return_code or 0
    finally:
        sys.setswitchinterval(before)
