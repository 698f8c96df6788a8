"""The chat: messages from top to bottom, of which only a window is laid out, and what is waited for below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual import events
from textual.content import Content
from textual.message import Message
from textual.style import Style

from tinyllm_chat.chat import conversation
from tinyllm_chat.chat.cuts import Cut
from tinyllm_chat.tui.text import clean, clean_line, count
from tinyllm_chat.tui.tokens import has_shades
from tinyllm_chat.tui.widgets.bars import Hint, hint_row
from tinyllm_chat.tui.widgets.cut import cut_marks
from tinyllm_chat.tui.widgets.lines import Lines, Piece
from tinyllm_chat.tui.widgets.message import MessageView
from tinyllm_chat.tui.widgets.progress import Progress, progress_line
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED, lines

WINDOW = 40  # messages laid out when a chat is opened
MORE = 8  # added when the user scrolls to the first or the last of them
MOST = 120  # laid out at a time; those at the far end are let go of
QUEUED_LINES = 3  # shown of each text that waits
QUEUED_CHARACTERS = 1000  # of each of them

_SPEAKERS = {"system": "System prompt", "user": "You"}
_NOTE_STYLES = {"warning": "$warning", "error": "$error"}


class ChatPane(Lines, can_focus=True):
    """Notes stand where they came: below the messages that were there, above those that followed.

    One message may be selected. While the pane has the focus, `keys` are the actions of single keys; what else is typed
    is handed to the input.
    """

    FOCUS_ON_CLICK: ClassVar[bool] = False  # a click selects, and what is typed still goes to the input

    class VariantAsked(Message):
        """Another of several branches is wanted."""

        def __init__(self, message_id: str, step: int) -> None:
            super().__init__()
            self.message_id = message_id
            self.step = step

    class LinkClicked(Message):
        """An address in the text was clicked. Nothing is opened."""

        def __init__(self, address: str) -> None:
            super().__init__()
            self.address = address

    class TokenClicked(Message):
        """A token of a coloured answer was clicked."""

        def __init__(self, message_id: str, token: int) -> None:
            super().__init__()
            self.message_id = message_id
            self.token = token

    class WaitingClicked(Message):
        """A text that waits is wanted back in the input."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    class Typed(Message):
        """Text that belongs into the input."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class FocusChanged(Message):
        """Single keys act on messages from now on, or no more."""

    def __init__(
        self, variant_of: Callable[[conversation.Message], str], keys: Mapping[str, str] | None = None
    ) -> None:
        """`variant_of` says which of several a message is, as "2/3"; empty for an only one."""
        super().__init__()
        self._variant_of = variant_of
        self._keys = dict(keys or {})
        self._path: list[conversation.Message] = []
        self._views: list[MessageView] = []
        self._first = 0  # index in the path of the first view
        self._selected: str | None = None
        self._notes: list[tuple[int, Piece]] = []  # each with the number of messages above it
        self._cut: Cut | None = None
        self._cut_marks: dict[str, Piece] = {}  # by the message that each stands above
        self._earlier: Piece | None = None
        self._later: Piece | None = None
        self._welcome: Piece | None = None
        self._queued: list[Piece] = []
        self._progress: Progress | None = None
        self._waiting: Piece | None = None
        self._thoughts_unfolded = False
        self.heated = False
        self._bottom = Piece(lambda width: [Content()])

    @property
    def views(self) -> list[MessageView]:
        """The messages that are laid out, first to last."""
        return list(self._views)

    def view_of(self, message_id: str) -> MessageView | None:
        return next((view for view in reversed(self._views) if view.message.id == message_id), None)

    @property
    def progress(self) -> Progress | None:
        """What the whole chat waits for: a model."""
        return self._progress

    @property
    def following(self) -> bool:
        return self._below == 0 and super().following

    def follow(self) -> None:
        if self._below:
            self._lay_out_from(len(self._path) - WINDOW)
        super().follow()

    def go_to_start(self) -> None:
        """Shows the first message."""
        if self._first:
            self._lay_out_from(0)
        self.scroll_home(animate=False, immediate=True)

    def update(self) -> None:
        """Shows what has changed since the last time."""
        top = [] if self._earlier is None else [self._earlier]
        if self._welcome is not None and not self._path:
            top.append(self._welcome)
        if self._later is None:
            waiting = [] if self._waiting is None else [self._waiting]
            end = [*self._queued, *waiting, self._bottom]
        else:
            end = [self._later, self._bottom]
        selected = self.view_of(self._selected) if self._selected is not None else None
        marked = None if selected is None else ((pieces := selected.pieces)[0], pieces[-1])
        self.show([*top, *self._messages_and_notes(), *end], marked)

    def show_path(self, path: Sequence[conversation.Message], cut: Cut | None = None) -> None:
        """The messages to show are those of `path`; `cut`: the model does not see them all. What is laid out stays."""
        at_end = self._below == 0
        self._path = list(path)
        if cut != self._cut:
            self._cut, self._cut_marks = cut, {} if cut is None else cut_marks(cut)
        position = {id(message): index for index, message in enumerate(self._path)}
        kept = [view for view in self._views if id(view.message) in position]
        first = position[id(kept[0].message)] if kept else 0
        after = first + len(kept)
        if not kept or (at_end and len(self._path) - after > WINDOW):
            kept, first = [], max(0, len(self._path) - WINDOW)
            after, at_end = first, True
        for view in kept:
            view.set_variant(self._variant_of(view.message))
        until = len(self._path) if at_end else max(after, first + WINDOW)
        self._views = [*kept, *map(self._view, self._path[after:until])]
        if kept and after - first < WINDOW:  # what was put before the first message, such as a system prompt
            more = max(0, after - WINDOW)
            self._views = [*map(self._view, self._path[more:first]), *self._views]
            first = more
        self._first = first
        if self._selected is not None and all(message.id != self._selected for message in self._path):
            self._selected = None
        self._show_edges()
        self.update()

    def clear_notes(self) -> None:
        self._notes.clear()
        self.update()

    def add_note(self, text: str, severity: str, hints: Sequence[Hint] = ()) -> Piece:
        """A line about the chat that is not part of it: a warning, an error, a fact about the model. `hints`: what
        can be done, to be clicked or typed. What comes back is for `remove_note`.
        """
        style = _NOTE_STYLES.get(severity)
        body = Content.styled(clean_line(text), "" if style else MUTED)
        names = max((len(hint.key) for hint in hints), default=0)

        def layout(width: int) -> list[Content]:
            rows = body.wrap(max(1, width - 2))
            rows += [hint_row(hint, names).truncate(max(1, width - 2), ellipsis=True) for hint in hints]
            return [Content.assemble(("▌ ", style or FAINT), row) for row in rows]

        note = Piece(layout, gap=1)
        self._notes.append((len(self._path), note))
        self.update()
        return note

    def remove_note(self, note: Piece) -> None:
        """What a note says is no longer so."""
        self._notes = [each for each in self._notes if each[1] is not note]
        self.update()

    def show_welcome(self, title: str, facts: Sequence[str]) -> None:
        """What an empty chat says."""
        rows = [Content.styled(clean_line(title), "bold"), *(Content.styled(clean_line(fact), MUTED) for fact in facts)]
        self._welcome = Piece(lambda width: [row.truncate(width, ellipsis=True) for row in rows], gap=1)
        self.update()

    def show_queued(self, texts: Sequence[str]) -> None:
        """Texts that will be sent when the model is ready."""
        self._queued = [Piece(lines(_waiting_text(text, index)).wrap, gap=1) for index, text in enumerate(texts)]
        self.update()

    def show_progress(self, progress: Progress | None) -> None:
        if progress != self._progress:
            self._progress = progress
            self._waiting = None
            if progress is not None:
                self._waiting = Piece(lambda width: [progress_line(progress, width)], gap=1)
            self.update()

    def scroll_to_message(self, message_id: str) -> None:
        """Brings the beginning of a message into view, if it is one of the path."""
        self._lay_out_around(message_id)
        if (view := self.view_of(message_id)) is not None:
            self.scroll_to(y=max(0, self.line_of(view.pieces[0]) - 1), animate=False)

    def turn_thoughts(self) -> None:
        """Shows what the model thought before each answer, from now on too; or folds it."""
        self._thoughts_unfolded = not self._thoughts_unfolded
        for view in self._views:
            if view.thought is not None:
                view.thought.turn(self._thoughts_unfolded)
        self.update()

    def show_heat(self, on: bool) -> None:
        """Shows answers by their tokens, coloured, as far as those were looked at; or as they read."""
        if on != self.heated:
            self.heated = on
            for view in self._views:
                view.show_heat(self._shades)
            self.update()

    @property
    def _shades(self) -> bool | None:
        """How tokens are told apart: by shades, else by marks; None: not at all."""
        return has_shades(self.app) if self.heated else None

    def prune(self) -> None:
        """Lets go of what is far above the end that is being followed."""
        if len(self._views) > 2 * WINDOW and self.following:
            self._lay_out_from(len(self._path) - WINDOW)

    # Selection

    @property
    def selected(self) -> str | None:
        """Id of the message that actions are about."""
        return self._selected

    def select(self, message_id: str | None) -> None:
        """Marks a message of the path and brings it into view; None: none."""
        if self._selected is not None and (before := self.view_of(self._selected)) is not None:
            before.set_selected(False)
        self._selected = message_id
        if message_id is not None:
            self._lay_out_around(message_id)
            if (view := self.view_of(message_id)) is not None:
                view.set_selected(True)
        self.update()
        if message_id is not None:
            self.reveal(self.marked_lines)

    def move_selection(self, step: int) -> bool:
        """Selects the message `step` places on, at first the last one; False if there is none there."""
        if not self._path:
            return False
        index = next((index for index, message in enumerate(self._path) if message.id == self._selected), None)
        index = len(self._path) - 1 if index is None else max(0, index + step)
        if index >= len(self._path):
            return False
        self.select(self._path[index].id)
        return True

    async def _on_key(self, event: events.Key) -> None:
        if (command := self._keys.get(event.key)) is not None:
            await self.app.run_action(command)
        elif event.is_printable and event.character is not None:
            self.post_message(self.Typed(event.character))
        else:
            return
        event.stop()
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.post_message(self.Typed(event.text))

    def on_focus(self) -> None:
        self.post_message(self.FocusChanged())

    def on_blur(self) -> None:
        self.post_message(self.FocusChanged())

    def on_click(self, event: events.Click) -> None:
        meta = event.style.meta
        if isinstance(step := meta.get("step"), int):
            self.post_message(self.VariantAsked(str(meta.get("message")), step))
        elif isinstance(token := meta.get("token"), int):
            self.post_message(self.TokenClicked(str(meta.get("message")), token))
        elif isinstance(folded := meta.get("fold"), str):
            self.turn_fold(folded)
        elif isinstance(address := meta.get("address"), str):
            self.post_message(self.LinkClicked(address))
        elif isinstance(index := meta.get("waiting"), int):
            self.post_message(self.WaitingClicked(index))
        elif "@click" not in meta and self.text_selection is None:
            view = self._view_at(self.scroll_offset.y + event.y)
            self.select(view.message.id if view is not None and view.message.id != self._selected else None)

    def turn_fold(self, message_id: str) -> None:
        """Shows what is folded of a message, or folds it."""
        if (view := self.view_of(message_id)) is not None:
            view.turn_fold()
            self.update()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value <= 0 < old_value and self._first > 0:
            self.call_later(self._show_more)
        elif new_value > old_value and new_value >= self.max_scroll_y and self._below > 0:
            self.call_later(self._show_later)

    # Inside

    def _messages_and_notes(self) -> list[Piece]:
        pieces: list[Piece] = []
        notes = list(self._notes)
        for number, view in enumerate(self._views, self._first):
            while notes and notes[0][0] <= number:
                pieces.append(notes.pop(0)[1])
            if (mark := self._cut_marks.get(view.message.id)) is not None:
                pieces.append(mark)
            pieces.extend(view.pieces)
        return pieces if self._below else [*pieces, *(piece for _, piece in notes)]

    def _view(self, message: conversation.Message) -> MessageView:
        speaker = _SPEAKERS.get(message.role) or message.model or "Answer"
        view = MessageView(
            message, speaker=speaker, variant=self._variant_of(message), unfolded=self._thoughts_unfolded
        )
        if self.heated:
            view.show_heat(self._shades)
        view.set_selected(message.id == self._selected)
        return view

    def _view_at(self, line: int) -> MessageView | None:
        """The message whose text stands in this line."""
        for view in self._views:
            pieces = view.pieces
            if self.line_of(pieces[0]) <= line < self.end_of(pieces[-1]):
                return view
        return None

    @property
    def _below(self) -> int:
        """How many messages follow those that are laid out."""
        return len(self._path) - self._first - len(self._views)

    def _show_edges(self) -> None:
        self._earlier = _edge("↑ ", self._first, "earlier message")
        self._later = _edge("↓ ", self._below, "later message", gap=1)

    def _lay_out_from(self, first: int) -> None:
        """Moves the window."""
        self._first = max(0, min(first, len(self._path) - WINDOW))
        self._views = [*map(self._view, self._path[self._first : self._first + WINDOW])]
        self._show_edges()
        self.update()

    def _lay_out_around(self, message_id: str) -> None:
        """Moves the window to a message that is not in it."""
        index = next((index for index, message in enumerate(self._path) if message.id == message_id), None)
        if index is not None and not self._first <= index < self._first + len(self._views):
            self._lay_out_from(index - WINDOW // 2)

    def _show_more(self) -> None:
        """Lays out messages above, and keeps what is in view where it is."""
        if self._first > 0:
            self._keeping(self._views[0], self._lay_out_more)

    def _lay_out_more(self) -> None:
        first = max(0, self._first - MORE)
        self._views = [*map(self._view, self._path[first : self._first]), *self._views][:MOST]
        self._first = first

    def _show_later(self) -> None:
        """The same below."""
        if self._below > 0:
            self._keeping(self._views[-1], self._lay_out_later)

    def _lay_out_later(self) -> None:
        last = self._first + len(self._views)
        views = [*self._views, *map(self._view, self._path[last : last + MORE])]
        self._first += max(0, len(views) - MOST)
        self._views = views[-MOST:]

    def _keeping(self, view: MessageView, change: Callable[[], None]) -> None:
        """Changes what is laid out while a message stays where it is on the screen."""
        piece = view.pieces[0]
        row = self.line_of(piece) - self.scroll_y
        change()
        self._show_edges()
        self.update()
        self.scroll_to(y=self.line_of(piece) - row, animate=False, immediate=True)


def _edge(arrow: str, messages: int, what: str, gap: int = 0) -> Piece | None:
    if messages <= 0:
        return None
    line = Content.assemble((arrow, ACCENT), (count(messages, what), MUTED))
    return Piece(lambda width: [line], gap)


def _waiting_text(text: str, index: int) -> list[Content]:
    said = text.strip("\n").split("\n", QUEUED_LINES)
    rows = [Content.styled(clean(line[:QUEUED_CHARACTERS]), MUTED) for line in said[:QUEUED_LINES]]
    if len(said) > QUEUED_LINES:
        rows.append(Content.styled("…", MUTED))
    back = Content.styled("take back", ACCENT).stylize(Style.from_meta({"waiting": index}))
    return [Content.assemble(("You", f"bold {MUTED}"), ("  waiting · ", FAINT), back), *rows]
