"""Where the time goes: the clocks of a recorded program, summed up by kind of op and put beside what each had to do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.expert_ops import Meeting
from tinyllm_engine.kernels.attention import PAGE
from tinyllm_engine.program import Op, Program
from tinyllm_engine.tensor import TensorView

BARRIER = "barrier wait"
SAMPLING = "sampling"  # drawing tokens, and what a native call costs as such
NAMES = {
    "embed": "embedding",
    "outputs": "embedding",
    "rope_table": "rope",
    "merge": "attention",
}  # kinds of ops under another name; the others go by their own


@dataclass(frozen=True, slots=True)
class Cost:
    """What one kind of op took. The rates count its barriers too: they are those of the slowest thread.

    gb_per_second: of weights, or of cached keys and values; None where neither is read
    gop_per_second: a multiplication and an addition are two operations; None where there is no matrix
    """

    name: str  # "matmul Q4_1", "attention", "barrier wait", ...
    seconds: float  # of the first thread
    percent: float
    gb_per_second: float | None = None
    gop_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs of evaluating some tokens, the highest first; together they are `seconds`. `asdict` makes JSON of it."""

    tokens: int
    seconds: float
    costs: tuple[Cost, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """One run of a program: `rows` tokens from `position` on. Only the last one has logits."""

    position: int
    rows: int

    @property
    def keys(self) -> int:
        """Keys that the rows attend to, each row's own included."""
        return self.rows * self.position + self.rows * (self.rows + 1) // 2


@dataclass(slots=True)
class _Sum:
    nanoseconds: int = 0
    waited: int = 0
    bytes: int = 0
    operations: int = 0


def profile_of(
    measured: Iterable[tuple[Program, NDArray[np.int64]]],
    passes: Sequence[Sequence[Pass]],
    outputs_address: int,
    seconds: float,
    rest: str,
) -> Profile:
    """What the clocks of some programs say.

    measured: programs with int64 [ops, 2] nanoseconds of the first thread: in the kernel, at the barrier behind it
    passes: of each program, those that the clocks saw
    outputs_address: where the number of rows with logits stands; ops that count by it see one row of a pass
    seconds: the whole, of which `rest` took what no op did
    """
    sums: dict[str, _Sum] = {}
    waited = 0
    for (program, clocks), seen in zip(measured, passes, strict=True):
        for op, (nanoseconds, wait) in zip(program.ops, clocks.tolist(), strict=True):
            total = sums.setdefault(name_of(op), _Sum())
            total.nanoseconds += nanoseconds
            total.waited += wait
            waited += wait
            nbytes, operations = work_of(op, seen, outputs_address)
            total.bytes += nbytes
            total.operations += operations
    known = sum(total.nanoseconds for total in sums.values()) + waited
    sums[BARRIER] = _Sum(waited)
    sums[rest] = _Sum(max(0, round(seconds * 1e9) - known))
    whole = sum(total.nanoseconds for total in sums.values())
    costs = [_cost(name, total, whole) for name, total in sums.items() if total.nanoseconds]
    costs.sort(key=lambda cost: cost.seconds, reverse=True)
    return Profile(sum(one.rows for seen in passes for one in seen), whole / 1e9, tuple(costs))


def _cost(name: str, total: _Sum, whole: int) -> Cost:
    taken = total.nanoseconds + total.waited
    return Cost(
        name,
        total.nanoseconds / 1e9,
        100 * total.nanoseconds / whole,
        total.bytes / taken if total.bytes else None,
        total.operations / taken if total.operations else None,
    )


def name_of(op: Op) -> str:
    """What an op is summed up under; matrix products are told apart by the types of their weights."""
    name = NAMES.get(op.kind, op.kind)
    types = dict.fromkeys(weight.type.name for weight in _matrices(op))
    return " ".join([name, "+".join(types)]) if types else name


def work_of(op: Op, passes: Sequence[Pass], outputs_address: int) -> tuple[int, int]:
    """(bytes of weights or of cached keys and values read, operations) of an op in some passes."""
    if op.kind == "attention":
        fields, keys = op.fields, sum(one.keys for one in passes)
        cached = (fields["k_page_bytes"] + fields["v_page_bytes"]) // PAGE  # bytes of a token
        alone = sum(one.keys for one in passes if one.rows == 1)  # rows of a batch share what they read
        return cached * alone, 2 * fields["heads"] * (fields["k_size"] + fields["v_size"]) * keys
    matrices = _matrices(op)
    if not matrices:
        return 0, 0
    meeting = next((item for item in op.keep if isinstance(item, Meeting)), None)
    counted = op.fields.get("count") if meeting is None else meeting.count
    rows_of = [1 if counted == outputs_address else one.rows for one in passes]
    rows = sum(rows_of)
    if meeting is not None:
        fields = op.fields
        met = sum(min(meeting.matrices, n * meeting.used) for n in rows_of)  # as if rows chose different experts
        matrix = fields["rows"] * fields["columns"]
        return met * fields["rows"] * fields["row_bytes"], 2 * rows * meeting.used * matrix
    return (
        len(passes) * sum(weight.nbytes for weight in matrices),
        2 * rows * sum(math.prod(weight.dims) for weight in matrices),
    )


def _matrices(op: Op) -> list[Any]:
    """The weights that an op multiplies with, all of them."""
    return [] if op.kind == "embed" else [item for item in op.keep if isinstance(item, TensorView)]
