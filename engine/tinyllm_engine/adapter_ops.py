"""What the recorder can write down of adapters: two small products, added to one that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tinyllm_engine.kernels import embed
from tinyllm_engine.kernels.low_rank import low_rank_narrow, low_rank_widen
from tinyllm_engine.memory import aligned
from tinyllm_engine.program import ALL, Buffer
from tinyllm_engine.recorder_part import RecorderPart

if TYPE_CHECKING:
    from tinyllm_engine.parts.base import LowRank


class AdapterOps(RecorderPart):
    """A part of `Recorder`."""

    def add_low_rank(self, out: Buffer, change: LowRank, x: Buffer) -> None:
        """out += scale * B (A x)"""
        narrow = self.buffer("low rank", change.rank)
        matrix = np.ascontiguousarray(change.a)
        self._append(
            "low_rank",
            low_rank_narrow,
            {x: ALL},
            {narrow: ALL},
            keep=(matrix,),
            x=x,
            columns=self._columns(x),
            matrix=matrix.ctypes.data,
            rank=change.rank,
            count=self._rows_of(narrow, x),
            out=narrow,
        )
        self._widen(out, change, narrow)

    def embed_low_rank(self, out: Buffer, change: LowRank) -> None:
        """out += scale * B a[token], for every row"""
        padded = -(-change.rank // 8) * 8  # rows are copied eight numbers at a time
        table, wide = aligned((len(change.a), padded)), np.zeros((len(change.b), padded), np.float32)
        table[:, : change.rank], wide[:, : change.rank] = change.a, change.b
        narrow = self.buffer("low rank", padded)
        self._append(
            "embed",
            embed.embed_f32,
            {},
            {narrow: ALL},
            keep=(table,),
            weights=table.ctypes.data,
            row_bytes=table.strides[0],
            columns=padded,
            tokens=self.state.tokens.ctypes.data,
            count=self.state.rows_address,
            out=narrow,
        )
        self._widen(out, type(change)(table, wide, change.scale), narrow)

    def _widen(self, out: Buffer, change: LowRank, narrow: Buffer) -> None:
        columns = self._columns(out)
        part = f"columns {columns}"
        self._append(
            "low_rank",
            low_rank_widen,
            {narrow: ALL, out: part},
            {out: part},
            keep=(change,),
            x=narrow,
            rank=change.rank,
            matrix=change.packed.ctypes.data,
            columns=columns,
            scale=change.scale,
            count=self._rows_of(out, narrow),
            out=out,
        )
