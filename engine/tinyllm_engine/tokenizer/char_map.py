"""SentencePiece's normalization of characters, as files carry it: `tokenizer.ggml.precompiled_charsmap`.

A double array, in which an entry tells where its children are (Kanda, "Space- and Time-Efficient String Dictionaries",
2018), and behind it the replacements, each ended by a zero.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tinyllm_engine.tokenizer.fields import Fields

_KEY = "tokenizer.ggml.precompiled_charsmap"
_LABEL = 1 << 31 | 0xFF  # of an entry: the byte that leads to it
_LEAF = 1 << 8  # something ends here
_FAR = 1 << 9  # its base is in units of 256
_LENGTH_BYTES = 4


class CharMap:
    """Replaces the longest text that is to be replaced, from left to right.

    kept: texts that stay as they are, before anything else is looked for
    """

    def __init__(self, entries: list[int], replacements: bytes, kept: Iterable[str] = ()) -> None:
        self._entries = entries
        self._replacements = replacements
        self._kept = {text.encode("utf-8", "surrogateescape") for text in kept} - {b""}
        self._kept_lengths = sorted({len(text) for text in self._kept}, reverse=True)
        self._kept_starts = {text[0] for text in self._kept}

    def apply(self, text: str) -> str:
        if not self._entries and not self._kept:
            return text
        data = text.encode()
        parts = []
        at = 0
        while at < len(data):
            length, part = self._kept_at(data, at) or self._replaced_at(data, at) or _character_at(data, at)
            parts.append(part)
            at += length
        return b"".join(parts).decode("utf-8", "replace")

    def _kept_at(self, data: bytes, at: int) -> tuple[int, bytes] | None:
        if data[at] not in self._kept_starts:
            return None
        return next(((n, part) for n in self._kept_lengths if (part := data[at : at + n]) in self._kept), None)

    def _replaced_at(self, data: bytes, at: int) -> tuple[int, bytes] | None:
        """How many bytes are replaced there, and by what."""
        entries = self._entries
        found = None
        node = _base(entries[0]) if entries else 0
        for place in range(at, len(data)):
            byte = data[place]
            node ^= byte
            if not byte or node >= len(entries) or entries[node] & _LABEL != byte:
                break
            entry = entries[node]
            node ^= _base(entry)
            if entry & _LEAF and node < len(entries):
                found = place + 1 - at, entries[node] & ~(1 << 31)
        if found is None:
            return None
        length, start = found
        return length, self._replacements[start : self._replacements.find(b"\0", start)]


def read_char_map(fields: Fields, kept: Iterable[str]) -> CharMap:
    """What a file wants replaced, which may be nothing. TokenizerError if that cannot be read."""
    data = fields.bytes(_KEY)
    if data is None:
        return CharMap([], b"", kept)
    size = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if size % 4 or not 4 <= size < len(data) - _LENGTH_BYTES:
        fields.fail(_KEY, f"entries that fit into {len(data)} bytes, and text behind them", f"{size} bytes of entries")
    replacements = data[_LENGTH_BYTES + size :]
    if not replacements.endswith(b"\0"):
        fields.fail(_KEY, "replacements that end with a zero", "one that does not end")
    entries = np.frombuffer(data[_LENGTH_BYTES : _LENGTH_BYTES + size], "<u4")
    return CharMap(entries.tolist(), replacements, kept)


def _base(entry: int) -> int:
    return entry >> 10 << (8 if entry & _FAR else 0)


def _character_at(data: bytes, at: int) -> tuple[int, bytes]:
    first = data[at]
    length = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    return length, data[at : at + length]
