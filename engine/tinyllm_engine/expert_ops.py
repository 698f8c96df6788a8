"""What the recorder can write down of experts and heads: products over stacks, and rows on their way there and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyllm_engine.agreed import TILE
from tinyllm_engine.kernels import experts as kernels
from tinyllm_engine.kernels.heads import copy_heads
from tinyllm_engine.kernels.quantize import Codes
from tinyllm_engine.kernels.stacks import ALL_ROWS
from tinyllm_engine.memory import aligned
from tinyllm_engine.program import ALL, Buffer, CodesBuffer
from tinyllm_engine.recorder_part import RecorderPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tinyllm_engine.parts.experts import Routing
    from tinyllm_engine.parts.stack import Stack
    from tinyllm_engine.tensor import TensorView


@dataclass(frozen=True, eq=False)
class Choice:
    """Which experts the rows of a batch go to, and where among the rows of all experts; memory that `route` writes.

    chosen: int64 [rows, used], weights: float32 [rows, used]
    places: int64 [rows, used], groups: int64 [1 + 3 * groups], rows: int64 [1] (see kernels.experts)
    most_rows: that there can be
    """

    used: int
    most_rows: int
    chosen: Buffer
    weights: Buffer
    places: Buffer
    groups: Buffer
    rows: Buffer


@dataclass(frozen=True)
class Meeting:
    """What a product with experts does: every row of those counted at an address meets `used` of so many matrices."""

    used: int
    matrices: int
    count: int


class ExpertOps(RecorderPart):
    """A part of `Recorder`, which has what is declared here."""

    if TYPE_CHECKING:
        rows: int
        one_row: bool
        _buffers: dict[tuple[str, int, bool], Buffer]
        _count: dict[Buffer, int]
        _codes: dict[Buffer, CodesBuffer]
        _fresh: set[Buffer]
        _choices: dict[tuple[int, int], Choice]

        def _product(
            self,
            out: Buffer,
            weight: TensorView,
            x: Buffer,
            part: str,
            keep: tuple[Any, ...] = (),
            reads: Iterable[Buffer] = (),
            **fields: Any,
        ) -> None: ...
        def _quantized(self, x: Buffer) -> CodesBuffer: ...

    # --- experts ---

    def route(self, scores: Buffer, routing: Routing) -> Choice:
        """The experts of every row, by its scores float32 [experts]."""
        choice = self._choice(routing)
        count = self._rows_of(choice.weights, scores)
        scratch = aligned((self.threads, kernels.scratch_floats(routing.experts, routing.sections)))
        self._append(
            "route",
            kernels.route,
            {scores: ALL},
            {choice.chosen: ALL, choice.weights: ALL},
            keep=(routing, scratch),
            scores=scores,
            experts=routing.experts,
            used=routing.used,
            gating=routing.gating,
            ranking=routing.ranking,
            bias=0 if routing.bias is None else routing.bias.ctypes.data,
            sections=routing.sections,
            sections_used=routing.sections_used,
            normalized=int(routing.normalized),
            weight_scale=routing.scale,
            count=count,
            chosen=choice.chosen,
            weights=choice.weights,
            scratch=scratch.ctypes.data,
            scratch_bytes=scratch.strides[0],
        )
        counts = aligned(routing.experts, np.int64)
        self._append(
            "route",
            kernels.group_rows,
            {choice.chosen: ALL},
            {choice.places: ALL, choice.groups: ALL, choice.rows: ALL},
            keep=(counts,),
            chosen=choice.chosen,
            used=routing.used,
            experts=routing.experts,
            count=count,
            tile=self._tile,
            counts=counts.ctypes.data,
            groups=choice.groups,
            places=choice.places,
            rows=choice.rows,
        )
        return choice

    @property
    def _tile(self) -> int:
        """An expert's rows in a batch begin at a multiple of this."""
        return 1 if self.one_row else TILE

    def _choice(self, routing: Routing) -> Choice:
        """Memory for the choices of all layers that choose among so many, one after the other."""
        key = routing.experts, routing.used
        if key not in self._choices:
            groups = kernels.most_groups(routing.experts, self.rows, routing.used)
            pairs, room = self.rows * routing.used, groups * (self._tile - 1)

            def integers(name: str, *shape: int) -> Buffer:
                return Buffer(name, aligned(shape, np.int64))

            self._choices[key] = Choice(
                used=routing.used,
                most_rows=-(-(pairs + room) // self._tile) * self._tile,
                chosen=integers("chosen", self.rows, routing.used),
                weights=Buffer("weights", aligned((self.rows, routing.used))),
                places=integers("places", self.rows, routing.used),
                groups=integers("groups", 1 + 3 * groups),
                rows=integers("expert rows", 1),
            )
        return self._choices[key]

    def to_experts(self, x: Buffer, choice: Choice, stacks: Sequence[Stack], weighted: bool = False) -> Buffer:
        """Every row of x at its places, as those stacks need it: what `expert_matmul` multiplies.

        weighted: times its weights. In a program of one row, which all its experts share, x itself but for those.
        """
        if self.one_row and not weighted:
            return x
        columns = self._columns(x)
        out = self._expert_buffer(f"{x.name} at experts", columns, choice)
        is_float = [stack.weight.type.block_elements == 1 for stack in stacks]
        part = f"columns {columns}"
        shared: dict[str, Any] = {"used": choice.used, "columns": columns, "places": choice.places}
        if weighted or any(is_float):
            self._append(
                "gather",
                kernels.gather_rows,
                {x: part, choice.places: ALL, choice.weights: ALL},
                {out: ALL if self.one_row else part},
                x=x,
                weights=choice.weights if weighted else 0,
                count=self._count[choice.weights],
                out=out,
                **shared,
            )
        if not weighted and not all(is_float):
            source = self._quantized(x)
            if out not in self._codes:
                self._codes[out] = CodesBuffer(f"{out.name} codes", Codes(*out.array.shape))
            codes = self._codes[out]
            self._append(
                "gather",
                kernels.gather_codes,
                {source: part, choice.places: ALL},
                {codes: part},
                count=self._count[choice.weights],
                **source.fields(),
                **{f"out_{name}": address for name, address in codes.fields().items()},
                **shared,
            )
            self._fresh.add(out)
        return out

    def expert_matmul(self, name: str, stack: Stack, x: Buffer, choice: Choice) -> Buffer:
        """Every row of x times its expert's matrix, in a buffer of this name.

        x: what `to_experts` or `expert_matmul` gave
        """
        out = self._expert_buffer(name, stack.outputs, choice)
        self._stack_product(
            out,
            stack,
            x,
            part=f"columns {out.array.shape[1]}",
            keep=(Meeting(choice.used, stack.matrices, self._count[choice.weights]),),
            reads=(choice.groups,),
            groups=choice.groups,
            x_stride=0 if self.one_row and self._columns(x) == stack.inputs else stack.inputs,
            x_step=0,
            out_stride=stack.outputs,
            out_step=0,
            count=self._count[out],
        )
        return out

    def from_experts(self, out: Buffer, y: Buffer, choice: Choice, weighted: bool = True) -> None:
        """out = for every row the sum of what its experts made of it, times its weights"""
        columns = self._columns(out)
        self._count[out] = self._count[choice.weights]
        self._append(
            "mix",
            kernels.mix_rows,
            {y: ALL, choice.places: ALL, choice.weights: ALL},
            {out: f"columns {columns}"},
            x=y,
            columns=columns,
            used=choice.used,
            places=choice.places,
            weights=choice.weights if weighted else 0,
            count=self._count[out],
            out=out,
        )

    def gate_rows(self, x: Buffer, gate: Buffer) -> None:
        """Every row of x times the sigmoid of its one number in gate."""
        columns = self._columns(x)
        part = f"columns {columns}"
        self._append(
            "gate",
            kernels.gate_rows,
            {x: part, gate: ALL},
            {x: part},
            x=x,
            columns=columns,
            gate=gate,
            count=self._rows_of(x, x),
        )

    def _expert_buffer(self, name: str, columns: int, choice: Choice) -> Buffer:
        """float32 [rows of all experts, columns]; in a program of one row they lie in that row."""
        rows = choice.most_rows
        shape = (1, rows * columns) if self.one_row else (rows, columns)
        key = name, rows * columns, False
        if key not in self._buffers:
            self._buffers[key] = Buffer(name, aligned(shape))
        buffer = self._buffers[key]
        self._count[buffer] = self.state.rows_address if self.one_row else choice.rows.address
        return buffer

    # --- heads ---

    def head_matmul(self, out: Buffer, stack: Stack, x: Buffer) -> None:
        """The beginning of each head of out = the head's matrix times the beginning of the same head of x."""
        heads = stack.matrices
        groups = np.array([heads, *(n for head in range(heads) for n in (head, 0, ALL_ROWS))], np.int64)
        self._stack_product(
            out,
            stack,
            x,
            part=ALL,
            keep=(groups,),
            groups=groups.ctypes.data,
            x_stride=self._columns(x),
            x_step=self._columns(x) // heads,
            out_stride=self._columns(out),
            out_step=self._columns(out) // heads,
            count=self._rows_of(out, x),
        )

    def copy_heads(self, out: Buffer, first: int, x: Buffer, x_first: int, size: int, heads: int) -> None:
        """Elements of each head of x, `size` from x_first on, go to each head of out, from `first` on.

        A row of x that is no longer than one head's part is every head's.
        """
        x_columns, columns = self._columns(x), self._columns(out)
        self._append(
            "copy heads",
            copy_heads,
            {x: ALL},
            {out: ALL},
            keep=(x, out),
            x=x.address + 4 * x_first,
            x_stride=x_columns,
            x_step=x_columns // heads if x_columns >= size * heads else 0,
            out=out.address + 4 * first,
            out_stride=columns,
            out_step=columns // heads,
            heads=heads,
            size=size,
            count=self._rows_of(out, x),
        )

    def _stack_product(
        self, out: Buffer, stack: Stack, x: Buffer, part: str, keep: tuple[Any, ...] = (), **fields: Any
    ) -> None:
        bias, scales = stack.bias, stack.scales
        self._product(
            out,
            stack.weight,
            x,
            part=part,
            keep=(stack, *keep),
            weights=stack.address,
            rows=stack.outputs,
            matrix_bytes=stack.matrix_bytes,
            matrix_scales=0 if scales is None else scales.ctypes.data,
            bias=0 if bias is None else bias.ctypes.data,
            weight_scale=stack.scale,
            **fields,
        )
