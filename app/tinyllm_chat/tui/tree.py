"""The tree of the conversation on a screen of its own: every message of every branch on a line, to be walked over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.outline import OutlineRow, outline
from tinyllm_chat.tui.text import clean_line, count
from tinyllm_chat.tui.widgets.bars import Hint, Hints
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED

GUIDES = 24  # cells for the lines that lead to a message; of more the right end is shown
_SPEAKERS = {"user": "You"}
_GLIMPSE = 400  # characters of a message looked at
_KEYS = (
    Hint("Enter", "show this branch", "screen.open"),
    Hint("←→", "next branch", "screen.branch(1)", 2),
    Hint("●", "is on screen", "screen.close", 3),
    Hint("Esc", "close", "screen.close", 1),
)


class TreeLines(ScrollView, can_focus=True):
    """The rows, one of which is the cursor's."""

    class Opened(Message):
        """A message was chosen."""

        def __init__(self, message_id: str) -> None:
            super().__init__()
            self.message_id = message_id

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "go(0)", "First", show=False),
        Binding("end,G", "go(-1)", "Last", show=False),
        Binding("left,h", "branch(-1)", "The branch before", show=False),
        Binding("right,l", "branch(1)", "The branch after", show=False),
        Binding("enter,space", "open", "Open", show=False),
    ]

    def __init__(self, rows: Sequence[OutlineRow], cursor: str | None) -> None:
        super().__init__()
        self._rows = list(rows)
        places = {row.message.id: index for index, row in enumerate(rows)}
        self.cursor = places.get(cursor, 0) if cursor is not None else 0

    def on_mount(self) -> None:
        super().on_mount()
        self.virtual_size = Size(0, len(self._rows))
        self.call_after_refresh(self._move_to, self.cursor)

    def action_move(self, step: int) -> None:
        self._move_to(self.cursor + step)

    def action_page(self, step: int) -> None:
        self._move_to(self.cursor + step * max(1, self.size.height - 1))

    def action_go(self, index: int) -> None:
        self._move_to(index % len(self._rows))

    def action_branch(self, step: int) -> None:
        """To the next line at which a branch begins."""
        index = self.cursor + step
        while 0 <= index < len(self._rows) and not self._rows[index].variant:
            index += step
        if 0 <= index < len(self._rows):
            self._move_to(index)

    def action_open(self) -> None:
        self.post_message(self.Opened(self._rows[self.cursor].message.id))

    def on_click(self, event: events.Click) -> None:
        index = event.y + self.scroll_offset.y
        if index < len(self._rows):
            if index == self.cursor:
                self.action_open()
            else:
                self._move_to(index)

    def _move_to(self, index: int) -> None:
        self.cursor = max(0, min(index, len(self._rows) - 1))
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        index, width = y + self.scroll_offset.y, self.size.width
        base = self.visual_style
        if index >= len(self._rows):
            return Strip.blank(width, base.rich_style)
        line = self._line(self._rows[index], width).truncate(width, ellipsis=True, pad=True)
        if index == self.cursor:
            line = line.stylize_before(f"on {ACCENT} 25%")
        return Strip(line.render_segments(base), line.cell_length).adjust_cell_length(width, base.rich_style)

    def _line(self, row: OutlineRow, width: int) -> Content:
        message = row.message
        speaker = _SPEAKERS.get(message.role) or message.model or "Answer"
        said = clean_line(message.content[:_GLIMPSE] or message.reasoning[:_GLIMPSE]) or "(nothing)"
        name = Content.styled(clean_line(speaker), "bold" if row.visible else "").truncate(
            max(8, width // 5), ellipsis=True
        )
        return Content.assemble(
            ("● " if row.visible else "  ", ACCENT),
            (row.guides[-GUIDES:], FAINT),
            (f"{row.variant} " if row.variant else "", ACCENT),
            name.stylize(ACCENT if message.role == "assistant" and row.visible else MUTED),
            "  ",
            (said, "" if row.visible else MUTED),
        )


class TreeScreen(ModalScreen[str | None]):
    """Dismissed with the id of the message whose branch shall be seen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c,q,alt+t", "close", "Close", show=False),
    ]

    def __init__(self, conversation: Conversation, cursor: str | None) -> None:
        """`cursor`: the message to start at."""
        super().__init__()
        self._rows = outline(conversation)
        self._cursor = cursor

    def compose(self) -> ComposeResult:
        leaves = len(self._leaves())
        facts = f"{count(len(self._rows), 'message')}, {leaves} {'branch' if leaves == 1 else 'branches'}"
        with Vertical(classes="sheet -high"):
            yield Static(Content.assemble(("The whole conversation", f"bold {ACCENT}"), (f"  {facts}", MUTED)))
            yield TreeLines(self._rows, self._cursor)
            yield Hints(_KEYS)

    def _leaves(self) -> list[OutlineRow]:
        parents = {row.message.parent for row in self._rows}
        return [row for row in self._rows if row.message.id not in parents]

    def action_open(self) -> None:
        self.query_one(TreeLines).action_open()

    def action_branch(self, step: int) -> None:
        self.query_one(TreeLines).action_branch(step)

    def on_tree_lines_opened(self, event: TreeLines.Opened) -> None:
        event.stop()
        self.dismiss(event.message_id)

    def action_close(self) -> None:
        self.dismiss(None)
