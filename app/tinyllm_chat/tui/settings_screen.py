"""Every setting with its value, where that comes from and what it may be; changed in place, made from the schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.chat.settings import CONFIG, SCHEMA, SESSION, TABLES, Setting, Settings, nudge, parse, unescaped
from tinyllm_chat.tui.registry import values_of
from tinyllm_chat.tui.text import clean_line, sampling_value
from tinyllm_chat.tui.widgets.bars import Hint, Hints
from tinyllm_chat.tui.widgets.fields import Field
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED, lines, row

if TYPE_CHECKING:
    from tinyllm_chat.tui.app import TinyLLMChatApp

# When a change is felt, if not at once.
_LATER = {
    **dict.fromkeys(("model", "plain"), "at the next start"),
    **dict.fromkeys(
        (
            "lora",
            "context_length",
            "threads",
            "cache_type_k",
            "cache_type_v",
            "chat_template",
            "keep_kv",
            "keep_kv_max_mb",
        ),
        "when a model is opened",
    ),
    **dict.fromkeys(("context_full", "keep", "max_tokens", "think", "stop"), "from the next answer on"),
    "system_prompt": "in new chats",
}
NAME_COLUMN, ORIGIN_COLUMN = 21, 12
_ORIGINS = {SESSION: "this session", CONFIG: "config.toml"}
_LIST_HINTS = (
    Hint("Enter", "change", "screen.edit", 0),
    Hint("←→", "turn", "screen.turn(1)", 3),
    Hint("Ctrl+S", "save to config.toml", "screen.save", 2),
    Hint("Ctrl+R", "reset", "screen.reset", 4),
    Hint("type", "to search", "screen.search", 5),
    Hint("Esc", "close", "screen.close", 1),
)
_FIELD_HINTS = (Hint("Enter", "set", "screen.enter", 0), Hint("Esc", "leave as it was", "screen.close", 1))


class SettingsScreen(ModalScreen[None]):
    """What is changed here holds for this session, until it is saved."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "close", "Leave the field, the search, the settings", show=False),
        Binding("left", "turn(-1)", "Turn a number down, or take the value before", show=False),
        Binding("right", "turn(1)", "Turn a number up, or take the next value", show=False),
        Binding("ctrl+s,f4", "save", "Save the setting to config.toml", show=False),
        Binding("ctrl+r,delete", "reset", "Go back to the value before: of config.toml, or the default", show=False),
    ]

    def __init__(self, first: str = "") -> None:
        """`first`: the setting to begin with."""
        super().__init__()
        self._first = first
        self._search = ""
        self._names: list[str] = []
        self._error = ""
        self._of = ""  # the setting that the error is about

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet -high"):
            yield Static(classes="title")
            yield OptionList(markup=False)
            yield Static(classes="detail")
            yield Field(classes="field", compact=True, select_on_focus=False)
            yield Hints(_LIST_HINTS)

    def on_mount(self) -> None:
        self._field.display = False
        self._show(self._first)
        self._list.focus()

    # What is seen

    @property
    def _chat(self) -> TinyLLMChatApp:
        return cast("TinyLLMChatApp", self.app)

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _field(self) -> Input:
        return self.query_one(Input)

    @property
    def _chosen(self) -> Setting | None:
        place = self._list.highlighted
        return None if place is None else SCHEMA.get(self._list.get_option_at_index(place).id or "")

    def on_resize(self) -> None:
        self._show()

    def _show(self, name: str = "") -> None:
        """All settings that are searched for; the one of that name, else the one that was chosen, is chosen."""
        chosen = name or (self._chosen.name if self._chosen is not None else "")
        self._names = [setting.name for setting in SCHEMA.values() if _matches(setting, self._search)]
        title = Content.styled("Settings", f"bold {ACCENT}")
        if self._search:
            found = self._search if self._names else f"{self._search} (none)"
            title = Content.assemble(title, (f"  {clean_line(found)}", ""))
        self.query_one(".title", Static).update(title)
        width = self._list.scrollable_content_region.width or 60
        options: list[Option] = []
        for table in TABLES:
            names = [name for name in self._names if SCHEMA[name].table == table]
            if names:
                heading = Content.styled(table.capitalize(), "bold")
                options.append(Option(lines([Content(), heading] if options else [heading]), disabled=True))
            options += [Option(_line(self._chat.session.settings, name, width), id=name) for name in names]
        self._list.clear_options()
        self._list.add_options(options)
        if chosen in self._names:
            self._list.highlighted = self._list.get_option_index(chosen)
        elif self._names:
            self._list.action_first()
        self._show_detail()

    def _show_detail(self) -> None:
        setting = self._chosen
        rows = [Content(), Content()]
        if setting is not None:
            later = _LATER.get(setting.name)
            rows = [
                Content(f"{setting.help} It takes effect {later}." if later else setting.help),
                Content.styled(_allowed(setting), MUTED),
            ]
        if self._error:
            rows[1] = Content.styled(clean_line(self._error), "$error")
        self.query_one(".detail", Static).update(lines(rows))
        self.call_after_refresh(self._list.scroll_to_highlight)  # more lines there leave fewer for the list

    def _say(self, error: str = "") -> None:
        self._error, self._of = error, self._chosen.name if self._chosen is not None else ""
        self._show_detail()

    # What is done

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if self._of != event.option_id:
            self._say()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_edit()

    def on_key(self, event: events.Key) -> None:
        """Letters search."""
        if self._field.has_focus:
            return
        if event.is_printable and event.character is not None and event.character != " ":
            self._search += event.character
        elif event.key == "backspace":
            self._search = self._search[:-1]
        else:
            return
        event.stop()
        self._show()

    def action_edit(self) -> None:
        """A setting with few values takes the next; another one is written into the field."""
        setting = self._chosen
        if setting is None:
            return
        if values_of(setting):
            self.action_turn(1)
            return
        self._field.value = _as_text(self._value(setting))
        self._field.cursor_position = len(self._field.value)
        self._field.display = True
        self._field.focus()
        if not isinstance(setting.default, str | tuple):
            self._field.select_all()  # a number is rather written anew
        self.query_one(Hints).show(_FIELD_HINTS)

    @on(Input.Submitted)
    def action_enter(self) -> None:
        setting, text = self._chosen, self._field.value
        if setting is None:
            return
        if isinstance(setting.default, str):
            text = unescaped(text)
        if self._try(lambda: self._chat.session.set_setting(setting.name, parse(setting.name, text)), setting):
            self._close_field()

    def action_turn(self, step: int) -> None:
        setting = self._chosen
        if setting is None or self._field.has_focus:
            return
        values = values_of(setting)

        def turn() -> None:
            if values:
                now = _as_text(self._value(setting))
                value = parse(setting.name, values[(values.index(now) + step) % len(values)])
            else:
                value = nudge(setting.name, self._value(setting), step)
            self._chat.session.set_setting(setting.name, value)

        self._try(turn, setting)

    def action_save(self) -> None:
        setting = self._chosen
        if setting is None or self._field.has_focus:
            return
        session = self._chat.session
        if self._try(lambda: session.save_setting(setting.name, self._value(setting)), setting):
            origin = session.settings.origin(setting.name)
            stronger = "" if origin == CONFIG else f"; the {origin} says otherwise, and holds in this run"
            self._chat.say(f"Saved {setting.name}{stronger}")

    def action_reset(self) -> None:
        """Takes the session's value back, then that of the file."""
        setting = self._chosen
        if setting is None or self._field.has_focus:
            return
        session = self._chat.session
        origin = session.settings.origin(setting.name)
        if origin == SESSION:
            self._try(lambda: session.forget_setting(setting.name), setting)
        elif setting.name in session.settings.layers.get(CONFIG, {}):
            self._try(lambda: session.save_setting(setting.name, None), setting)
        else:
            self._say(f"that is the value of the {origin}" if origin != "built-in" else "that is the built-in value")

    def action_search(self) -> None:
        self._list.focus()

    def action_close(self) -> None:
        if self._field.has_focus:
            self._close_field()
            self._say()
        elif self._search:
            self._search = ""
            self._show()
        else:
            self.dismiss(None)

    def _close_field(self) -> None:
        self._field.display = False
        self._list.focus()
        self.query_one(Hints).show(_LIST_HINTS)

    def _value(self, setting: Setting) -> Any:
        return self._chat.session.settings.value(setting.name)

    def _try(self, change: Any, setting: Setting) -> bool:
        """Makes a change and shows what came of it; False if it was refused."""
        error = ""
        try:
            change()
        except ChatError as refused:
            error = str(refused)
        self._chat.setting_changed(setting.name)
        self._list.replace_option_prompt(
            setting.name, _line(self._chat.session.settings, setting.name, self._list.scrollable_content_region.width)
        )
        self._say(error)
        return not error


def _matches(setting: Setting, search: str) -> bool:
    words = search.lower().replace("-", "_")
    return words in setting.name or search.lower() in setting.help.lower()


def _line(settings: Settings, name: str, width: int) -> Content:
    value, origin = settings.value(name), settings.origin(name)
    left = Content(f"{name:<{NAME_COLUMN}} ")
    source = Content.styled(f"{_ORIGINS.get(origin, origin):<{ORIGIN_COLUMN}}", ACCENT if origin == SESSION else MUTED)
    room = max(1, width - left.cell_length - ORIGIN_COLUMN - 2)
    changed = value != SCHEMA[name].default
    middle = Content.styled(_shown(value), "bold" if changed else "").truncate(room, ellipsis=True)
    return row(Content.assemble(left, middle), source, width)


def _allowed(setting: Setting) -> str:
    text = setting.expected[0].upper() + setting.expected[1:]
    return f"{text}. Built-in: {_shown(setting.default) if setting.default != '' else 'empty'}."


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return clean_line(sampling_value(value)) or "–"


def _as_text(value: Any) -> str:
    """What can be written into the field to have this value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return json.dumps(list(value), ensure_ascii=False)
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    return str(value)
