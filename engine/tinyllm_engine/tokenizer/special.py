"""Special tokens are found in a text by their own text, before anything else is tokenized."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tinyllm_engine.tokenizer.fields import Fields
from tinyllm_engine.tokenizer.vocab import TokenType, Vocabulary

_ASCII_SPACE = " \t\n\v\f\r"

FREE = "\0"  # the mark of a character in which special tokens may be found


class Fragment(NamedTuple):
    """text[start:stop] is the special token `id`, or, with None, ordinary text between such tokens."""

    start: int
    stop: int
    id: int | None = None


@dataclass(frozen=True)
class SpecialToken:
    """hidden: found only on request (control and unknown; user-defined ones always are)

    space: nothing but white space
    strip_left, strip_right: takes the white space beside it along
    """

    id: int
    text: str
    hidden: bool
    space: bool
    strip_left: bool
    strip_right: bool


class SpecialTokens:
    """The control, unknown and user-defined tokens of a vocabulary.

    markers: ids of those that are not white space, which is what content must never turn into
    """

    def __init__(self, vocabulary: Vocabulary, fields: Fields) -> None:
        types = vocabulary.types
        ids = vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
        strip_left, strip_right = _stripping(vocabulary, fields, ids)
        tokens = [
            SpecialToken(
                id=id,
                text=vocabulary.texts[id],
                hidden=types[id] != TokenType.USER_DEFINED,
                space=vocabulary.is_space(id),
                strip_left=id in strip_left,
                strip_right=id in strip_right,
            )
            for id in ids
        ]
        self._longest_first = sorted(tokens, key=lambda token: -len(token.text.encode("utf-8", "surrogateescape")))
        self.markers = frozenset(token.id for token in tokens if not token.space)

    def split(self, text: str, parse_special: bool, marks: str | None = None) -> list[Fragment]:
        """The text in fragments, every occurrence of the longest token first, then of the next one between them, ...

        marks: as long as the text; a token that is not white space is found only where all its characters are FREE
        """
        fragments = [Fragment(0, len(text))] if text else []
        free = text if marks is None else _free(text, marks)
        letters, free_letters = set(text), set(free)
        for token in self._longest_first:
            if token.hidden and not parse_special:
                continue
            where, first = (text, letters) if token.space else (free, free_letters)
            if token.text[0] in first and token.text in where:
                guard = None if token.space else marks
                fragments = [
                    part
                    for fragment in fragments
                    for part in ((fragment,) if fragment.id is not None else _cut(text, fragment, token, guard))
                ]
        return fragments


def _stripping(vocabulary: Vocabulary, fields: Fields, ids: list[int]) -> tuple[set[int], set[int]]:
    """Ids of tokens that take white space to their left and right along. No key says so; the model's name does."""
    name = (fields.text("general.name") or "").lower()
    pre = fields.text("tokenizer.ggml.pre") or ""
    architecture = fields.text("general.architecture") or ""
    if any(model in pre for model in ("jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert")) or any(
        model in architecture for model in ("nomic-bert-moe", "jina-bert-v3")
    ):
        return _ids(vocabulary, "<mask>"), set()
    if "phi-3" in name or "phi3" in name:
        return set(), {*ids, *_ids(vocabulary, "</s>")} - _ids(vocabulary, "<unk>", "<s>", "<|endoftext|>")
    if "modern-bert" in name:
        return _ids(vocabulary, "[MASK]"), set()
    return set(), set()


def _ids(vocabulary: Vocabulary, *texts: str) -> set[int]:
    return {vocabulary.ids[text] for text in texts if text in vocabulary.ids}


def _free(text: str, marks: str) -> str:
    """What is FREE of a text, in which there is much less to look through than in all of it."""
    return FREE.join(text[run.start() : run.end()] for run in re.finditer(f"{FREE}+", marks))


def _cut(text: str, fragment: Fragment, token: SpecialToken, marks: str | None) -> Iterator[Fragment]:
    rest = fragment.start
    for at in _occurrences(text, fragment, token.text, marks):
        if at < rest:  # inside the one before
            continue
        left_stop = at
        while token.strip_left and left_stop > rest and text[left_stop - 1] in _ASCII_SPACE:
            left_stop -= 1
        if left_stop > rest:
            yield Fragment(rest, left_stop)
        rest = at + len(token.text)
        yield Fragment(at, rest, token.id)
        while token.strip_right and rest < fragment.stop and text[rest] in _ASCII_SPACE:
            rest += 1
    if rest < fragment.stop:
        yield Fragment(rest, fragment.stop)


def _occurrences(text: str, fragment: Fragment, token: str, marks: str | None) -> Iterator[int]:
    """Where the token stands in the fragment, in FREE characters only if there are marks; they may overlap."""
    free = FREE * len(token)
    at = text.find(token, fragment.start, fragment.stop)
    while at >= 0:
        if marks is None or marks.startswith(free, at):
            yield at
        at = text.find(token, at + 1, fragment.stop)
