"""An answer by its tokens: each as it reads, in a colour that says how likely the model held it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from rich.cells import split_graphemes
from textual.app import App
from textual.content import Content
from textual.style import Style

from tinyllm_chat.chat.choices import TokenChoice, shown_texts
from tinyllm_chat.chat.conversation import Message
from tinyllm_chat.tui.text import clean
from tinyllm_chat.tui.widgets.lines import Piece
from tinyllm_chat.tui.widgets.rows import MUTED

# A token with less than the first probability gets the first style, and so on. Likely ones look like any text.
LEVELS = (0.7, 0.3, 0.1, 0.02)
COLOURS = ("on $warning 16%", "on $warning 34%", "on $error 34%", "on $error 62%")
MARKS = ("underline", "bold underline", "reverse", "bold reverse")  # where there are no shades to tell apart
CURSOR = "bold reverse $primary"
SHOWN_SPACES = str.maketrans({" ": "·", "\t": "→", "\n": "↵"})


def has_shades(app: App[Any]) -> bool:
    """Whether there are more colours than a terminal's own few."""
    return not (app.no_color or app.native_ansi_color)


def heat(logprob: float, coloured: bool) -> str:
    """The style of a token of this log probability."""
    level = sum(math.exp(logprob) < bound for bound in LEVELS)
    return (COLOURS if coloured else MARKS)[level - 1] if level else ""


def legend(coloured: bool) -> Content:
    """What the colours mean."""
    styles = COLOURS if coloured else MARKS
    parts = [(f" {100 * bound:.0f} ", style) for bound, style in zip(LEVELS, styles, strict=True)]
    return Content.assemble(("below ", MUTED), *parts, (" %", MUTED))


class TokenText:
    """The tokens of an answer, line by line. `pieces` is what to show; a line that stays as it is keeps its piece.

    coloured: by shades, else by marks such as underlines; marks: line ends are shown
    """

    def __init__(self, message: Message, *, coloured: bool = True, marks: bool = False) -> None:
        self._message = message
        self._first = 0
        self._coloured = coloured
        self._marks = marks
        self._cursor: int | None = None
        self._texts: list[str] = []  # of the tokens from the first on
        self._lines: list[tuple[int, int]] = []  # the tokens of each line, from and up to
        self._pieces: list[Piece] = []

    @property
    def pieces(self) -> list[Piece]:
        """As many tokens as were looked at, from the first on."""
        self.take_new()
        return list(self._pieces)

    def begin_at(self, token: int) -> None:
        """Leaves out the tokens before this one."""
        if token != self._first:
            self._first = token
            self._texts, self._lines, self._pieces = [], [], []

    def set_cursor(self, token: int) -> None:
        """Marks a token."""
        before, self._cursor = self._cursor, token
        for at in (before, token):
            if at is not None and (number := self._line_of(at)) is not None:
                self._pieces[number] = self._piece(*self._lines[number])

    def piece_of(self, token: int) -> Piece | None:
        number = self._line_of(token)
        return None if number is None else self._pieces[number]

    def _line_of(self, token: int) -> int | None:
        return next((number for number, (start, stop) in enumerate(self._lines) if start <= token < stop), None)

    def take_new(self) -> None:
        """Takes in tokens that were looked at since."""
        choices = self._message.choices
        end = self._first + len(self._texts)
        new = end
        while new in choices:
            new += 1
        if new == end:
            return
        # From the beginning of the line: its last token may have been the beginning of a character.
        start = self._lines[-1][0] if self._lines else self._first
        del self._lines[-1:], self._pieces[-1:], self._texts[start - self._first :]
        self._texts += shown_texts([choices[at] for at in range(start, new)])
        line = start
        for at in range(start, new):
            if "\n" in self._texts[at - self._first] or at == new - 1:
                self._lines.append((line, at + 1))
                self._pieces.append(self._piece(line, at + 1))
                line = at + 1

    def _piece(self, start: int, stop: int) -> Piece:
        texts = [self._shown(at) for at in range(start, stop)]
        content = Content("".join(texts))
        ends = whole_characters(content.plain, [0, *accumulate(map(len, texts))])
        for at, (first, last) in enumerate(pairwise(ends), start):
            if first < last:
                style = CURSOR if at == self._cursor else heat(self._message.choices[at].logprob, self._coloured)
                content = content.stylize(style, first, last)
                content = content.stylize(Style.from_meta({"message": self._message.id, "token": at}), first, last)
        return Piece(content.wrap)

    def _shown(self, at: int) -> str:
        text = clean(self._texts[at - self._first])
        if self._marks:
            text = text.replace("\n", "↵\n")
        return text.removesuffix("\n")  # the line ends here anyway


def whole_characters(text: str, places: Sequence[int]) -> list[int]:
    """The places, those within what is drawn as one character moved behind it: it can have but one style."""
    if text.isascii():
        return list(places)
    starts = [*(start for start, _, _ in split_graphemes(text)[0]), len(text)]
    return [starts[bisect_left(starts, place)] for place in places]


def named(text: str) -> str:
    """A token's text so that all of it can be seen: spaces, line ends, and bytes that are no character."""
    shown = []
    for character in text:
        code = ord(character)
        shown.append(f"<{code - 0xDC00:02X}>" if 0xDC80 <= code <= 0xDCFF else character)
    return clean("".join(shown).translate(SHOWN_SPACES)) or "nothing"


def percent(logprob: float) -> str:
    """A probability in few figures, however small."""
    value = 100 * math.exp(logprob)
    if value >= 99.95:
        return "100 %"
    if value >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 0.095 else f"{value:.2f} %" if value >= 0.0095 else "0.01 %"


def openness(entropy: float) -> str:
    """In words, how much there was to choose from. Entropy in nats."""
    among = math.exp(entropy)
    if among < 1.2:
        return "the model was sure"
    if among < 2:
        return "the model was fairly sure"
    if among < 10:
        return f"torn between about {among:.0f}"
    return f"open: as if among {among:.0f}"


def rank_in_words(rank: int) -> str:
    if rank == 1:
        return "the likeliest"
    last = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10 if rank % 100 not in (11, 12, 13) else 0, "th")
    return f"the {rank}{last} likeliest"


def next_unsure(choices: Sequence[TokenChoice], at: int, step: int, below: float = 0.3) -> int:
    """The next token after `at`, or before it, that was less likely than this; `at` where there is none."""
    found = at + step
    while 0 <= found < len(choices):
        if math.exp(choices[found].logprob) < below:
            return found
        found += step
    return at
