"""Tokenizer: text to ids and back, from nothing but the metadata of a file."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from tinyllm_engine.errors import TokenizerError
from tinyllm_engine.tokenizer.fields import Fields
from tinyllm_engine.tokenizer.fragment_memory import Encoded, FragmentMemory
from tinyllm_engine.tokenizer.scheme import Encoder, read_scheme
from tinyllm_engine.tokenizer.special import FREE, Fragment, SpecialTokens
from tinyllm_engine.tokenizer.special_ids import assign_special_ids
from tinyllm_engine.tokenizer.stream import StreamDecoder
from tinyllm_engine.tokenizer.vocab import TokenType, read_vocabulary

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """Gives exactly llama.cpp's ids.

    add_bos: does `encode` put BOS first unless told otherwise?
    eog_ids: any of these ends an answer
    notes: what the user should know, e.g. that the file does not say how words are split
    """

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: str = "") -> Tokenizer:
        """`metadata` as `open_gguf` gives it; `path` is for messages.

        UnsupportedModelError for a tokenizer or `pre` that this engine does not know, TokenizerError for a vocabulary
        that cannot be used.
        """
        return cls(Fields(metadata, path))

    def __init__(self, fields: Fields) -> None:
        notes: list[str] = []
        self._scheme = read_scheme(fields, notes)
        self._vocabulary = read_vocabulary(fields)
        special_ids = assign_special_ids(fields, self._vocabulary, self._scheme.default_ids, notes)
        self._roles = special_ids.roles
        self.eog_ids = special_ids.end_of_generation
        self._special = SpecialTokens(self._vocabulary, fields)
        self._encoder = self._scheme.encoder(self._vocabulary, self._vocabulary.ids, self.unk_id)
        # Of the same key llama.cpp makes two things: byte-level BPE adds no space, but would drop one again.
        self._drop_space = fields.flag("tokenizer.ggml.add_space_prefix", self._scheme.space_prefix)
        self._prefix = " " if self._drop_space and self._scheme.space_prefix else ""
        self.add_bos = fields.flag("tokenizer.ggml.add_bos_token", self._scheme.add_bos) or self._scheme.force_bos
        if self.add_bos and self.bos_id is None:
            notes.append("a text should begin with BOS, but no token is BOS: none is added")
            self.add_bos = False
        self.notes = tuple(notes)
        self._pieces: dict[int, bytes] = {}
        self._encode_fragment = FragmentMemory(self._marked_ids)

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary)

    @property
    def bos_id(self) -> int | None:
        return self._roles.get("bos")

    @property
    def eos_id(self) -> int | None:
        return self._roles.get("eos")

    @property
    def unk_id(self) -> int | None:
        return self._roles.get("unk")

    @property
    def pad_id(self) -> int | None:
        return self._roles.get("pad")

    @property
    def sep_id(self) -> int | None:
        return self._roles.get("sep")

    @property
    def mask_id(self) -> int | None:
        return self._roles.get("mask")

    def token_text(self, id: int) -> str:
        """As the vocabulary spells it: "Ġworld", "▁world", "<0x0A>", "<|im_end|>"."""
        return self._vocabulary.texts[self._checked(id)]

    def token_id(self, text: str) -> int | None:
        """The token that the vocabulary spells so; None if there is none."""
        return self._vocabulary.ids.get(text)

    def token_type(self, id: int) -> TokenType:
        """The file's, except for texts whose meaning is known: those that end a turn are CONTROL."""
        return TokenType(self._vocabulary.types[self._checked(id)])

    @cached_property
    def hidden_ids(self) -> frozenset[int]:
        """Control and unknown tokens: they have no text."""
        return frozenset(self._vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN))

    def is_marker(self, id: int) -> bool:
        """Control, unknown or user-defined, and not white space: what text from outside must not become."""
        return id in self._special.markers

    def encode(self, text: str, parse_special: bool = False, add_bos: bool | None = None) -> list[int]:
        """The ids of a text.

        parse_special: texts of control and unknown tokens become those tokens (of user-defined ones they always do).
            Never for text from outside: that goes through the chat template.
        add_bos: None: if the model wants it
        EOS is never added, whatever the file says: what is encoded here is to be continued.
        TokenizerError if BOS is asked for and there is none.
        """
        text = _without_surrogates(text)
        ids: list[int] = []
        for fragment, raw in self._raw_fragments(text, self._special.split(text, parse_special)):
            ids += self._encoder.encode(raw) if fragment.id is None else [fragment.id]
        if not (self.add_bos if add_bos is None else add_bos):
            return ids
        if self.bos_id is None:
            raise TokenizerError("BOS was asked for, but the vocabulary has none")
        return [self.bos_id, *ids]

    def encode_marked(self, text: str, marks: str, after_special: bool = True) -> tuple[list[int], str]:
        """The ids of a text of mixed origin, and the mark of each: the highest of the characters in it.

        marks: a character for each of the text. Special tokens are found only in characters with the mark "\\0", and
            what is marked otherwise never becomes a control, unknown or user-defined token, white space excepted.
        after_special: the text follows a special token or nothing, which matters to the space that SentencePiece adds
        """
        text = _without_surrogates(text)
        ids: list[int] = []
        id_marks = ""
        for fragment, raw in self._raw_fragments(text, self._special.split(text, True, marks), after_special):
            origin = marks[fragment.start : fragment.stop]
            if fragment.id is not None:
                ids.append(fragment.id)
                id_marks += max(origin)
                continue
            part, part_marks = self._encode_fragment(raw, origin)
            ids += part
            id_marks += part_marks
        return ids, id_marks

    def _marked_ids(self, raw: str, origin: str) -> Encoded:
        """The ids of an ordinary fragment, and the mark of each."""
        ids = self._encoder.encode(raw)
        if not self._special.markers.isdisjoint(ids) and origin.strip(FREE):
            ids = self._content_encoder.encode(raw)  # the pieces added up to the text of a special token
        return ids, self._mark_ids(ids, raw, origin)

    def _raw_fragments(
        self, text: str, fragments: list[Fragment], after_special: bool = True
    ) -> Iterator[tuple[Fragment, str]]:
        """Each fragment with the text to encode: that of an ordinary one may get a space in front."""
        for fragment in fragments:
            yield fragment, (self._prefix if after_special else "") + text[fragment.start : fragment.stop]
            after_special = fragment.id is not None

    def _mark_ids(self, ids: list[int], raw: str, origin: str) -> str:
        if len(set(origin)) == 1:
            return origin[0] * len(ids)
        if len(raw) > len(origin):
            origin = origin[0] + origin  # the space in front
        spread = origin
        if not raw.isascii():
            spread = "".join(mark * len(char.encode()) for char, mark in zip(raw, origin, strict=True))
        marks = ""
        start = 0
        for id in ids:
            stop = start + len(self.piece(id))
            marks += max(spread[start:stop], default=origin[-1])
            start = stop
        return marks

    @cached_property
    def _content_encoder(self) -> Encoder:
        """One that knows no markers."""
        ids = {text: id for text, id in self._vocabulary.ids.items() if id not in self._special.markers}
        return self._scheme.encoder(self._vocabulary, ids, self.unk_id)

    def piece(self, id: int) -> bytes:
        """What a token adds to the text: nothing for control and unknown ones, perhaps part of a character.

        TokenizerError for an id outside the vocabulary.
        """
        piece = self._pieces.get(id)
        if piece is None:
            piece = self._pieces[id] = self._make_piece(self._checked(id))
        return piece

    def _make_piece(self, id: int) -> bytes:
        match self._vocabulary.types[id]:
            case TokenType.NORMAL:
                return self._scheme.spell(self._vocabulary.texts[id])
            case TokenType.USER_DEFINED:
                return self._vocabulary.texts[id].encode("utf-8", "surrogateescape")
            case TokenType.BYTE:
                return self._vocabulary.byte(id)
            case _:
                return b""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a whole sequence. Unlike a stream it is polished as llama.cpp does it: without the space that
        `encode` may have put in front, and for some models without spaces before punctuation.
        """
        pieces = [self.piece(id) for id in ids]
        if pieces and self._drop_space:
            pieces[0] = pieces[0].removeprefix(b" ")
        raw = b"".join(pieces)
        if self._scheme.clean_spaces:
            raw = re.sub(rb" ([?!.,])", rb"\1", raw)
            raw = raw.replace(b" ' ", b"'")
            raw = re.sub(rb" '(?=s|m|re|ve)", b"'", raw)
        return raw.decode("utf-8", "replace")

    def stream(self, show: Collection[int] = ()) -> StreamDecoder:
        """A new decoder for text that arrives token by token. show: hidden tokens whose own text counts too"""
        return StreamDecoder(
            lambda id: self.token_text(id).encode("utf-8", "surrogateescape") if id in show else self.piece(id)
        )

    def _checked(self, id: int) -> int:
        if not 0 <= operator.index(id) < len(self._vocabulary):
            raise TokenizerError(f"token id {id} lies outside the vocabulary of {len(self._vocabulary)} tokens")
        return id


def _without_surrogates(text: str) -> str:
    """What cannot be UTF-8 becomes U+FFFD, one for each undecodable byte."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", text)
    return text
