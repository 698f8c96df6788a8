"""Byte-level vocabularies are spelled in 256 printable characters, one for each byte: GPT-2's table."""

from __future__ import annotations


def _table() -> list[str]:
    """The printable characters of Latin-1 stand for themselves, the other bytes in order for U+0100 and after."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


BYTE_SYMBOLS: list[str] = _table()
_TO_SYMBOLS = dict(enumerate(BYTE_SYMBOLS))  # Latin-1 character -> symbol
_TO_BYTES = {symbol: bytes([byte]) for byte, symbol in enumerate(BYTE_SYMBOLS)}


def to_byte_symbols(text: str) -> str:
    """The UTF-8 bytes of a text, spelled in symbols: " é" -> "ĠÃ©"."""
    return text.encode().decode("latin-1").translate(_TO_SYMBOLS)


def from_byte_symbols(text: str) -> bytes:
    """The bytes that a token's text spells; a character that is no symbol stands for its own UTF-8 bytes."""
    return b"".join(_TO_BYTES.get(symbol) or symbol.encode("utf-8", "surrogateescape") for symbol in text)
