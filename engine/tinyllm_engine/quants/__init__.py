"""Every tensor type of the format, by its number in the file. A new type is one new entry in a family's module."""

from __future__ import annotations

from tinyllm_engine.quants import blocks32, kquants, plain
from tinyllm_engine.quants.base import QuantType

QUANT_TYPES: dict[int, QuantType] = {t.id: t for family in (plain, blocks32, kquants) for t in family.TYPES}

__all__ = ["QUANT_TYPES", "QuantType"]
