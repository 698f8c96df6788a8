"""Unigram (`tokenizer.ggml.model` t5): of all ways to spell a text in tokens the likeliest, found by Viterbi's method.

Kudo, "Subword Regularization" (arXiv:1804.10959); SentencePiece's normalization comes with the file (`char_map.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby

import regex

from tinyllm_engine.tokenizer.char_map import CharMap
from tinyllm_engine.tokenizer.spm import word_pattern
from tinyllm_engine.tokenizer.vocab import SPACE, TokenType, Vocabulary
from tinyllm_engine.tokenizer.word_cache import WordCache

_UNKNOWN_PENALTY = 10.0  # below the unlikeliest token
_MATCHED = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)


class UnigramEncoder:
    """Ids of a text without special tokens.

    ids: token text -> id, of those that may be used
    unknown: stands for characters that no token spells; such are left out where the file has none
    char_map: what becomes of characters before anything else
    space_prefix: a text begins with a space, whether it has one or not
    merge_spaces: of several spaces one is left, and none at the end
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        ids: Mapping[str, int],
        unknown: int | None,
        char_map: CharMap,
        space_prefix: bool,
        merge_spaces: bool,
    ) -> None:
        types, scores = vocabulary.types, vocabulary.scores
        normal = [scores[id] for id in vocabulary.of_type(TokenType.NORMAL)]
        self._unknown_score = min(normal, default=0.0) - _UNKNOWN_PENALTY
        self._tokens = {
            text: (id, 0.0 if types[id] == TokenType.USER_DEFINED else scores[id])
            for text, id in ids.items()
            if types[id] in _MATCHED
        }
        self._lengths = _lengths_by_start(self._tokens)
        self._char_map = char_map
        self._unknown = -1 if unknown is None else unknown
        self._space_prefix = space_prefix
        self._merge_spaces = merge_spaces
        self._split = regex.compile(word_pattern(self._tokens)).findall
        self._words = WordCache(self._encode_word)

    def encode(self, text: str) -> list[int]:
        words = self._words
        ids = [id for word in self._split(self._normalized(text)) for id in words[word]]
        runs = groupby(ids, lambda id: id == self._unknown)
        return [id for unknown, run in runs for id in (list(run)[:1] if unknown else run) if id >= 0]

    def _normalized(self, text: str) -> str:
        text = self._char_map.apply(text)
        words = text.split(" ")
        if self._merge_spaces:
            return "".join(SPACE + word for word in words if word)
        first = next((number for number, word in enumerate(words) if word), None)
        if self._space_prefix and first is not None:
            words[first] = SPACE + words[first]
        return SPACE.join(words)

    def _encode_word(self, word: str) -> list[int]:
        # The best way to each place: its score, where its last token begins, and that token.
        best = [(0.0, 0, -1)] + [(-math.inf, 0, -1)] * len(word)
        for start, char in enumerate(word):
            score = best[start][0]
            for length in self._lengths.get(char, ()):
                token = self._tokens.get(word[start : start + length])
                if token is not None and start + length <= len(word):
                    id, own = token
                    if score + own > best[start + length][0]:
                        best[start + length] = (score + own, start, id)
            if char not in self._tokens and score + self._unknown_score > best[start + 1][0]:
                best[start + 1] = (score + self._unknown_score, start, self._unknown)
        ids = []
        end = len(word)
        while end > 0:
            _, end, id = best[end]
            ids.append(id)
        return ids[::-1]


def _lengths_by_start(texts: Mapping[str, object]) -> dict[str, list[int]]:
    """First character -> lengths of the texts that begin with it, ascending."""
    lengths: dict[str, set[int]] = {}
    for text in texts:
        lengths.setdefault(text[0], set()).add(len(text))
    return {char: sorted(found) for char, found in lengths.items()}
