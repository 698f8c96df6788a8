"""Program: a recorded forward pass, and how it is made faster without touching the text it was recorded from.

An op names a kernel, its arguments and which buffers it reads and writes, together with how it divides them among the
threads. `fuse` replaces neighbouring ops by one; `place_barriers` then asks for a barrier only where a thread would
read or overwrite what another one has written. Freezing turns ops into int64 rows (kernel address, argument address,
barrier after) that the team walks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyllm_engine.jit import Addressed, Kernel, Step
from tinyllm_engine.kernels.quantize import Codes

ALL = "all"  # any thread may touch any element
CODE_FIELDS = ("codes", "scales", "sums", "half_sums")  # arguments that are a CodesBuffer


class Buffer:
    """A named array that ops share."""

    def __init__(self, name: str, array: np.ndarray):
        self.name, self.array = name, array

    @property
    def address(self) -> int:
        return self.array.ctypes.data

    def __repr__(self) -> str:
        return f"Buffer({self.name}, {list(self.array.shape)})"


class CodesBuffer:
    """Quantized rows, shared by the threads or with a private copy for each."""

    def __init__(self, name: str, codes: Codes):
        self.name, self.codes = name, codes

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self.codes, name) for name in CODE_FIELDS}


@dataclass
class Op:
    """One kernel call.

    reads, writes: buffer -> how its elements are divided. Two accesses with the same division, other than ALL, touch
    the same elements in the same thread and need no barrier between them.
    keep: Python objects the arguments point into.
    """

    kind: str
    kernel: Kernel
    fields: dict[str, Any]
    reads: dict[Any, str] = field(default_factory=dict)
    writes: dict[Any, str] = field(default_factory=dict)
    barrier: bool = True
    keep: tuple[Any, ...] = ()

    @property
    def steps(self) -> dict[str, Step]:
        """The arguments that are functions which the kernel calls."""
        return {name: value for name, value in self.fields.items() if isinstance(value, Step)}

    def arguments(self) -> np.ndarray:
        """The argument record, checked against the kernel's layout: a wrong field would be a crash later.

        Raises OverflowError for a number that its field cannot hold.
        """
        names = self.kernel.arguments.names or ()
        if set(names) != set(self.fields):
            raise TypeError(
                f"{self.kernel.name}: missing {sorted(set(names) - set(self.fields))}, "
                f"unexpected {sorted(set(self.fields) - set(names))}"
            )
        record = np.zeros(1, self.kernel.arguments)
        with np.errstate(over="raise"):
            for name in names:
                value = self.fields[name]
                try:
                    record[name] = value.address if isinstance(value, Buffer | Step) else value
                except FloatingPointError:
                    raise OverflowError(f"{self.kernel.name}: {name}: expected a float32, found {value!r}") from None
        return record


class Program:
    """A list of ops that can be fused, frozen and run."""

    def __init__(self, ops: Iterable[Op] = ()):
        self.ops = list(ops)
        self._frozen: np.ndarray | None = None
        self._records: list[np.ndarray] = []

    def append(self, op: Op) -> None:
        self.ops.append(op)

    @property
    def kernels(self) -> list[Addressed]:
        """The kernels this program calls, and their steps, each once, in the order of their first use."""
        return list(dict.fromkeys(part for op in self.ops for part in (op.kernel, *op.steps.values())))

    def freeze(self) -> np.ndarray:
        """int64 [ops, 3] for Team.run, valid while the program lives; compiles what is not compiled yet."""
        if self._frozen is None:
            if self.ops:
                self.ops[-1].barrier = True  # the caller must not return before everybody is done
            self._records = [op.arguments() for op in self.ops]
            rows = [
                (op.kernel.address, record.ctypes.data, int(op.barrier))
                for op, record in zip(self.ops, self._records, strict=True)
            ]
            self._frozen = np.array(rows, np.int64).reshape(-1, 3)
        return self._frozen

    def fuse(self, rules: Iterable[Callable[[list[Op], int], list[Op] | None]]) -> Program:
        """A new program in which each rule has been tried at each place.

        A rule looks at ops[i:] and returns the ops that replace its first two, or None.
        """
        ops = list(self.ops)
        for rule in rules:
            i = 0
            while i + 1 < len(ops):
                replacement = rule(ops, i)
                if replacement is None:
                    i += 1
                else:
                    ops[i : i + 2] = replacement
        return Program(place_barriers(ops))

    def describe(self) -> str:
        """One line an op, for people."""
        lines = []
        for op in self.ops:
            out, into = ", ".join(b.name for b in op.writes), ", ".join(b.name for b in op.reads)
            lines.append(f"{op.kernel.name:<22} {out:<12} <- {into}{'  |' if op.barrier else ''}")
        return "\n".join(lines)


def place_barriers(ops: list[Op]) -> list[Op]:
    """Copies of the ops with barriers only between accesses that could meet in different threads."""
    placed: list[Op] = []
    since: list[tuple[Any, str, bool]] = []  # (buffer, division, written) since the last barrier
    for op in ops:
        touches = [(b, d, False) for b, d in op.reads.items()] + [(b, d, True) for b, d in op.writes.items()]
        if placed and any(_clash(earlier, now) for earlier in since for now in touches):
            placed[-1].barrier = True
            since = []
        placed.append(Op(op.kind, op.kernel, op.fields, op.reads, op.writes, False, op.keep))
        since += touches
    return placed


def _clash(earlier: tuple[Any, str, bool], now: tuple[Any, str, bool]) -> bool:
    same_part = earlier[1] == now[1] != ALL
    return earlier[0] is now[0] and (earlier[2] or now[2]) and not same_part


def read_before_written(ops: list[Op], start: int, buffer: Any) -> bool:
    """Whether some op from `start` on reads the buffer before one overwrites it."""
    for op in ops[start:]:
        if buffer in op.reads:
            return True
        if buffer in op.writes:
            return False
    return False
