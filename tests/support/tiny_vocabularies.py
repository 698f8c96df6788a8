"""Metadata of vocabularies small enough to know by heart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tinyllm_engine.tokenizer.byte_symbols import BYTE_SYMBOLS

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def byte_level(
    merges: Sequence[str] = (), special: dict[str, int] | None = None, pre: str | None = "gpt-2", **keys: Any
) -> dict[str, Any]:
    """256 byte symbols, the token of each merge, then special tokens: text -> type. keys: of tokenizer.ggml."""
    special = special or {}
    texts = [*BYTE_SYMBOLS, *(merge.replace(" ", "") for merge in merges), *special]
    types = [NORMAL] * (len(texts) - len(special)) + list(special.values())
    return _metadata("gpt2", texts, types, {"merges": list(merges), "pre": pre, **keys})


def sentence_piece(
    pieces: dict[str, float] | None = None, special: dict[str, int] | None = None, **keys: Any
) -> dict[str, Any]:
    """<unk> <s> </s>, 256 byte tokens, pieces: text -> score, then special tokens: text -> type."""
    pieces, special = pieces or {}, special or {}
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *special]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces) + list(special.values())
    scores = np.array([0.0] * 259 + list(pieces.values()) + [0.0] * len(special), np.float32)
    return _metadata("llama", texts, types, {"scores": scores, **keys})


def word_piece(*words: str, **keys: Any) -> dict[str, Any]:
    """[PAD] [UNK] [CLS] [SEP], then words as they stand: with ▁ in front where they begin one."""
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    ids = {"bos_token_id": 2, "unknown_token_id": 1, "seperator_token_id": 3, "padding_token_id": 0}
    return _metadata("bert", texts, [CONTROL] * 4 + [NORMAL] * len(words), ids | keys)


def unigram(pieces: dict[str, float], special: dict[str, int] | None = None, **keys: Any) -> dict[str, Any]:
    """<pad> </s> <unk>, then pieces: text -> score, then special tokens: text -> type."""
    special = special or {}
    texts = ["<pad>", "</s>", "<unk>", *pieces, *special]
    types = [CONTROL, CONTROL, UNKNOWN] + [NORMAL] * len(pieces) + list(special.values())
    scores = np.array([0.0] * 3 + list(pieces.values()) + [0.0] * len(special), np.float32)
    return _metadata("t5", texts, types, {"scores": scores, **keys})


def rwkv(*texts: str, **keys: Any) -> dict[str, Any]:
    r"""Tokens as their files spell them, `\xe4` and `\n` for one byte each."""
    return _metadata("rwkv", list(texts), [NORMAL] * len(texts), keys)


def plamo(pieces: dict[str, float], **keys: Any) -> dict[str, Any]:
    """<unk> <s> </s> <pad>, 256 byte tokens, then pieces: text -> score."""
    texts = ["<unk>", "<s>", "</s>", "<pad>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    types = [UNKNOWN] + [CONTROL] * 3 + [BYTE] * 256 + [NORMAL] * len(pieces)
    scores = np.array([0.0] * 260 + list(pieces.values()), np.float32)
    return _metadata("plamo2", texts, types, {"scores": scores, **keys})


def _metadata(model: str, texts: list[str], types: list[int], keys: dict[str, Any]) -> dict[str, Any]:
    values = {"model": model, "tokens": texts, "token_type": np.array(types, np.int32), **keys}
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}
