"""What a model writes, split into reasoning and answer while it comes.

Marks may be spread over several tokens: an end that may become one is held back until that is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Kind = Literal["reasoning", "content"]

_GAP = "\n\n"  # between what stands apart
_LONGEST_HEADER = 200  # characters between a channel's mark and its message
_HEADER_STARTS = ("<|channel|>", "<|start|>", "assistant", "to=")
_MESSAGE_ENDS = ("<|end|>", "<|start|>", "<|channel|>")


class Part(NamedTuple):
    text: str
    kind: Kind


class Splitter(Protocol):
    """reasoning: what comes next is reasoning, as far as is known"""

    @property
    def reasoning(self) -> bool: ...

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain now. Marks, and white space next to them, are in none."""

    def finish(self) -> list[Part]:
        """What was held back, once nothing more comes."""

    def resume(self, text: str) -> None:
        """Goes on after a text whose parts are known already."""


@dataclass(frozen=True)
class Tags:
    """answer: what the text after the reasoning is wrapped in; mostly nothing"""

    begin: str
    end: str
    answer: tuple[str, str] = ("", "")


class _Splitter:
    def __init__(self) -> None:
        self._rest = ""
        self._trim = False  # white space is dropped until something else comes
        self._parts: list[Part] = []

    def _step(self) -> bool:
        """Handles what it can of the rest; True if there is more to do."""
        raise NotImplementedError

    def feed(self, text: str) -> list[Part]:
        self._rest += text
        while self._step():
            pass
        parts, self._parts = self._parts, []
        return parts

    def resume(self, text: str) -> None:
        self.feed(text)
        self._rest = ""

    def _add(self, text: str, kind: Kind) -> None:
        if text:
            self._parts.append(Part(text, kind))


class TagSplitter(_Splitter):
    """Between tags.

    anywhere: tags count wherever they stand, not only around what comes first
    open: the prompt has begun the reasoning
    """

    def __init__(self, tags: Tags, anywhere: bool, open: bool) -> None:
        super().__init__()
        self._tags = tags
        self._wrapper = tags.answer
        self._state: Literal["before", "reasoning", "answer"] = "reasoning" if open else "before"
        self._trim = open
        self._marks = [tags.begin, tags.end] if anywhere else []  # that count within the answer
        self._gap = ""  # in front of the next reasoning

    @property
    def reasoning(self) -> bool:
        return self._state == "reasoning"

    def finish(self) -> list[Part]:
        rest, self._rest = self._rest, ""
        if self._state == "reasoning":
            self._add(rest.rstrip(), "reasoning")
        else:
            self._add(rest.lstrip() if self._trim else rest, "content")
        parts, self._parts = self._parts, []
        return parts

    def _step(self) -> bool:
        match self._state:
            case "before":
                return self._before_answer()
            case "reasoning":
                return self._in_reasoning()
            case _:
                return self._in_answer()

    def _before_answer(self) -> bool:
        said = self._rest.lstrip()
        begin, wrapper = self._tags.begin, self._wrapper[0]
        if said.startswith(begin):
            self._begin(said[len(begin) :])
        elif wrapper and said.startswith(wrapper):
            self._rest, self._trim = said[len(wrapper) :], True
            self._marks.append(self._wrapper[1])
            self._wrapper = ("", "")
        elif begin.startswith(said) or (wrapper and wrapper.startswith(said)):
            return False
        else:
            self._rest = said if self._trim else self._rest
            self._state = "answer"
        return True

    def _begin(self, rest: str) -> None:
        self._rest, self._state, self._trim = rest, "reasoning", True

    def _in_reasoning(self) -> bool:
        tag = self._tags.end
        self._rest = self._rest.lstrip() if self._trim else self._rest
        end = self._rest.find(tag)
        said = self._rest[: end if end >= 0 else len(self._rest) - partial(self._rest, tag)].rstrip()
        if said:
            self._add(self._gap + said, "reasoning")
            self._gap, self._trim = "", False
        if end < 0:
            self._rest = self._rest[len(said) :]
            return False
        self._rest = self._rest[end + len(tag) :]
        self._state, self._trim, self._gap = "before", True, _GAP
        return True

    def _in_answer(self) -> bool:
        at, mark = _first(self._rest, self._marks)
        self._add(self._rest[:at], "content")
        rest = self._rest[at + len(mark) :]
        if mark and mark == self._tags.begin:
            self._begin(rest)
        else:
            self._rest = rest
        return bool(mark)


class ChannelSplitter(_Splitter):
    """Messages in channels: `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>`

    After `<|start|>assistant`, as prompts end: the answer begins with a header.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kind: Kind | None = None  # of the message that is being written; None: in a header
        self._gaps: dict[Kind, str] = {"reasoning": "", "content": ""}

    @property
    def reasoning(self) -> bool:
        return self._kind == "reasoning"

    def finish(self) -> list[Part]:
        rest, self._rest = self._rest, ""
        return [Part(rest, self._kind)] if self._kind is not None and rest.strip() else []

    def _step(self) -> bool:
        return self._in_header() if self._kind is None else self._in_message(self._kind)

    def _in_header(self) -> bool:
        header, mark, rest = self._rest.partition("<|message|>")
        said = header.lstrip()
        if not any(said.startswith(start) or start.startswith(said) for start in _HEADER_STARTS):
            self._kind = "content"  # the model forgot its channels
        elif len(said) > _LONGEST_HEADER:
            self._kind, self._rest = (
                "content",
                self._rest.lstrip().removeprefix("<|start|>").removeprefix("<|channel|>"),
            )
        elif mark:
            channel = said.rpartition("<|channel|>")[2].split()
            hidden = channel[:1] == ["analysis"] or any(word.startswith("to=") for word in said.split())
            self._kind, self._rest, self._trim = "reasoning" if hidden else "content", rest, True
        else:
            return False
        return True

    def _in_message(self, kind: Kind) -> bool:
        self._rest = self._rest.lstrip() if self._trim else self._rest
        at, end = _first(self._rest, _MESSAGE_ENDS)
        said = self._rest[:at].rstrip() if end or kind == "reasoning" else self._rest[:at]
        if said:
            self._add(self._gaps[kind] + said, kind)
            self._gaps[kind], self._trim = "", False
        if not end:
            self._rest = self._rest[len(said) :]
            return False
        self._gaps[kind] = _GAP
        self._kind, self._rest = None, self._rest[at + (len(end) if end == "<|end|>" else 0) :]
        return True


def _first(text: str, marks: list[str] | tuple[str, ...]) -> tuple[int, str]:
    """Where the first of the marks stands, and which; if none does, where one may have begun, and ""."""
    found = [(at, mark) for mark in marks if (at := text.find(mark)) >= 0]
    if found:
        return min(found)
    return len(text) - max((partial(text, mark) for mark in marks), default=0), ""


def partial(text: str, mark: str) -> int:
    """Length of the longest end of the text that is a beginning of the mark, but not all of it."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
