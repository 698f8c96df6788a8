"""The tokens of a file: texts, types, scores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tinyllm_engine.gguf_header import shown
from tinyllm_engine.tokenizer.fields import Fields

SPACE = "\u2581"  # ▁: how SentencePiece spells a space

_TOKENS = "tokenizer.ggml.tokens"
_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


class TokenType(IntEnum):
    """Values of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def byte_token(byte: int) -> str:
    """How vocabularies that are not byte-level spell the token of a byte."""
    return f"<0x{byte:02X}>"


@dataclass(frozen=True)
class Vocabulary:
    """texts, types and scores are indexed by id; ids is the way back.

    types: a byte each, a `TokenType`; some texts have a type whatever the file says (see `special_ids`)
    scores: of SentencePiece, else zeros
    """

    texts: list[str]
    ids: dict[str, int]
    types: bytearray
    scores: list[float]

    def __len__(self) -> int:
        return len(self.texts)

    def of_type(self, *types: TokenType) -> list[int]:
        """Ids of these types, in order."""
        return np.flatnonzero(np.isin(np.frombuffer(self.types, np.uint8), types)).tolist()

    def byte(self, id: int) -> bytes:
        """What a BYTE token stands for."""
        return bytes([int(self.texts[id][3:5], 16)])

    def is_space(self, id: int) -> bool:
        """Nothing but white space, as text or as SentencePiece spells it."""
        return self.texts[id].replace(SPACE, " ").isspace()


def read_vocabulary(fields: Fields) -> Vocabulary:
    """TokenizerError if the arrays are absent, too short, of other types, or contradict each other."""
    texts = fields.strings(_TOKENS)
    if not texts:
        fields.fail(_TOKENS, "an array of strings", "none" if texts is None else "an empty array")
    if "" in texts:
        texts = [text or f"[EMPTY_{id}]" for id, text in enumerate(texts)]
    ids = {text: id for id, text in enumerate(texts)}
    if len(ids) < len(texts):
        first = next(id for id, text in enumerate(texts) if ids[text] != id)
        fields.fail(_TOKENS, "texts that differ", f"{shown(texts[first])} as token {first} and {ids[texts[first]]}")

    types = fields.numbers("tokenizer.ggml.token_type", len(texts), "iu")
    if types is None:
        types = np.full(len(texts), TokenType.NORMAL)
    types = np.where((types >= 0) & (types <= max(TokenType)), types, TokenType.UNDEFINED)
    scores = fields.numbers("tokenizer.ggml.scores", len(texts), "iuf")
    if scores is None:
        scores = np.zeros(len(texts))
    if np.isnan(scores).any():
        fields.fail("tokenizer.ggml.scores", "numbers", f"NaN for token {int(np.flatnonzero(np.isnan(scores))[0])}")

    vocabulary = Vocabulary(texts, ids, bytearray(types.astype(np.uint8)), scores.tolist())
    for id in vocabulary.of_type(TokenType.BYTE):
        if not _BYTE_TOKEN.fullmatch(texts[id]):
            fields.fail(_TOKENS, "byte tokens of the form <0xFF>", f"{shown(texts[id])} as token {id}")
    return vocabulary
