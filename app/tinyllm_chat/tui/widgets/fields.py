"""Where text is typed: a text area and a field that show what they hold, whatever that is.

Textual's pass their text on to the terminal as it is. It may be a model's answer that is being edited, a draft or a
setting from a damaged file: what would steer the terminal is drawn as a sign of its own, and stays what it is.
"""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Input, TextArea

from tinyllm_chat.tui.text import sign_for_sign


class Area(TextArea):
    def get_line(self, line_index: int) -> Text:
        return Text(sign_for_sign(self.document.get_line(line_index)), end="", no_wrap=True)


class Field(Input):
    @property
    def _value(self) -> Text:
        return Text(sign_for_sign(self.value).replace("\n", "␊"), no_wrap=True, overflow="ignore", end="")
