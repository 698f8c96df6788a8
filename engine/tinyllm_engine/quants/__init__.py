"""Every tensor type of the format, by its number in the file. A new type is one new entry in a family's module."""

from __future__ import annotations

from tinyllm_engine.quants import blocks32, codebook, kquants, lookup4, lowbit, plain
from tinyllm_engine.quants.base import QuantType

_FAMILIES = (plain, blocks32, kquants, lookup4, codebook, lowbit)

QUANT_TYPES: dict[int, QuantType] = {t.id: t for family in _FAMILIES for t in family.TYPES}

__all__ = ["QUANT_TYPES", "QuantType"]
