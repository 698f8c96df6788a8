"""A chat as a Markdown document, and back.

A comment at the end says in which lines messages begin, and whose they are: headings alone do not, answers have some
too. A document without it, or whose lines have moved, is read by its headings.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from tinyllm_chat.chat.conversation import Conversation, Message, MessageState, title_of
from tinyllm_chat.chat.cuts import BEGINS, ENDS, Cut
from tinyllm_chat.chat.safe_text import printable

_NAMELESS = "Assistant"
_ENDINGS = {
    "length": "stopped at the token limit",
    "context_full": "stopped: the context is full",
    "cancelled": "stopped",
    "edited": "edited",
}
_ROLES = {"You": "user", "System": "system"}
_PLACES = re.compile(r"<!-- tinyllm-chat 1:((?: (?:system|user|assistant|cut)@\d{1,9})*) -->")
_CUT = "cut"  # the place of a mark
_CUT_MARK = re.compile(rf"\*\((?:{BEGINS}|{ENDS}: [\d,]+ messages?, [\d,]+ tokens)\)\*")
_ENDED = re.compile(r"\*\((.{1,300})\)\*")


def to_markdown(conversation: Conversation) -> str:
    """The visible path, one heading for each message."""
    parts = [f"# {clean(conversation.title)}"]
    places = ""
    line = 3  # where the next part begins: each is followed by an empty line
    cut = conversation.cut
    for message in conversation.path():
        if cut is not None and message.id in cut.marks:
            mark = _cut_mark(cut, message)
            places += f" {_CUT}@{line}"
            line += mark.count("\n") + 2
            parts.append(mark)
        section = [f"## {speaker(message)}"]
        if message.whole_text.strip():
            section.append(clean(message.whole_text).strip("\n"))
        if ending := ending_of(message):
            section.append(f"*({clean(ending)})*")
        places += f" {message.role}@{line}"
        line += sum(part.count("\n") + 2 for part in section)
        parts += section
    return "\n\n".join([*parts, f"<!-- tinyllm-chat 1:{places} -->"]) + "\n"


def _cut_mark(cut: Cut, message: Message) -> str:
    """Above a message: that the model does not see what follows, or what is above, and what it reads instead."""
    mark = f"*({cut.marks[message.id]})*"
    if message.id == cut.begin or not cut.summary:
        return mark
    summary = "\n".join(f"> {line}".rstrip() for line in clean(cut.summary).split("\n"))
    return f"{mark}\n\n> **Summary in their place**\n>\n{summary}"


def from_markdown(document: str) -> Conversation:
    """The conversation in a document as `to_markdown` writes it. Raises ValueError for another."""
    lines = document.replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        del lines[-1]
    if not lines or not lines[0].startswith("# "):
        raise ValueError("expected the title of a chat in its first line")
    comment = _PLACES.fullmatch(lines[-1])
    marked = [place.split("@") for place in comment[1].split()] if comment else []
    if comment:
        del lines[-1]
    starts = [(role, int(number) - 1) for role, number in marked]
    if not starts or not _are_in_place(lines, starts):
        starts = list(_headings(lines))
    if all(role == _CUT for role, _ in starts):
        raise ValueError("expected a message under a heading such as ## You")
    conversation = Conversation()
    ends = [start for _, start in starts[1:]]
    for (role, start), end in zip(starts, [*ends, len(lines)], strict=True):
        if role == _CUT:  # the model may see all of the new chat
            continue
        text = "\n".join(lines[start + 1 : end]).strip("\n")
        _add(conversation, role, clean(text), clean(lines[start][3:].strip()))
    title = title_of(clean(lines[0][2:]))
    if title != conversation.title:
        conversation.name = title
    return conversation


def _are_in_place(lines: list[str], starts: list[tuple[str, int]]) -> bool:
    numbers = [number for _, number in starts]
    in_order = numbers == sorted(set(numbers)) and numbers[-1] < len(lines)
    return in_order and all(lines[number].startswith("*(" if role == _CUT else "## ") for role, number in starts)


def _headings(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Headings of messages: yours, the system's, and after yours the first other one, which is the answer's; and marks
    of cuts.
    """
    answered = True
    for number, line in enumerate(lines):
        if _CUT_MARK.fullmatch(line):
            yield _CUT, number
        if not line.startswith("## "):
            continue
        role = _ROLES.get(line[3:].strip(), "assistant")
        if role != "assistant" or not answered:
            answered = role != "user"
            yield role, number


def _add(conversation: Conversation, role: str, text: str, name: str) -> None:
    if role == "system":
        conversation.set_system(text)
        return
    if role == "user":
        conversation.new_message("user", text, conversation.head)
        return
    body, _, last = text.rpartition("\n\n")
    ended = _ENDED.fullmatch(last)
    reasons = {words: reason for reason, words in _ENDINGS.items()}
    known = ended is not None and (ended[1] in reasons or ended[1] == "unfinished" or ended[1].startswith("failed: "))
    message = conversation.new_message("assistant", "", conversation.head)
    message.model = None if name == _NAMELESS else name
    message.extend(body if known else text, ())
    if not known:
        message.finish("eog", None)
    elif ended is not None and ended[1] in reasons:
        message.finish(reasons[ended[1]], None)
    elif ended is not None and ended[1].startswith("failed: "):
        message.fail(ended[1].removeprefix("failed: "))
    else:
        message.state = MessageState.INTERRUPTED


def file_stem(conversation: Conversation) -> str:
    """A name for the document: when the chat began and what it is about."""
    first = next(iter(conversation), None)
    began = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(first.created if first is not None else None))
    words = re.findall(r"\w+", conversation.title.lower())
    return "-".join([began, *words])[:80]


def speaker(message: Message) -> str:
    """Who said it, in one line."""
    if message.role == "assistant":
        return " ".join(clean(message.model or "").split()) or _NAMELESS
    return {"system": "System", "user": "You"}[message.role]


def ending_of(message: Message) -> str | None:
    """How it ended, if that is not as it should be."""
    if message.state is MessageState.FAILED:
        return f"failed: {message.error}"
    if message.state is not MessageState.COMPLETE:
        return "unfinished"
    return _ENDINGS.get(message.reason or "")


def clean(text: str) -> str:
    """Without what steers a terminal when the document is shown with `cat`."""
    return printable(text.replace("\r\n", "\n"))
