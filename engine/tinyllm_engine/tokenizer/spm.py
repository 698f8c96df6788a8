"""SentencePiece-style BPE (`tokenizer.ggml.model` llama): pairs are joined by the score of the token that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import regex

from tinyllm_engine.tokenizer.merge import merge_pairs
from tinyllm_engine.tokenizer.vocab import SPACE, byte_token
from tinyllm_engine.tokenizer.word_cache import WordCache


class SentencePieceEncoder:
    """Ids of a text without special tokens.

    ids: token text -> id
    scores: by id; the higher, the sooner a token is made
    """

    def __init__(self, ids: Mapping[str, int], scores: Sequence[float]) -> None:
        self._ids = ids
        self._costs = {text: -scores[id] for text, id in ids.items()}
        self._split = regex.compile(word_pattern(ids)).findall
        self._words = WordCache(self._encode_word)

    def encode(self, text: str) -> list[int]:
        words = self._words
        return [id for word in self._split(text.replace(" ", SPACE)) for id in words[word]]

    def _encode_word(self, word: str) -> list[int]:
        return [id for part in merge_pairs(list(word), self._cost) for id in self._part_ids(part)]

    def _cost(self, left: str, right: str) -> float | None:
        return self._costs.get(left + right)

    def _part_ids(self, part: str) -> list[int]:
        """Its id; of a character that is no token those of its bytes, as far as the vocabulary has them."""
        if (id := self._ids.get(part)) is not None:
            return [id]
        return [id for byte in part.encode() if (id := self._byte_id(byte)) is not None]

    def _byte_id(self, byte: int) -> int | None:
        id = self._ids.get(byte_token(byte))
        return id if id is not None else self._ids.get(bytes([byte]).decode("utf-8", "surrogateescape"))


def word_pattern(texts: Iterable[str]) -> str:
    """SentencePiece knows no words, but a text may be cut before a ▁ unless a token could lie across the cut.

    Such a token has the character before the cut and ▁ side by side: mostly that is only ▁ itself, in runs of spaces.
    """
    inside = (text for text in texts if SPACE in text[1:])
    before_space = {left for text in inside for left, right in pairwise(text) if right == SPACE}
    word = f"(?s:.)[^{SPACE}]*"
    if not before_space:
        return word
    return f"{word}(?:(?<=[{regex.escape(''.join(sorted(before_space)), literal_spaces=True)}]){SPACE}[^{SPACE}]*)*"
