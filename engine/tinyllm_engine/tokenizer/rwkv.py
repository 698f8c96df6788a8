"""RWKV's tokenizer (`tokenizer.ggml.model` rwkv): always the longest token that fits, of any bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPED = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_CONTROLS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def unescaped(text: str) -> bytes:
    r"""The bytes that a token's text spells: `\n` and `\xe4` stand for one each."""

    def byte(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPED.sub(byte, text.encode("utf-8", "surrogateescape"))


class LongestMatchEncoder:
    """Ids of a text without special tokens.

    ids: token text -> id
    unknown: stands for a byte that begins no token; such are left out where the file has none
    """

    def __init__(self, ids: Mapping[str, int], unknown: int | None) -> None:
        self._ids = {unescaped(text): id for text, id in ids.items()}
        self._ids.pop(b"", None)
        lengths: dict[int, set[int]] = {}
        for token in self._ids:
            lengths.setdefault(token[0], set()).add(len(token))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._unknown = unknown

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        ids = []
        at = 0
        while at < len(data):
            fitting = (n for n in self._lengths.get(data[at], ()) if data[at : at + n] in self._ids)
            length = next(fitting, 0)
            if length:
                ids.append(self._ids[data[at : at + length]])
            elif self._unknown is not None:
                ids.append(self._unknown)
            at += length or 1
        return ids
