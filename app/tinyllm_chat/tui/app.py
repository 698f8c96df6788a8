"""The full-screen chat: lays the widgets out, runs actions, and hands events on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.driver import Driver
from textual.screen import Screen
from textual.timer import Timer

from tinyllm_chat.chat.conversation import MessageState
from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.chat.finding import Query
from tinyllm_chat.chat.signals import ending_with
from tinyllm_chat.tui import themes
from tinyllm_chat.tui.actions import ACTIONS, Actions
from tinyllm_chat.tui.copying import Copying
from tinyllm_chat.tui.feed import Feed, variant_of
from tinyllm_chat.tui.figures import Figures
from tinyllm_chat.tui.guard import stderr_to_log
from tinyllm_chat.tui.hints import hints, message_hints, message_keys
from tinyllm_chat.tui.input_parser import use_input_parser
from tinyllm_chat.tui.keymap import Keymap, keymap
from tinyllm_chat.tui.model_choosing import ModelChoosing
from tinyllm_chat.tui.models import ModelSource
from tinyllm_chat.tui.palette import ActionProvider
from tinyllm_chat.tui.registry import Action
from tinyllm_chat.tui.steady import SteadyApp
from tinyllm_chat.tui.text import clean_line
from tinyllm_chat.tui.widgets.bars import Hint, Hints, TitleBar
from tinyllm_chat.tui.widgets.cache import CachePanel
from tinyllm_chat.tui.widgets.ground import Column, PlainScreen, Row
from tinyllm_chat.tui.widgets.lines import Piece
from tinyllm_chat.tui.widgets.pane import ChatPane
from tinyllm_chat.tui.widgets.prompt import InputBar, Prompt
from tinyllm_chat.tui.widgets.sampling import SamplingPanel
from tinyllm_chat.tui.writing import Writing

if TYPE_CHECKING:
    from tinyllm_chat.chat.conversation import Message
    from tinyllm_chat.chat.drafts import DraftKeeper
    from tinyllm_chat.chat.library import ChatLibrary
    from tinyllm_chat.chat.prompt_history import PromptHistory
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.tui.history import ChosenChat
    from tinyllm_chat.tui.inspector import Picked

TALL = 30  # rows from which there is room for empty ones
TICK = 1 / 20  # seconds between two looks at what the backend did, while something is expected
IDLE_TICK = 1.0
# Seconds after which a running thread hands the interpreter on. With Python's 5 ms the thread that calls the engine for
# every token waits for the screen longer than a token takes.
SWITCH_INTERVAL = 0.0005


class TinyLLMChatApp(SteadyApp, inherit_bindings=False):
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
        self._chats = chats
        self._warnings = tuple(warnings)
        self._actions = Actions(self)
        self._ticking: Timer | None = None
        self.header = TitleBar()
        self.pane = ChatPane(lambda message: variant_of(session.conversation, message), message_keys())
        self.feed = Feed(self)
        self.figures = Figures(self)
        self.writing = Writing(self, self._actions, history, drafts)
        self.models = ModelChoosing(self, models)
        self._copying = Copying(self, self._write_to_terminal)
        self._hints = Hints(hints(self.keymap.actions))
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

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        use_input_parser(driver)
        return driver

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.figures.top_rule
        with Row(id="middle"):
            with Column(id="chat"):
                yield self.pane
                yield self.writing.suggestions
                yield self.figures.input_rule
                yield self.writing.bar
            yield self.figures.panel_rule
            yield self.figures.panels
        yield self._hints

    def on_mount(self) -> None:
        self._set_first_theme()
        # Brought back by the shell, the terminal is empty; Textual would draw only what changes from then on.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.prompt.focus()
        self.writing.open_draft()
        for warning in (*self._warnings, *self.writing.warnings):
            self.report(warning, "warning")
        self.pane.show_heat(self.session.settings.value("inspect_tokens"))
        self.feed.show_path()
        self.figures.show()
        self._ticking = self.set_interval(TICK, self._tick)
        self.set_interval(IDLE_TICK, self._tick)
        self.call_after_refresh(self._open_first)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height >= TALL, "-tall")
        self.figures.arrange(event.size.width)

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
        self.look_for_terminal()
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
        return self.writing.prompt

    def say(self, text: str, severity: str = "information", seconds: float | None = None) -> None:
        """Something to read in passing."""
        kind = severity if severity in ("warning", "error") else "information"
        self.notify(clean_line(text), severity=kind, timeout=seconds, markup=False)  # type: ignore[arg-type]

    def report(self, text: str, severity: str, offers: Sequence[str] = ()) -> Piece | None:
        """Something that stays in sight: as a note in the chat, unless it is good news. `offers`: actions that help."""
        if severity == "information":
            self.say(text)
            return None
        helpful = [entry for offer in offers for entry in ACTIONS if entry.name == offer]
        return self.pane.add_note(text, severity, [Hint(entry.usage, entry.help, entry.command) for entry in helpful])

    def show_help(self) -> None:
        from tinyllm_chat.tui.screens import HelpScreen, help_of

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss(False)
        else:
            here = help_of(self.screen) if self.screen.is_modal else ()
            self.push_screen(HelpScreen(self.keymap.actions, here), self._help_left)

    def _help_left(self, searching: bool | None) -> None:
        if searching:
            self.show_palette()

    def show_settings(self, first: str = "") -> None:
        from tinyllm_chat.tui.settings_screen import SettingsScreen

        self.push_screen(SettingsScreen(first.lower().replace("-", "_")))

    def setting_changed(self, name: str) -> None:
        """Shows what a setting that has another value now means for the screen."""
        if name == "theme":
            self._set_first_theme()
        elif name == "show_panels":
            self.figures.want(panels=bool(self.session.settings.value(name)))
        elif name == "inspect_tokens":
            self.pane.show_heat(self.session.settings.value(name))
        elif name == "show_profile":
            self.session.follow_profile()
            self.figures.panels.show_profile(self.session.settings.value(name))
        self.figures.show()
        self.wake()

    def show_palette(self) -> None:
        from textual.command import CommandPalette

        self.push_screen(CommandPalette())

    # Tokens

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

    def show_details(self, message: Message) -> None:
        from tinyllm_chat.tui.details import DetailsScreen

        self.push_screen(DetailsScreen(message))

    def start_over(self) -> None:
        """The chat is another one."""
        self.writing.leave_edit()
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
        self.stand()
        if self._model is not None:
            self.models.open(self._model)
        elif self.session.model is None:
            self.models.choose()

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
        except Exception as error:
            self.mishap(error)
            return False
        self.wake()
        return True

    def action_complete(self) -> None:
        self.writing.complete()

    def copy_to_clipboard(self, text: str) -> None:
        """What the widgets of the library call."""
        self.copy(text, "What is selected")

    def copy(self, text: str, what: str) -> None:
        """Puts a text on the clipboard and says what became of it."""
        self._clipboard = text
        self._copying.copy(text, what)

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

    # Events of the widgets

    def on_text_area_changed(self) -> None:
        self.writing.changed()

    def on_input_bar_draft_changed(self, event: InputBar.DraftChanged) -> None:
        event.stop()
        self.writing.count()

    def on_unmount(self) -> None:
        self.writing.close()

    def on_sampling_panel_turned(self, event: SamplingPanel.Turned) -> None:
        event.stop()
        if event.steps:
            self.session.nudge(event.name, event.steps)
        else:
            self.session.forget_setting(event.name)
        self.figures.flash(event.name)

    def on_sampling_panel_left(self, event: SamplingPanel.Left) -> None:
        event.stop()
        self.prompt.focus()
        self.prompt.insert(event.text)

    def on_chat_pane_variant_asked(self, event: ChatPane.VariantAsked) -> None:
        event.stop()
        self.attempt(lambda: self.session.select_sibling(event.message_id, event.step))

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
        self.writing.take_back(event.index)

    def on_chat_pane_typed(self, event: ChatPane.Typed) -> None:
        event.stop()
        self.pane.select(None)
        self.prompt.focus()
        self.prompt.paste(event.text)

    def on_chat_pane_focus_changed(self) -> None:
        self._hints.show(message_hints() if self.pane.has_focus else hints(self.keymap.actions))


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
            with ending_with(app.leave):
                app.run()
        if app.return_code and not app.asked_to_leave:
            where = f"; details are in {log_file}" if log_file is not None else ""
            print(f"tinyllm-chat: the screen stopped with an unexpected error{where}", file=sys.stderr)
        return app.return_code or 0
    finally:
        sys.setswitchinterval(before)
