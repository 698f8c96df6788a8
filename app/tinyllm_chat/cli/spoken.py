"""An answer as text that can be listened to: whole sentences as they come, code and its end named in words."""

from __future__ import annotations

import re

from tinyllm_chat.chat.safe_text import printable

_FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*([\w+#.-]*)")
_SENTENCE = re.compile(r".*[.!?:;。！？](?=\s)|.*[。！？]", re.DOTALL)


class Spoken:
    """Takes text in pieces of any size; gives it back in pieces that end with a sentence or a line."""

    def __init__(self) -> None:
        self._line = ""  # of the line that is being written, what was not given back
        self._at_start = True  # nothing of this line was given back
        self._fence = ""  # of the code that is being written

    def feed(self, text: str) -> str:
        *lines, self._line = (self._line + printable(text)).split("\n")
        said = ""
        for line in lines:
            said += self._whole(line) + "\n"
            self._at_start = True
        return said + self._sentences()

    def end(self) -> str:
        """The rest; what is written next begins a line."""
        rest = self._whole(self._line) if self._line else ""
        if self._fence:
            rest += ("" if self._at_start and not rest else "\n") + "End of code."
        ended = bool(rest) or not self._at_start
        self.__init__()  # type: ignore[misc]
        return rest + "\n" if ended else ""

    def _whole(self, line: str) -> str:
        """A line, or the rest of one."""
        mark = _FENCE.match(line) if self._at_start else None
        if mark is None:
            return line
        if not self._fence:
            self._fence = mark[1]
            return f"Code, {mark[2]}:" if mark[2] else "Code:"
        if mark[1].startswith(self._fence):
            self._fence = ""
            return "End of code."
        return line

    def _sentences(self) -> str:
        if self._fence or (self._at_start and self._line.lstrip()[:1] in ("`", "~")):
            return ""
        found = _SENTENCE.match(self._line)
        if found is None:
            return ""
        self._line, self._at_start = self._line[found.end() :], False
        return found[0]
