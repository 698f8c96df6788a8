"""What lies under the widgets. A plain ground is drawn for every frame that touches it, so it has to be cheap."""

from __future__ import annotations

from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from tinyllm_chat.tui.compositor import PartialCompositor


def _background(widget: Widget, crop: Region) -> list[Strip]:
    """The background alone, for widgets without border and padding."""
    strip = Strip.blank(crop.width, widget.visual_style.rich_style)
    for line_filter in widget.get_line_filters():
        strip = strip.apply_filter(line_filter, widget.background_colors[1])
    return [strip] * crop.height


class Column(Vertical):
    """Widgets one below the other."""

    def render_lines(self, crop: Region) -> list[Strip]:
        return _background(self, crop)


class Row(Horizontal):
    """Widgets side by side."""

    def render_lines(self, crop: Region) -> list[Strip]:
        return _background(self, crop)


class PlainScreen(Screen[None]):
    """The screen that the chat stands on."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._compositor = PartialCompositor()

    def render_lines(self, crop: Region) -> list[Strip]:
        return _background(self, crop)
