"""The chats that are kept, on a sheet over the chat: searched as one types, opened, renamed, pinned, deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.chat.finding import Snippet, is_query
from tinyllm_chat.chat.history import ChatSummary, Hit
from tinyllm_chat.tui.steady import is_open
from tinyllm_chat.tui.text import clean_line, count, size
from tinyllm_chat.tui.widgets.bars import Hint, Hints
from tinyllm_chat.tui.widgets.fields import Field
from tinyllm_chat.tui.widgets.fitted import MOVES, FittedList
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED, lines

PAGE = 200  # chats that are put into the list at a time
MOST_HITS = 50
MODEL_WIDTH = 18
COUNTED, WIDE = 64, 84  # cells of the list from which the number of messages is shown, and the size
_SEARCH, _RENAME = "Search in all chats", "New title; empty: its first message"
_KEYS = (
    Hint("Enter", "open", "screen.open"),
    Hint("Ctrl+R", "rename", "screen.rename", 3),
    Hint("Ctrl+T", "pin", "screen.pin", 4),
    Hint("Ctrl+D", "delete", "screen.delete", 2),
    Hint("Ctrl+Z", "undo", "screen.undo", 5),
    Hint("Esc", "close", "screen.leave", 1),
)
_RENAME_KEYS = (Hint("Enter", "save", "screen.open"), Hint("Esc", "back", "screen.leave", 1))


class ChatSource(Protocol):
    """The chats, as `chat.library` keeps them. All but `deleted_here` may be slow and is called on worker threads."""

    deleted_here: list[str]  # what undo brings back, the last first

    def update(self, progress: Callable[[int, int], None], cancelled: Callable[[], bool]) -> None: ...
    def count(self) -> int: ...
    def chats(self, limit: int, offset: int) -> list[ChatSummary]: ...
    def search(self, text: str, limit: int) -> list[Hit]: ...
    def open_chats(self) -> set[str]: ...
    def restore(self, chat_id: str) -> None: ...


class ChatKeeper(Protocol):
    """Who changes chats, the open one too. Raises ChatError."""

    @property
    def chat_id(self) -> str | None:
        """The chat that is open here."""

    def rename_chat(self, chat_id: str, title: str) -> None: ...
    def pin_chat(self, chat_id: str, pinned: bool) -> None: ...
    def delete_chat(self, chat_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ChosenChat:
    """The chat to open, and the words that it was found by."""

    id: str
    words: str


class HistoryScreen(ModalScreen[ChosenChat | None]):
    """Comes back with the chat to open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "Close", show=False, priority=True),
        *MOVES,
        Binding("ctrl+home", "move('first')", show=False, priority=True),
        Binding("ctrl+end", "move('last')", show=False, priority=True),
        Binding("ctrl+r,f2", "rename", "Rename", show=False, priority=True),
        Binding("ctrl+t", "pin", "Pin", show=False, priority=True),
        Binding("ctrl+d", "delete", "Delete", show=False, priority=True),
        Binding("ctrl+z", "undo", "Undo", show=False, priority=True),
    ]

    def __init__(
        self, source: ChatSource, keeper: ChatKeeper, query: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self._source = source
        self._keeper = keeper
        self._query = query
        self._clock = clock
        self._hits: list[Hit] = []
        self._all = 0  # chats that there are
        self._open: set[str] = set()
        self._renaming: ChatSummary | None = None
        self._progress = ""
        self._problem = ""
        self._indexed = False  # have all chats been looked at?
        self._found_for: str | None = None  # the query that the list was last filled for
        self._complete = False  # is everything that matches in the list?

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet -high"):
            yield Static(classes="title")
            yield Field(self._query, placeholder=_SEARCH, compact=True, select_on_focus=False)
            yield FittedList()
            yield Static(classes="empty")
            yield Static(classes="foot")
            yield Hints(_KEYS)

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        self._show_frame()
        self._look()
        self.run_worker(self._update, group="update", exclusive=True, thread=True)

    # What is listed

    @property
    def _list(self) -> FittedList:
        return self.query_one(FittedList)

    @property
    def _chosen(self) -> ChatSummary | None:
        index = self._list.highlighted
        option = self._list.get_option_at_index(index) if index is not None else None
        return None if option is None or option.id is None else self._hits[int(option.id)].chat

    def _update(self) -> None:
        """On a worker thread: brings the index up to date."""
        worker = get_current_worker()

        def progress(done: int, total: int) -> None:
            if not worker.is_cancelled and total:
                self.app.call_from_thread(self._show_progress, done, total)

        try:
            self._source.update(progress, lambda: worker.is_cancelled)
        except (ChatError, OSError) as error:
            self.app.call_from_thread(self._fail, str(error))
            return
        if not worker.is_cancelled:
            self.app.call_from_thread(self._updated)

    def _show_progress(self, done: int, total: int) -> None:
        if not is_open(self):
            return
        if not self._hits and done:
            self._look()
        self._progress = f"reading {done} of {total}" if total > done else ""
        self._show_frame()

    def _updated(self) -> None:
        if is_open(self):
            self._progress, self._indexed = "", True
            self._look()

    def _look(self, more: int = 0) -> None:
        """Fills the list, on a worker thread: as much as is in it now and `more`."""
        wanted = max(PAGE, len(self._hits) + more)
        self.run_worker(lambda: self._find(self._query, wanted), group="find", exclusive=True, thread=True)

    def _find(self, query: str, wanted: int) -> None:
        worker = get_current_worker()
        try:
            if is_query(query):
                hits = self._source.search(query, MOST_HITS)
                complete = len(hits) < MOST_HITS
            else:
                hits = [Hit(chat, Snippet("")) for chat in self._source.chats(wanted, 0)]
                complete = len(hits) < wanted
            found = (query, hits, complete, self._source.count(), self._source.open_chats())
        except (ChatError, OSError) as error:
            self.app.call_from_thread(self._fail, str(error))
            return
        if not worker.is_cancelled:
            self.app.call_from_thread(self._found, *found)

    def _found(self, query: str, hits: list[Hit], complete: bool, total: int, open_chats: set[str]) -> None:
        if query != self._query or not is_open(self):
            return
        chosen, place = self._chosen, self._list.highlighted
        self._found_for = query
        self._hits, self._complete, self._all, self._open = hits, complete, total, open_chats
        self._fill(chosen.id if chosen is not None else None, place)

    def _fail(self, message: str) -> None:
        if is_open(self):
            self._problem = message
            self._show_frame()

    def _fill(self, chosen: str | None, place: int | None) -> None:
        """Puts the chats into the list; the same one stays chosen, else the one in its place."""
        width = self._list.row_width
        options: list[Option] = []
        at, heading = None, None
        for index, hit in enumerate(self._hits):
            if (day := self._day(hit.chat)) != heading:
                heading = day
                first = "" if not options else "\n"
                options.append(Option(Content.styled(f"{first}{day}", MUTED), disabled=True))
            if hit.chat.id == chosen:
                at = len(options)
            options.append(Option(lines(self._rows(hit, width)), id=str(index)))
        self._list.clear_options()
        self._list.add_options(options)
        if at is None and place is not None and options:
            at = min(place, len(options) - 1)
        if at is not None and not options[at].disabled:
            self._list.highlighted = at
        elif options:
            self._list.action_first()
        self._show_frame()

    def _rows(self, hit: Hit, width: int) -> Iterator[Content]:
        chat = hit.chat
        facts = self._facts(chat, width)
        room = max(8, width - facts.cell_length - 2)
        title = Content(clean_line(chat.title))
        yield Content.assemble(title.truncate(room, ellipsis=True, pad=True), "  ", facts)
        if chat.problem is not None:
            yield Content.styled(f"  {clean_line(chat.problem)}", "$warning").truncate(width, ellipsis=True)
        if hit.snippet.text:
            yield _marked(hit.snippet).truncate(width, ellipsis=True)

    def _facts(self, chat: ChatSummary, width: int) -> Content:
        if chat.id == self._keeper.chat_id:
            model = Content.styled("open here", ACCENT)
        elif chat.id in self._open:
            model = Content.styled("open elsewhere", "$warning")
        else:
            model = Content.styled(clean_line(chat.model or ""), MUTED)
        when = datetime.fromtimestamp(chat.modified)
        clock = f"{when.day} {when:%b}" if chat.pinned else f"{when:%H:%M}"
        parts = []
        if width >= COUNTED:
            parts.append(count(chat.messages, "message").rjust(13))
        if width >= WIDE:
            parts.append(size(chat.size).rjust(8))
        parts.append(clock.rjust(8))
        return Content.assemble(model.truncate(MODEL_WIDTH, ellipsis=True, pad=True), ("".join(parts), MUTED))

    @property
    def _today(self) -> date:
        return datetime.fromtimestamp(self._clock()).date()

    def _day(self, chat: ChatSummary) -> str:
        if chat.pinned:
            return "Pinned"
        day = datetime.fromtimestamp(chat.modified).date()
        ago = (self._today - day).days
        if ago in (0, 1):
            return ("Today", "Yesterday")[ago]
        year = "" if day.year == self._today.year else f" {day.year}"
        return f"{day:%A}, {day.day} {day:%B}{year}"

    def _show_frame(self) -> None:
        """Everything around the list."""
        title = "Rename" if self._renaming else "Chats"
        facts = self._progress or (count(self._all, "chat") if self._all else "")
        if is_query(self._query) and self._hits:
            facts = f"{len(self._hits)} found" if self._complete else f"the latest {len(self._hits)} that match"
        self.query_one(".title", Static).update(
            Content.assemble((title, f"bold {ACCENT}"), "   ", (facts, MUTED)),
        )
        empty = self.query_one(".empty", Static)
        nothing = not self._hits and self._indexed and self._found_for == self._query
        empty.display, self._list.display = nothing, not nothing
        if nothing:
            if is_query(self._query):
                text = "No chat has all of these words. Words are found from their beginning, accents do not matter."
            else:
                text = "No chats yet. What you write is kept, and will be found here."
            empty.update(Content.styled(text, MUTED))
        self.query_one(Hints).show(_KEYS if self._renaming is None else _RENAME_KEYS)
        problem = self.query_one(".foot", Static)
        problem.display = bool(self._problem)
        problem.update(Content.styled(clean_line(self._problem), "$error"))

    # What is done

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._renaming is None and event.value != self._query:
            self._query, self._problem = event.value, ""
            self._list.highlighted = None
            self._look()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """What Enter does: opens the chosen chat, or gives it the title that was typed."""
        if (chat := self._renaming) is not None:
            title = self.query_one(Input).value
            self._end_renaming()
            self._change(lambda: self._keeper.rename_chat(chat.id, title))
        elif (chosen := self._chosen) is not None:
            self._choose(chosen)

    def _choose(self, chat: ChatSummary) -> None:
        self.dismiss(ChosenChat(chat.id, self._query if is_query(self._query) else ""))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self._choose(self._hits[int(event.option_id)].chat)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        near_end = event.option_index >= self._list.option_count - PAGE // 4
        if near_end and not self._complete and not is_query(self._query):
            self._look(PAGE)

    def on_fitted_list_width_changed(self, event: FittedList.WidthChanged) -> None:
        event.stop()
        chosen = self._chosen
        self._fill(chosen.id if chosen is not None else None, None)

    def action_move(self, how: str) -> None:
        getattr(self._list, f"action_{how}")()

    def action_leave(self) -> None:
        if self._renaming is not None:
            self._end_renaming()
        else:
            self.dismiss(None)

    def action_rename(self) -> None:
        chat = self._chosen
        if chat is None or self._renaming is not None:
            return
        self._renaming = chat
        field = self.query_one(Input)
        field.placeholder = _RENAME
        field.value = chat.title
        field.action_end()
        self._show_frame()

    def _end_renaming(self) -> None:
        field = self.query_one(Input)
        with self.prevent(Input.Changed):
            field.value = self._query
        field.placeholder = _SEARCH
        self._renaming = None
        self._show_frame()

    def action_pin(self) -> None:
        if (chat := self._chosen) is not None:
            self._change(lambda: self._keeper.pin_chat(chat.id, not chat.pinned))

    def action_delete(self) -> None:
        chat = self._chosen
        if chat is None:
            return
        chat_id = chat.id
        if self._change(lambda: self._keeper.delete_chat(chat_id)):
            self.notify(f"Deleted {clean_line(chat.title)} · Ctrl+Z brings it back", markup=False)

    def action_undo(self) -> None:
        if not self._source.deleted_here:
            self.notify("Nothing was deleted", severity="warning")
            return
        self._change(lambda: self._source.restore(self._source.deleted_here[-1]))

    def _change(self, work: Callable[[], None]) -> bool:
        """Does something to a chat and looks again; False if it could not be done."""
        try:
            work()
        except (ChatError, OSError) as error:
            self.notify(clean_line(str(error)), severity="error", markup=False)
            return False
        self.run_worker(self._update, group="update", exclusive=True, thread=True)
        return True


def _marked(snippet: Snippet) -> Content:
    """The snippet with its matches set off. Nothing in it can steer the terminal: the index holds no such signs."""
    parts: list[tuple[str, str]] = [("  ", "")]
    at = 0
    for start, stop in snippet.marks:
        parts += [(snippet.text[at:start], MUTED), (snippet.text[start:stop], f"bold {ACCENT}")]
        at = stop
    parts.append((snippet.text[at:], MUTED))
    return Content.assemble(*parts)
