"""Where the time of writing goes: the kinds of operations and their shares."""

from __future__ import annotations

from textual.content import Content

from tinyllm_chat.chat.events import OpProfile
from tinyllm_chat.tui.text import clean_line
from tinyllm_chat.tui.widgets.choice import bar_of
from tinyllm_chat.tui.widgets.panel import NUMBER_COLUMN, Panel, labelled
from tinyllm_chat.tui.widgets.rows import MUTED

ROWS = 6  # kinds shown; the last one sums up the rest
_NAME = NUMBER_COLUMN - 5  # cells of a kind's name


class ProfilePanel(Panel):
    TITLE = "Time"
    UNIT = "% of a token"

    def __init__(self) -> None:
        super().__init__()
        self._profile: OpProfile | None = None
        self.display = False

    def show(self, profile: OpProfile | None) -> None:
        if profile is not self._profile:
            self._profile = profile
            self.renew()

    def rows(self, width: int) -> list[Content]:
        if self._profile is None:
            return [Content.styled("measured while an answer comes", MUTED).truncate(width, ellipsis=True)]
        shares = summed(self._profile.shares, ROWS)
        most = max((share for _, share in shares), default=1.0)
        room = max(1, width - NUMBER_COLUMN - 2)
        return [
            Content.assemble(
                labelled(clean_line(name)[:_NAME], f"{100 * share:.0f}"),
                "  ",
                (bar_of(share / most, room), "$primary 60%"),
            )
            for name, share in shares
        ]


def summed(shares: tuple[tuple[str, float], ...], most: int) -> list[tuple[str, float]]:
    """The highest shares, of which the last is all others together where there are more than `most`."""
    if len(shares) <= most:
        return list(shares)
    return [*shares[: most - 1], ("everything else", sum(share for _, share in shares[most - 1 :]))]
