"""The chat: messages from top to bottom, of which only a window is mounted, and what is being waited for below."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tinyllm_chat.chat import conversation
from tinyllm_chat.tui.text import clean, clean_line, count
from tinyllm_chat.tui.widgets.message import MessageView
from tinyllm_chat.tui.widgets.progress import Progress, ProgressLine
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED, lines

WINDOW = 20  # messages mounted when a chat is opened; layout costs grow with every one
MORE = 10  # mounted at a time when the user scrolls up to the first
QUEUED_LINES = 3  # shown of each text that waits

_SPEAKERS = {"system": "System prompt", "user": "You"}


class Note(Static):
    """One line about the chat that is not part of it: a warning, an error, a model that is ready."""

    def __init__(self, text: str, severity: str) -> None:
        super().__init__(Content(clean_line(text)), classes=f"-{severity}")


class ChatPane(VerticalScroll, can_focus=False):
    """Follows the end until the user scrolls up, and again from the moment the end is back in view."""

    def __init__(self, variant_of: Callable[[conversation.Message], str]) -> None:
        """`variant_of` says which of several a message is, as "2/3"; empty for an only one."""
        super().__init__()
        self._variant_of = variant_of
        self._path: list[conversation.Message] = []
        self._views: list[MessageView] = []
        self._messages = Vertical(id="messages")
        self._welcome = Static(classes="welcome")
        self._earlier = Static(classes="earlier")
        self._queued = Static(classes="queued")
        self._loading = ProgressLine()
        self._loading_more = False

    def compose(self) -> ComposeResult:
        # At least as high as the pane, so that a short chat stands at the top.
        with self._messages:
            yield self._welcome
            yield self._earlier
            yield self._queued
            yield self._loading
            yield Static(classes="end")

    def on_mount(self) -> None:
        self._earlier.display = self._queued.display = False
        self.anchor()

    # What is shown

    @property
    def views(self) -> list[MessageView]:
        """The mounted messages, first to last."""
        return list(self._views)

    def view_of(self, message_id: str) -> MessageView | None:
        return next((view for view in reversed(self._views) if view.message.id == message_id), None)

    @property
    def following(self) -> bool:
        return self.scroll_y >= self.max_scroll_y - 1

    def follow(self) -> None:
        self.scroll_end(animate=False)

    async def show_path(self, path: Sequence[conversation.Message]) -> None:
        """Makes the mounted messages those at the end of `path`; what is mounted already stays."""
        self._path = list(path)
        position = {id(message): index for index, message in enumerate(self._path)}
        gone = [view for view in self._views if id(view.message) not in position]
        kept = [view for view in self._views if id(view.message) in position]
        after = position[id(kept[-1].message)] + 1 if kept else 0
        if len(self._path) - after > WINDOW:
            gone, kept, after = self._views, [], len(self._path) - WINDOW
        added = [self._make_view(message) for message in self._path[after:]]
        self._views = [*kept, *added]
        self._welcome.display = not self._path
        self._show_earlier()
        with self.app.batch_update():
            if gone:
                await self._messages.remove_children(gone)
            if added:
                await self._messages.mount_all(added, before=self._queued)
        for view in kept:
            view.set_variant(self._variant_of(view.message))

    async def clear_notes(self) -> None:
        await self._messages.query_children(Note).remove()

    def show_welcome(self, content: Content) -> None:
        self._welcome.update(content)

    def show_queued(self, texts: Sequence[str]) -> None:
        """Texts that will be sent when the model is ready."""
        self._queued.display = bool(texts)
        rows: list[Content] = []
        for text in texts:
            rows.append(Content.assemble(("You", "bold"), ("  waiting", MUTED)))
            said = clean(text).split("\n")
            rows.extend(Content.styled(line, MUTED) for line in said[:QUEUED_LINES])
            if len(said) > QUEUED_LINES:
                rows.append(Content.styled("…", MUTED))
            rows.append(Content())
        self._queued.update(lines(rows[:-1]))

    def show_loading(self, progress: Progress | None) -> None:
        self._loading.show(progress)

    @property
    def loading_progress(self) -> Progress | None:
        return self._loading.progress

    def add_note(self, text: str, severity: str) -> None:
        self._messages.mount(Note(text, severity), before=self._queued)

    async def prune(self) -> None:
        """Unmounts what is far above the end that is being followed."""
        if len(self._views) <= 2 * WINDOW or not self.following:
            return
        gone, self._views = self._views[:-WINDOW], self._views[-WINDOW:]
        self._show_earlier()
        await self._messages.remove_children(gone)

    # Inside

    def _make_view(self, message: conversation.Message) -> MessageView:
        speaker = _SPEAKERS.get(message.role) or message.model or "Answer"
        return MessageView(message, speaker=speaker, variant=self._variant_of(message))

    @property
    def _hidden(self) -> int:
        return len(self._path) - len(self._views)

    def _show_earlier(self) -> None:
        self._earlier.display = self._hidden > 0
        if self._hidden > 0:
            text = count(self._hidden, "earlier message")
            self._earlier.update(Content.assemble(("↑ ", ACCENT), (text, MUTED)))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value <= 0 < old_value and self._hidden > 0 and not self._loading_more:
            self._loading_more = True
            self.call_later(self._load_earlier)

    async def _load_earlier(self) -> None:
        """Mounts messages above, and keeps what is in view where it is."""
        try:
            first = max(0, self._hidden - MORE)
            added = [self._make_view(message) for message in self._path[first : self._hidden]]
            below = self.virtual_size.height - self.scroll_y
            await self._messages.mount_all(added, after=self._earlier)
            self._views = [*added, *self._views]
            self._show_earlier()
        except BaseException:
            self._loading_more = False
            raise
        self.call_after_refresh(self._keep_place, below)

    def _keep_place(self, below: float) -> None:
        self._loading_more = False
        self.scroll_to(y=self.virtual_size.height - below, animate=False)


def welcome(model: str, facts: Sequence[str]) -> Content:
    """What an empty chat says of the model it is with."""
    return lines(
        [Content.styled(clean_line(model), "bold"), *(Content.styled(clean_line(fact), MUTED) for fact in facts)]
    )
