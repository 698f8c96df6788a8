"""The chat: messages from top to bottom, of which only a window is laid out, and what is waited for below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from textual import events
from textual.content import Content
from textual.message import Message

from tinyllm_chat.chat import conversation
from tinyllm_chat.chat.cuts import Cut
from tinyllm_chat.tui.text import clean, clean_line, count
from tinyllm_chat.tui.widgets.bars import Hint, hint_row
from tinyllm_chat.tui.widgets.cut import cut_marks
from tinyllm_chat.tui.widgets.lines import Lines, Piece
from tinyllm_chat.tui.widgets.message import MessageView
from tinyllm_chat.tui.widgets.progress import Progress, progress_line
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED, lines

if TYPE_CHECKING:
    from tinyllm_chat.tui.app import TinyLLMChatApp

WINDOW = 40  # messages laid out when a chat is opened
MORE = 20  # added when the user scrolls up to the first
QUEUED_LINES = 3  # shown of each text that waits

_SPEAKERS = {"system": "System prompt", "user": "You"}
_NOTE_STYLES = {"warning": "$warning", "error": "$error"}


class ChatPane(Lines):
    """Notes stand where they came: below the messages that were there, above those that followed."""

    class VariantAsked(Message):
        """Another of several answers is wanted."""

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

    def __init__(self, variant_of: Callable[[conversation.Message], str]) -> None:
        """`variant_of` says which of several a message is, as "2/3"; empty for an only one."""
        super().__init__()
        self._variant_of = variant_of
        self._path: list[conversation.Message] = []
        self._views: list[MessageView] = []
        self._notes: list[tuple[int, Piece]] = []  # each with the number of messages above it
        self._cut: Cut | None = None
        self._cut_marks: dict[str, Piece] = {}  # by the message that each stands above
        self._earlier: Piece | None = None
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

    def update(self) -> None:
        """Shows what has changed since the last time."""
        top = [] if self._earlier is None else [self._earlier]
        if self._welcome is not None and not self._path:
            top.append(self._welcome)
        waiting = [] if self._waiting is None else [self._waiting]
        self.show([*top, *self._messages_and_notes(), *self._queued, *waiting, self._bottom])

    def show_path(self, path: Sequence[conversation.Message], cut: Cut | None = None) -> None:
        """The messages to show are those of `path`; `cut`: the model does not see them all. What is laid out stays."""
        self._path = list(path)
        if cut != self._cut:
            self._cut, self._cut_marks = cut, {} if cut is None else cut_marks(cut)
        position = {id(message): index for index, message in enumerate(self._path)}
        kept = [view for view in self._views if id(view.message) in position]
        after = position[id(kept[-1].message)] + 1 if kept else 0
        if len(self._path) - after > WINDOW:
            kept, after = [], len(self._path) - WINDOW
        for view in kept:
            view.set_variant(self._variant_of(view.message))
        self._views = [*kept, *map(self._view, self._path[after:])]
        self._show_earlier()
        self.update()

    def clear_notes(self) -> None:
        self._notes.clear()
        self.update()

    def add_note(self, text: str, severity: str, hints: Sequence[Hint] = ()) -> None:
        """A line about the chat that is not part of it: a warning, an error, a fact about the model. `hints`: what
        can be done, to be clicked or typed.
        """
        style = _NOTE_STYLES.get(severity)
        body = Content.styled(clean_line(text), "" if style else MUTED)
        names = max((len(hint.key) for hint in hints), default=0)

        def layout(width: int) -> list[Content]:
            rows = body.wrap(max(1, width - 2))
            rows += [hint_row(hint, names).truncate(max(1, width - 2), ellipsis=True) for hint in hints]
            return [Content.assemble(("▌ ", style or FAINT), row) for row in rows]

        self._notes.append((len(self._path), Piece(layout, gap=1)))
        self.update()

    def show_welcome(self, title: str, facts: Sequence[str]) -> None:
        """What an empty chat says."""
        rows = [Content.styled(clean_line(title), "bold"), *(Content.styled(clean_line(fact), MUTED) for fact in facts)]
        self._welcome = Piece(lambda width: [row.truncate(width, ellipsis=True) for row in rows], gap=1)
        self.update()

    def show_queued(self, texts: Sequence[str]) -> None:
        """Texts that will be sent when the model is ready."""
        self._queued = [Piece(lines(_waiting_text(text)).wrap, gap=1) for text in texts]
        self.update()

    def show_progress(self, progress: Progress | None) -> None:
        if progress != self._progress:
            self._progress = progress
            self._waiting = None
            if progress is not None:
                self._waiting = Piece(lambda width: [progress_line(progress, width)], gap=1)
            self.update()

    def scroll_to_message(self, message_id: str) -> None:
        """Brings the beginning of a message into view, if it is laid out."""
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
        return cast("TinyLLMChatApp", self.app).has_shades if self.heated else None

    def prune(self) -> None:
        """Lets go of what is far above the end that is being followed."""
        if len(self._views) > 2 * WINDOW and self.following:
            self._views = self._views[-WINDOW:]
            self._show_earlier()
            self.update()

    def on_click(self, event: events.Click) -> None:
        meta = event.style.meta
        if isinstance(step := meta.get("step"), int):
            self.post_message(self.VariantAsked(str(meta.get("message")), step))
        elif isinstance(token := meta.get("token"), int):
            self.post_message(self.TokenClicked(str(meta.get("message")), token))
        elif isinstance(thought := meta.get("thought"), str):
            if (view := self.view_of(thought)) is not None and view.thought is not None:
                view.thought.turn()
                self.update()
        elif isinstance(address := meta.get("address"), str):
            self.post_message(self.LinkClicked(address))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value <= 0 < old_value and self._hidden > 0:
            self.call_later(self._show_more)

    # Inside

    def _messages_and_notes(self) -> list[Piece]:
        pieces: list[Piece] = []
        notes = list(self._notes)
        for number, view in enumerate(self._views, self._hidden):
            while notes and notes[0][0] <= number:
                pieces.append(notes.pop(0)[1])
            if (mark := self._cut_marks.get(view.message.id)) is not None:
                pieces.append(mark)
            pieces.extend(view.pieces)
        return [*pieces, *(piece for _, piece in notes)]

    def _view(self, message: conversation.Message) -> MessageView:
        speaker = _SPEAKERS.get(message.role) or message.model or "Answer"
        view = MessageView(
            message, speaker=speaker, variant=self._variant_of(message), unfolded=self._thoughts_unfolded
        )
        if self.heated:
            view.show_heat(self._shades)
        return view

    @property
    def _hidden(self) -> int:
        return len(self._path) - len(self._views)

    def _show_earlier(self) -> None:
        hidden, self._earlier = self._hidden, None
        if hidden > 0:
            line = Content.assemble(("↑ ", ACCENT), (count(hidden, "earlier message"), MUTED))
            self._earlier = Piece(lambda width: [line])

    def _show_more(self) -> None:
        """Lays out messages above, and keeps what is in view where it is."""
        if self._hidden <= 0:
            return
        before = self.virtual_size.height
        first = max(0, self._hidden - MORE)
        self._views = [*map(self._view, self._path[first : self._hidden]), *self._views]
        self._show_earlier()
        self.update()
        self.scroll_to(y=self.scroll_y + self.virtual_size.height - before, animate=False)


def _waiting_text(text: str) -> list[Content]:
    said = clean(text).strip("\n").split("\n")
    rows = [Content.styled(line, MUTED) for line in said[:QUEUED_LINES]]
    if len(said) > QUEUED_LINES:
        rows.append(Content.styled("…", MUTED))
    return [Content.assemble(("You", f"bold {MUTED}"), ("  waiting", FAINT)), *rows]
