"""The token inspector: a walk over the tokens of an answer; what else each could have been, and branching there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message as Posted
from textual.screen import ModalScreen
from textual.widgets import Static

from tinyllm_chat.chat.conversation import Message
from tinyllm_chat.tui.details import sampling_at
from tinyllm_chat.tui.text import clean_line, count
from tinyllm_chat.tui.tokens import TokenText, has_shades, legend, next_unsure
from tinyllm_chat.tui.widgets.bars import Hint, Hints, Rule, VerticalRule
from tinyllm_chat.tui.widgets.choice import ChoiceView
from tinyllm_chat.tui.widgets.lines import Lines, Piece
from tinyllm_chat.tui.widgets.rows import ACCENT, MUTED, row

WIDE = 100  # columns from which the choice stands beside the answer
LOOK_INTERVAL = 0.1  # seconds between two looks at whether there are more tokens


@dataclass(frozen=True, slots=True)
class Picked:
    """An alternative that the answer shall go on from."""

    message_id: str
    token: int
    place: int


class TokenPane(Lines):
    """The answer, each token in its colour, one under the cursor."""

    class Clicked(Posted):
        def __init__(self, token: int) -> None:
            super().__init__()
            self.token = token

    def __init__(self, text: TokenText) -> None:
        super().__init__()
        self._tokens = text

    def on_mount(self) -> None:
        super().on_mount()
        self.anchor(False)

    def show_cursor(self, token: int) -> None:
        """Marks a token and brings it into view."""
        self._tokens.take_new()
        self._tokens.set_cursor(token)
        self.show(self._tokens.pieces)
        piece = self._tokens.piece_of(token)
        if piece is None or not self._text_width:
            return
        line = self.line_of(piece) + _line_with(piece, token, self._text_width)
        top, height = self.scroll_offset.y, self._area.height
        if not top <= line < top + height:
            self.scroll_to(y=max(0, line - height // 3), animate=False)

    def on_click(self, event: events.Click) -> None:
        if isinstance(token := event.style.meta.get("token"), int):
            event.stop()
            self.post_message(self.Clicked(token))


def _line_with(piece: Piece, token: int, width: int) -> int:
    """Which line of a piece a token begins in."""
    for number, line in enumerate(piece.lines(width)):
        if any(getattr(span.style, "meta", {}).get("token") == token for span in line.spans):
            return number
    return 0


class InspectorScreen(ModalScreen[Picked | None]):
    """Dismissed with what was picked, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,alt+i,ctrl+c", "leave", "Close", show=False),
        Binding("right,l", "walk(1)", "Next token", show=False),
        Binding("left,h", "walk(-1)", "Token before", show=False),
        Binding("ctrl+right,n,tab", "unsure(1)", "Next unlikely token", show=False),
        Binding("ctrl+left,p,shift+tab", "unsure(-1)", "Unlikely token before", show=False),
        Binding("home", "walk(-1000000)", "First token", show=False),
        Binding("end", "walk(1000000)", "Last token", show=False),
        Binding("down,j", "choose(1)", "Next alternative", show=False),
        Binding("up,k", "choose(-1)", "Alternative before", show=False),
        Binding("enter", "branch", "Branch", show=False),
    ]

    def __init__(self, message: Message, token: int | None = None) -> None:
        super().__init__()
        self._message = message
        self._token = message.thought_tokens if token is None else token
        self._place = 0
        self._seen = -1

    def compose(self) -> ComposeResult:
        yield Static(id="inspector-title")
        yield Rule(id="inspector-rule")
        with Container(id="look"):
            yield TokenPane(TokenText(self._message, coloured=has_shades(self.app), marks=True))
            yield VerticalRule()
            yield ChoiceView()
        yield Hints(
            [
                Hint("←→", "token", "screen.walk(1)", rank=2),
                Hint("Tab", "next unlikely", "screen.unsure(1)", rank=4),
                Hint("↑↓", "alternative", "screen.choose(1)", rank=3),
                Hint("Enter", "branch", "screen.branch", rank=1),
                Hint("Esc", "back", "screen.leave"),
            ]
        )

    def on_mount(self) -> None:
        self._look()
        self.set_interval(LOOK_INTERVAL, self._look)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE, "-wide")
        self._show_frame()
        self.call_after_refresh(self._show)

    def _look(self) -> None:
        """Shows what has been found out since the last time."""
        seen = len(self._message.choices)
        if seen != self._seen:
            first = self._seen <= 0
            self._seen = seen
            if first:
                self._go_to(self._token)
            self._show_frame()
            self._show()

    # What is shown

    @property
    def _last(self) -> int:
        """Number of the last token that can be looked at."""
        last = -1
        while last + 1 in self._message.choices:
            last += 1
        return last

    def _show_frame(self) -> None:
        message, width = self._message, self.size.width - 4
        name = clean_line(message.model or "Answer")
        seen, total = len(message.choices), len(message.ids)
        known = count(total, "token") if seen == total else f"{seen} of {total} tokens looked at"
        left = Content.assemble(("Token inspector", f"bold {ACCENT}"), (f"  {name} · {known}", MUTED))
        right = Content.assemble(("probability ", MUTED), legend(has_shades(self.app))) if width > 76 else Content()
        self.query_one("#inspector-title", Static).update(row(left, right, width))

    def _show(self) -> None:
        choice = self._message.choices.get(self._token)
        if choice is None:
            return
        self.query_one(TokenPane).show_cursor(self._token)
        notes = [note for note in (sampling_at(self._message.sampling_spans, self._token),) if note]
        branch = self._message.branch
        if branch is not None and branch.token == self._token:
            notes.append("picked by you")
        if self._token < self._message.thought_tokens:
            notes.append("while thinking")
        title = f"token {self._token + 1} of {len(self._message.ids)}"
        self.query_one(ChoiceView).show(choice, self._message.ids[self._token], self._place, title, tuple(notes))

    # What is done

    def _go_to(self, token: int) -> None:
        self._token = max(0, min(token, self._last))
        choice = self._message.choices.get(self._token)
        self._place = 0
        if choice is not None and choice.rank == 1 and len(choice.alternatives) > 1:
            self._place = 1  # the likeliest was drawn: the first that could be picked instead

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_walk(self, step: int) -> None:
        self._go_to(self._token + step)
        self._show()

    def action_unsure(self, step: int) -> None:
        choices = [self._message.choices[at] for at in range(self._last + 1)]
        self._go_to(next_unsure(choices, self._token, step))
        self._show()

    def action_choose(self, step: int) -> None:
        choice = self._message.choices.get(self._token)
        if choice is not None and choice.alternatives:
            self._place = (self._place + step) % len(choice.alternatives)
            self._show()

    def action_branch(self) -> None:
        choice = self._message.choices.get(self._token)
        if choice is None or not choice.alternatives:
            return
        if choice.alternatives[self._place].id == self._message.ids[self._token]:
            self.notify("That is the token that was drawn; ↑↓ choose another", markup=False)
            return
        self.dismiss(Picked(self._message.id, self._token, self._place))

    def on_token_pane_clicked(self, event: TokenPane.Clicked) -> None:
        event.stop()
        self._go_to(event.token)
        self._show()

    def on_choice_view_selected(self, event: ChoiceView.Selected) -> None:
        event.stop()
        if event.again:
            self.action_branch()
        else:
            self._place = event.place
            self._show()
