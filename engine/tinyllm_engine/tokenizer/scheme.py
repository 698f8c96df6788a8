"""The kinds of tokenizers, `tokenizer.ggml.model`, and all that differs between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.gguf_header import shown
from tinyllm_engine.tokenizer.bpe import BytePairEncoder, merge_ranks
from tinyllm_engine.tokenizer.byte_symbols import from_byte_symbols
from tinyllm_engine.tokenizer.char_map import read_char_map
from tinyllm_engine.tokenizer.fields import Fields
from tinyllm_engine.tokenizer.plamo import BestSumEncoder
from tinyllm_engine.tokenizer.pretokenize import PRE_TOKENIZERS, PreTokenizer
from tinyllm_engine.tokenizer.rwkv import LongestMatchEncoder, unescaped
from tinyllm_engine.tokenizer.spm import SentencePieceEncoder
from tinyllm_engine.tokenizer.unigram import UnigramEncoder
from tinyllm_engine.tokenizer.vocab import SPACE, TokenType, Vocabulary
from tinyllm_engine.tokenizer.wordpiece import WordPieceEncoder

_MODEL = "tokenizer.ggml.model"
_PRE = "tokenizer.ggml.pre"
_MERGES = "tokenizer.ggml.merges"


class Encoder(Protocol):
    def encode(self, text: str) -> list[int]:
        """Ids of a text without special tokens."""


@dataclass(frozen=True)
class Scheme:
    """encoder: makes one from the vocabulary, the texts that it may use, with their ids, and the unknown token

    spell: the bytes that the text of a NORMAL token stands for
    default_ids, add_bos, space_prefix: in force where the file has no key for them
    force_bos: BOS comes first even where the file says otherwise
    space_prefix: text at the start and after a special token gets a space in front
    clean_spaces: a decoded text loses spaces before punctuation
    """

    encoder: Callable[[Vocabulary, Mapping[str, int], int | None], Encoder]
    spell: Callable[[str], bytes]
    default_ids: dict[str, int] = field(default_factory=dict)
    add_bos: bool = False
    force_bos: bool = False
    space_prefix: bool = False
    clean_spaces: bool = False


def read_scheme(fields: Fields, notes: list[str]) -> Scheme:
    """UnsupportedModelError for a model or `pre` that is not known here."""
    model = fields.text(_MODEL)
    if model is None:
        raise UnsupportedModelError(f"{fields.where}the file has no tokenizer ({_MODEL} is missing)")
    if model in _OTHERS:
        return _OTHERS[model](fields)
    if model not in ("gpt2", "gemma4"):
        raise UnsupportedModelError(f"{fields.where}{_MODEL}: this engine has no tokenizer {shown(model)}")
    pre = _pre_tokenizer(fields, "gemma4" if model == "gemma4" else fields.text(_PRE), notes)
    merges = fields.strings(_MERGES)
    if merges is None:
        fields.fail(_MERGES, "an array of strings", "none")
    ranks = merge_ranks(merges)
    return Scheme(
        lambda _, ids, unknown: BytePairEncoder(ids, ranks, pre),
        from_byte_symbols if pre.byte_level else _spell_plainly,
        add_bos=pre.add_bos,
        force_bos=pre.force_bos,
        clean_spaces=pre.clean_spaces,
    )


def _sentence_piece(fields: Fields) -> Scheme:
    return Scheme(
        lambda vocabulary, ids, unknown: SentencePieceEncoder(ids, vocabulary.scores),
        _spell_plainly,
        default_ids={"unk": 0, "bos": 1, "eos": 2},
        add_bos=True,
        space_prefix=True,
    )


def _word_piece(fields: Fields) -> Scheme:
    lowercase = fields.flag("tokenizer.ggml.normalizer.lowercase", True)
    strip_accents = fields.flag("tokenizer.ggml.normalizer.strip_accents", lowercase)
    return Scheme(
        lambda vocabulary, ids, unknown: WordPieceEncoder(ids, unknown, lowercase, strip_accents),
        _spell_plainly,
        default_ids={"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
        add_bos=True,
        force_bos=True,
        clean_spaces=True,
    )


def _unigram(fields: Fields) -> Scheme:
    space_prefix = fields.flag("tokenizer.ggml.add_space_prefix", False)
    merge_spaces = fields.flag("tokenizer.ggml.remove_extra_whitespaces", False)

    def encoder(vocabulary: Vocabulary, ids: Mapping[str, int], unknown: int | None) -> Encoder:
        kept = (vocabulary.texts[id] for id in vocabulary.of_type(TokenType.USER_DEFINED))
        char_map = read_char_map(fields, kept)
        return UnigramEncoder(vocabulary, ids, unknown, char_map, space_prefix, merge_spaces)

    return Scheme(
        encoder,
        _spell_plainly,
        default_ids={"eos": 1, "unk": 2, "pad": 0},
    )


def _rwkv(fields: Fields) -> Scheme:
    return Scheme(lambda vocabulary, ids, unknown: LongestMatchEncoder(ids, unknown), unescaped)


def _plamo(fields: Fields) -> Scheme:
    return Scheme(
        lambda vocabulary, ids, unknown: BestSumEncoder(vocabulary, ids),
        lambda text: text.encode("utf-8", "surrogateescape"),
        default_ids={"unk": 0, "bos": 1, "eos": 2, "pad": 3},
    )


_OTHERS: dict[str, Callable[[Fields], Scheme]] = {
    "llama": _sentence_piece,
    "bert": _word_piece,
    "t5": _unigram,
    "rwkv": _rwkv,
    "plamo2": _plamo,
}


def _pre_tokenizer(fields: Fields, name: str | None, notes: list[str]) -> PreTokenizer:
    if not name:
        notes.append(f"{_PRE} is missing: words are split by the default rules, which may not be this model's")
        name = "default"
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModelError(f"{fields.where}{_PRE}: this engine does not know how {shown(name)} splits words")
    return PRE_TOKENIZERS[name]


def _spell_plainly(text: str) -> bytes:
    return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")
