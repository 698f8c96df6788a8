"""Typed access to `tokenizer.*` metadata, which nobody has checked before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tinyllm_engine.errors import TokenizerError
from tinyllm_engine.gguf_header import location


class Fields:
    """None (or the default) for an absent key; TokenizerError for a value of another type."""

    def __init__(self, metadata: Mapping[str, Any], path: str) -> None:
        self._metadata = metadata
        self.where = location(path)

    def fail(self, key: str, expected: str, found: str) -> NoReturn:
        raise TokenizerError(f"{self.where}{key}: expected {expected}, found {found}")

    def text(self, key: str) -> str | None:
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, str):
            self.fail(key, "a string", _kind(value))
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._metadata.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(key, "true or false", _kind(value))
        return value

    def integer(self, key: str) -> int | None:
        value = self._metadata.get(key)
        if value is not None and type(value) is not int:
            self.fail(key, "an integer", _kind(value))
        return value

    def strings(self, key: str) -> list[str] | None:
        value = self._metadata.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            self.fail(key, "an array of strings", _kind(value))
        return value

    def bytes(self, key: str) -> bytes | None:
        value = self._metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.dtype.itemsize != 1:
            self.fail(key, "an array of bytes", _kind(value))
        return value.tobytes()

    def numbers(self, key: str, length: int, kinds: str) -> npt.NDArray[Any] | None:
        """The first `length` values of an array that has at least so many. kinds: of NumPy dtypes, e.g. "iu"."""
        value = self._metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in kinds:
            self.fail(key, "an array of numbers" if "f" in kinds else "an array of integers", _kind(value))
        if len(value) < length:
            self.fail(key, f"{length} values, one for each token", f"{len(value)}")
        return value[:length]


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype.name}"
    return {str: "a string", bool: "a bool", list: "an array of strings"}.get(type(value), type(value).__name__)
