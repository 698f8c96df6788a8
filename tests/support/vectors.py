"""Operations on vectors, applied to rows of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

random = np.random.default_rng(11)


def at(array: np.ndarray) -> int:
    return array.ctypes.data


def codes(low: int, high: int, *shape: int) -> np.ndarray:
    """int8 [*shape]: random codes of low..high, whose first and last rows are all extreme. Codes above 127 wrap."""
    values = random.integers(low, high + 1, shape)
    values[0], values[-1] = low, high
    return values.astype(np.uint8).view(np.int8)


def applied(function: Callable[..., Any], out: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
    """Runs function(inputs..., out) on each row; inputs are arrays with as many rows as `out`. Returns out.

    Rows lie at odd addresses: nothing may rely on alignment.
    """
    for row in range(len(out)):
        moved = []
        for array in (*inputs, out):
            memory = np.zeros(array[row].nbytes + 1, np.uint8)
            memory[1:] = np.ascontiguousarray(array[row]).reshape(-1).view(np.uint8)
            moved.append(memory)
        function(*(at(memory) + 1 for memory in moved))
        out[row] = moved[-1][1:].view(out.dtype).reshape(out[row].shape)
    return out
