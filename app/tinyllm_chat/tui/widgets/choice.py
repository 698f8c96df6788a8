"""One token of an answer: how likely it was, how open the place was, and what else could have stood there."""

from __future__ import annotations

import math

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.style import Style
from textual.widget import Widget

from tinyllm_chat.chat.choices import END, TokenChoice
from tinyllm_chat.tui.text import clean_line
from tinyllm_chat.tui.tokens import named, openness, percent, rank_in_words
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED, lines

NAME_COLUMN = 18  # cells for the text of an alternative
_BAR = "▏▎▍▌▋▊▉█"


class ChoiceView(Widget):
    """Shows a token and a list of alternatives, of which one is selected."""

    class Selected(Message):
        """An alternative was clicked; `again`: it was the selected one already."""

        def __init__(self, place: int, again: bool) -> None:
            super().__init__()
            self.place = place
            self.again = again

    def __init__(self) -> None:
        super().__init__()
        self._choice: TokenChoice | None = None
        self._token_id = -1
        self._place = 0
        self._title = ""
        self._notes: tuple[str, ...] = ()

    def show(self, choice: TokenChoice, id: int, place: int, title: str, notes: tuple[str, ...] = ()) -> None:
        """`id`: of the token itself; `place`: of the alternative that is selected; `notes`: lines about the token."""
        self._choice, self._token_id, self._place, self._title, self._notes = choice, id, place, title, notes
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def render(self) -> Content:
        return lines(
            row.truncate(self.content_size.width, ellipsis=True) for row in self._rows(self.content_size.width)
        )

    def on_click(self, event: events.Click) -> None:
        if isinstance(place := event.style.meta.get("place"), int):
            event.stop()
            self.post_message(self.Selected(place, place == self._place))

    def _rows(self, width: int) -> list[Content]:
        choice = self._choice
        if choice is None:
            return [Content()]
        name = Content.assemble((named(choice.text), "bold"), "  ", (f"id {self._token_id}", FAINT))
        held = Content.assemble((percent(choice.logprob), "bold"), f"  {rank_in_words(choice.rank)}")
        surprise = f"surprise {max(0.0, -choice.logprob / math.log(2)):.1f} bits"
        room = openness(choice.entropy)
        if self.screen.has_class("-wide"):
            told = [Content.styled(self._title, MUTED), Content(), name, held, Content(), *_muted(surprise, room)]
            told += [*_muted(*self._notes), Content()]
        else:
            told = [
                Content.assemble(name, "  ", held, (f"  {self._title}", MUTED)),
                *_muted(" · ".join([surprise, room, *self._notes])),
            ]
        return [*told, *(self._alternative(place, width) for place in range(len(choice.alternatives)))]

    def _alternative(self, place: int, width: int) -> Content:
        assert self._choice is not None
        other = self._choice.alternatives[place]
        chosen = place == self._place
        text = "end of the answer" if other.kind == END else named(other.text)
        name = Content(clean_line(text)).truncate(NAME_COLUMN, ellipsis=True, pad=True)
        mark = Content.styled("▸ " if chosen else "  ", ACCENT)
        own = Content.styled("●" if other.id == self._token_id else " ", ACCENT)
        share = Content.styled(f"{percent(other.logprob):>7}", "" if chosen else MUTED)
        bar = Content.styled(bar_of(math.exp(other.logprob), max(4, width - NAME_COLUMN - 14)), "$primary 70%")
        line = Content.assemble(mark, name.stylize("bold" if chosen else ""), " ", own, share, "  ", bar)
        return line.stylize(Style.from_meta({"place": place}))


def _muted(*texts: str) -> list[Content]:
    return [Content.styled(text, MUTED) for text in texts]


def bar_of(share: float, width: int) -> str:
    """A bar for a share of the whole, in eighths of a cell; something is seen of anything."""
    eighths = max(1, round(8 * width * min(1.0, share)))
    whole, rest = divmod(eighths, 8)
    return _BAR[7] * whole + (_BAR[rest - 1] if rest else "")
