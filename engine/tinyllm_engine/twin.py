"""What a twin of a kernel is: the arguments it reads by name, and what it says has to be written.

Twins are registered by name as their modules are imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyllm_engine.agreed import UNIT
from tinyllm_engine.memory import array_at
from tinyllm_engine.program import Op
from tinyllm_engine.quants import QUANT_TYPES

F32 = np.float32
TYPES = {type.name.lower(): type for type in QUANT_TYPES.values()}
BLOCK = UNIT  # elements that share a scale where activations are quantized


@dataclass(frozen=True)
class Written:
    """What one kernel call writes: an array on the memory itself, what it must hold afterwards, the error allowed."""

    name: str
    memory: np.ndarray
    expected: np.ndarray
    allowed: np.ndarray | float = 0.0

    def wrong(self) -> np.ndarray:
        """bool like `expected`."""
        found, expected = self.memory.astype(np.float64), self.expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = np.abs(found - expected) <= self.allowed
        return ~(near | (found == expected) | (np.isnan(found) & np.isnan(expected)))


Twin = Callable[["Arguments"], Iterator[Written]]
TWINS: dict[str, Twin] = {}


def twin(function: Twin) -> Twin:
    """Registers a twin under its own name."""
    TWINS[function.__name__] = function
    return function


class Arguments:
    """The arguments of one kernel call by name, and the arrays behind the addresses among them."""

    def __init__(self, op: Op, threads: int):
        self._record = op.arguments()[0]
        self.threads = threads
        stem, type_name = split_name(op.kernel.name)
        self.twin = TWINS.get(stem)
        self.type: Any = TYPES.get(type_name)
        self.step_types = {name: split_name(step.name)[1] for name, step in op.steps.items()}

    def __getattr__(self, name: str) -> Any:
        return self._record[name].item()

    @property
    def n(self) -> int:
        """Rows of the batch."""
        return int(self.array("count", np.int64, 1)[0])

    def array(self, name: str, dtype: type | np.dtype, *shape: int, offset: int = 0) -> np.ndarray:
        return array_at(self._record[name].item() + offset, dtype, *shape)

    def floats(self, name: str, *shape: int) -> np.ndarray:
        return self.array(name, F32, *shape)


def split_name(kernel_name: str) -> tuple[str, str]:
    """matvec_q4_1 -> (matvec, q4_1); rms_norm -> (rms_norm, "")"""
    for type_name in TYPES:
        if kernel_name.endswith(f"_{type_name}"):
            return kernel_name.removesuffix(f"_{type_name}"), type_name
    return kernel_name, ""


def near(expected: np.ndarray, relative: float = 1e-5) -> np.ndarray:
    """The error allowed to a row: a fraction of its largest magnitude."""
    return relative * np.abs(expected).max(axis=-1, keepdims=True)


def silu(x: np.ndarray) -> np.ndarray:
    """x / (1 + e^-x), in double precision"""
    return x / (1 + np.exp(np.minimum(-x.astype(np.float64), 700)))
