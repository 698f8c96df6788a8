"""Byte-level BPE (`tokenizer.ggml.model` gpt2, gemma4): words, spelled in symbols, joined in the order of merges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyllm_engine.tokenizer.byte_symbols import to_byte_symbols
from tinyllm_engine.tokenizer.merge import merge_pairs
from tinyllm_engine.tokenizer.pretokenize import PreTokenizer
from tinyllm_engine.tokenizer.vocab import SPACE, byte_token
from tinyllm_engine.tokenizer.word_cache import WordCache


def merge_ranks(merges: Sequence[str]) -> dict[str, int]:
    """Each merge, spelled "left right", and its place in the order; of equal merges the first counts.

    No symbol contains a space (it is spelled otherwise), so the merge's text itself identifies the pair.
    """
    last = len(merges) - 1
    return {merge: last - back for back, merge in enumerate(reversed(merges))}


class BytePairEncoder:
    """Ids of a text without special tokens.

    ids: token text -> id
    ranks: of `merge_ranks`
    """

    def __init__(self, ids: Mapping[str, int], ranks: Mapping[str, int], pre: PreTokenizer) -> None:
        self._ids = ids
        self._ranks = ranks
        self._pre = pre
        self._words = WordCache(self._encode_word)

    def encode(self, text: str) -> list[int]:
        if not self._pre.byte_level:
            text = text.replace(" ", SPACE)
        words = self._words
        return [id for word in self._pre.split(text) for id in words[word]]

    def _encode_word(self, word: str) -> list[int]:
        spelled = to_byte_symbols(word) if self._pre.byte_level else word
        whole = self._pre.ignore_merges or (self._pre.whole_newlines and not word.strip("\n"))
        if whole and spelled in self._ids:
            return [self._ids[spelled]]
        return [id for part in merge_pairs(list(spelled), self._rank) for id in self._part_ids(part)]

    def _rank(self, left: str, right: str) -> int | None:
        return self._ranks.get(f"{left} {right}")

    def _part_ids(self, part: str) -> list[int]:
        """Its id; of a part that is no token those of its bytes, as far as the vocabulary has them."""
        if (id := self._ids.get(part)) is not None:
            return [id]
        singles = part if self._pre.byte_level else map(byte_token, part.encode())
        return [self._ids[single] for single in singles if single in self._ids]
