"""The ids that a model answered with, in place of the text that they spell.

Tokenized again, one answer in eight comes to other ids: the model would not see what it wrote, and the cache would be
of no use from there on. Ids that come from a transcript are not trusted: they must spell their message, and hide
nothing else.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from tinyllm_engine.chat_template.marked_text import MarkedText, message_mark, plain, runs
from tinyllm_engine.chat_template.messages import REASONING
from tinyllm_engine.chat_template.thinking import Marks
from tinyllm_engine.tokenizer import Tokenizer


class Splice(NamedTuple):
    """Characters of a text that ids stand for."""

    start: int
    stop: int
    ids: list[int]
    mark: str


def find_splices(
    text: MarkedText, messages: Sequence[Mapping[str, Any]], marks: Marks | None, tokenizer: Tokenizer
) -> list[Splice]:
    """Where recorded ids go, in order of the text: wherever a message stands in it unchanged, and once."""
    splices = []
    spans: dict[str, list[tuple[int, int]]] = {}
    for start, stop in runs(text.marks):
        spans.setdefault(text.marks[start], []).append((start, stop))
    for index, message in enumerate(messages):
        if not isinstance(message.get("ids"), (list, tuple)):
            continue
        mark = message_mark(index)
        for said, ids in _spelled(message, marks, tokenizer):
            places = [span for span in spans.get(mark, ()) if plain(text[slice(*span)]) == said]
            if len(places) == 1:
                splices.append(Splice(*places[0], ids, mark))
    return sorted(splices)


def whole_answer(message: Mapping[str, Any], opening: str, marks: Marks | None, tokenizer: Tokenizer) -> list[int]:
    """All ids of an answer, its marks included, if they are what came after a prompt that ends so; else none."""
    ids = message.get("ids")
    content, reasoning = message.get("content") or "", message.get(REASONING) or ""
    if not isinstance(ids, (list, tuple)) or not _usable(ids, tokenizer):
        return []
    shown = frozenset() if marks is None else marks.shown
    if marks is not None and not shown.issuperset(tokenizer.hidden_ids.intersection(ids)):
        return []
    # The last character may be incomplete: said as U+FFFD by an answer that was stopped, left out by one to go on.
    texts = (_text(ids, tokenizer, shown, complete) for complete in (True, False))
    said = (("", text) if marks is None else _split(text, opening, marks) for text in texts)
    return list(ids) if (reasoning if marks is not None else "", content) in said else []


def _spelled(message: Mapping[str, Any], marks: Marks | None, tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
    """Texts of a message, each with the ids that spell it."""
    ids, content = message["ids"], message.get("content")
    if not isinstance(content, str) or not _usable(ids, tokenizer):
        return []
    if content and tokenizer.hidden_ids.isdisjoint(ids) and _text(ids, tokenizer) == content:
        return [(content, list(ids))]
    reasoning = message.get(REASONING) or ""
    if marks is None or not isinstance(reasoning, str):
        return []
    written = _text(ids, tokenizer, marks.shown)
    if not any(_split(written, opening, marks) == (reasoning, content) for opening in marks.openings):
        return []
    return [(said, part) for said in (reasoning, content) if said and (part := _part(said, ids, marks, tokenizer))]


def _part(said: str, ids: Sequence[int], marks: Marks, tokenizer: Tokenizer) -> list[int]:
    """The ids that spell this much of what they spell together; none where it begins or ends within one."""
    pieces = _pieces(ids, tokenizer, marks.shown)
    ends = [0, *accumulate(map(len, pieces))]
    start = b"".join(pieces).rfind(said.encode("utf-8", "surrogatepass"))
    stop = start + len(said.encode("utf-8", "surrogatepass"))
    if start not in ends or stop not in ends:
        return []
    first = len(ends) - 1 - ends[::-1].index(start)
    part = list(ids[first : ends.index(stop)])
    return part if tokenizer.hidden_ids.isdisjoint(part) else []


def _split(written: str, opening: str, marks: Marks) -> tuple[str, str]:
    """Reasoning and content of what was written."""
    splitter = marks.splitter(opening)
    parts = [*splitter.feed(written), *splitter.finish()]
    reasoning, content = (
        "".join(part.text for part in parts if part.kind == kind) for kind in ("reasoning", "content")
    )
    return reasoning, content


def _usable(ids: Sequence[Any], tokenizer: Tokenizer) -> bool:
    """Ids of this vocabulary that end nothing."""
    if not {int}.issuperset(map(type, ids)) or not tokenizer.eog_ids.isdisjoint(ids):
        return False
    return not ids or (min(ids) >= 0 and max(ids) < tokenizer.vocab_size)


def _pieces(ids: Sequence[int], tokenizer: Tokenizer, shown: frozenset[int] = frozenset()) -> list[bytes]:
    return [
        tokenizer.token_text(id).encode("utf-8", "surrogateescape") if id in shown else tokenizer.piece(id)
        for id in ids
    ]


def _text(ids: Sequence[int], tokenizer: Tokenizer, shown: frozenset[int] = frozenset(), complete: bool = True) -> str:
    """complete: an incomplete character at the end is U+FFFD, else nothing"""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(_pieces(ids, tokenizer, shown)), complete)
