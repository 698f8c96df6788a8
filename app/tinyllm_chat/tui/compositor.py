"""What goes to the terminal when a part of the screen has changed: that part, drawn by the widgets that are seen in it.

Textual's own compositor has every widget that touches the rectangle around all changes draw all of its lines, and cuts
them up to throw most away. Beside an answer that grows that is most of what a frame costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widget import Widget

_Span = tuple[int, int, int]  # a row, and the columns from and to which it has changed
_Row = dict[int, Strip | None]  # by the column where it begins


class PartialCompositor(Compositor):
    """Draws what has changed and nothing else."""

    def update_widgets(self, widgets: set[Widget]) -> None:
        # A scrollbar out of sight is taken for a new widget, for which all others are arranged again.
        super().update_widgets(
            {each for each in widgets if not isinstance(each, ScrollBar) or each in self.visible_widgets}
        )

    def render_partial_update(self) -> ChopsUpdate | None:
        screen = self.size.region
        regions = [screen.intersection(region) for region in self._dirty_regions]
        self._dirty_regions.clear()
        spans = list(self._regions_to_spans(region for region in regions if region))
        if not spans:
            return None
        return _Update(self._drawn(spans), spans, [cuts[1:] for cuts in self.cuts])

    def _drawn(self, spans: Iterable[_Span]) -> Sequence[Mapping[int, Strip]]:
        """What stands between the cuts of each row; None where nothing has changed."""
        cuts = self.cuts
        rows: list[_Row] = [dict.fromkeys(row[:-1]) for row in cuts]
        wanted: dict[int, set[int]] = {}
        for y, left, right in sorted(spans):
            places = {start for start, end in pairwise(cuts[y]) if start < right and left < end}
            wanted.setdefault(y, set()).update(places)
        for widget, (region, clip) in self.visible_widgets.items():  # the front first, and what is seen is not covered
            area = region.intersection(clip)
            left, right, lines = area.x, area.right, area.line_range
            seen = [y for y in wanted if y in lines and any(left <= place < right for place in wanted[y])]
            for run in _runs(seen):
                own = Region(area.x - region.x, run.start - region.y, area.width, len(run))
                for y, strip in zip(run, widget.render_lines(own), strict=False):
                    self._take(strip, area, cuts[y], rows[y], wanted[y])
        return cast("Sequence[Mapping[int, Strip]]", rows)

    @staticmethod
    def _take(strip: Strip, area: Region, cuts: Sequence[int], row: _Row, wanted: set[int]) -> None:
        """Puts those parts of a widget's line into a row that are wanted there."""
        places = [cut for cut in cuts if area.x <= cut <= area.right]
        whole = len(places) == 2 and strip.cell_length == area.width  # what is too short leaves its place to others
        parts = (strip,) if whole else strip.divide([place - area.x for place in places[1:]])
        for place, part in zip(places, parts, strict=False):
            if place in wanted:
                row[place] = part
                wanted.discard(place)


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    """Ascending numbers as stretches without gaps."""
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield range(numbers[start], numbers[end - 1] + 1)
            start = end


class _Update(ChopsUpdate):
    """The parts of rows as what the terminal reads."""

    def render_segments(self, console: Console) -> str:
        written: list[str] = []
        for y, left, right in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is not None and x < right and left < end:
                    # Each part is put into its place: a terminal may take a character to be wider than it is here.
                    written.append(f"\x1b[{y + 1};{x + 1}H")
                    written.append((strip if end <= right else strip.crop(0, right - x)).render(console))
        return "".join(written)
