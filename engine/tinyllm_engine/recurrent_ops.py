"""What the recorder can write down of layers that remember: convolutions, state spaces, delta nets, and their gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tinyllm_engine.kernels import convolution, delta_net, gating, state_space
from tinyllm_engine.memory import aligned
from tinyllm_engine.parts.delta_net import GatedDeltaNet
from tinyllm_engine.parts.mamba import Mamba
from tinyllm_engine.parts.mamba2 import Mamba2
from tinyllm_engine.parts.plamo2 import Plamo2
from tinyllm_engine.program import ALL, Buffer
from tinyllm_engine.recorder_part import RecorderPart

if TYPE_CHECKING:
    from tinyllm_engine.kv_cache import KVCache


@dataclass(frozen=True)
class Columns:
    """A buffer from one of its columns on."""

    buffer: Buffer
    first: int = 0

    @property
    def address(self) -> int:
        return self.buffer.address + 4 * self.first


class RecurrentOps(RecorderPart):
    """A part of `Recorder`, which has what is declared here.

    il: the layer whose part of the state is read and left; `at`: where in that part, in bytes
    """

    if TYPE_CHECKING:
        cache: KVCache

    def convolve(self, out: Buffer, x: Buffer, taps: np.ndarray, bias: np.ndarray | None, il: int) -> None:
        """out = silu(convolution of x over its sequence + bias)"""
        columns = self._columns(x)
        part = f"columns {columns}"
        self._append(
            "convolve",
            convolution.convolve,
            {x: part},
            {out: part},
            keep=(taps, bias),
            x=x,
            columns=columns,
            taps=len(taps),
            weight=taps.ctypes.data,
            bias=0 if bias is None else bias.ctypes.data,
            count=self._rows_of(out, x),
            out=out,
            **self._remembered(il),
        )

    def gated_convolve(self, out: Buffer, b: Buffer, c: Buffer, x: Buffer, taps: np.ndarray, il: int) -> None:
        """out = c * convolution of b * x over its sequence"""
        columns = self._columns(x)
        part = f"columns {columns}"
        self._append(
            "convolve",
            convolution.gated_convolve,
            {b: part, c: part, x: part},
            {out: part},
            keep=(taps,),
            b=b,
            c=c,
            x=x,
            columns=columns,
            taps=len(taps),
            weight=taps.ctypes.data,
            count=self._rows_of(out, x),
            out=out,
            **self._remembered(il),
        )

    def mamba2(
        self, out: Buffer, x: Columns, b: Columns, c: Columns, dt: Buffer, z: Buffer, part: Mamba2 | Plamo2, il: int
    ) -> None:
        """out = (state space's answers to x) * silu(z); each group of heads has its part of b and c"""
        count = len(part.a)
        heads, steps = f"{count} heads", self.buffer("steps", count * state_space.STEPS)
        inner, groups = self._columns(out), part.groups if isinstance(part, Mamba2) else 1
        self._append(
            "mamba2",
            state_space.mamba2,
            {x.buffer: ALL, b.buffer: ALL, c.buffer: ALL, dt: ALL, z: heads},
            {out: heads, steps: heads},
            keep=(part.a, part.d),
            x=x.address,
            b=b.address,
            c=c.address,
            x_columns=self._columns(x.buffer),
            b_columns=self._columns(b.buffer),
            c_columns=self._columns(c.buffer),
            dt=dt,
            z=z,
            heads=count,
            head_size=inner // count,
            groups=groups,
            state_size=part.state_length,
            a=part.a.ctypes.data,
            d=part.d.ctypes.data,
            steps=steps,
            steps_bytes=steps.array.nbytes // count,
            count=self._rows_of(out, x.buffer),
            out=out,
            **self._remembered(il, at=part.taps[1:].nbytes),
        )

    def delta_net(
        self, out: Buffer, qkv: Buffer, z: Buffer, alpha: Buffer, beta: Buffer, part: GatedDeltaNet, il: int
    ) -> None:
        """out = norm(delta rule's answers to qkv) * silu(z)"""
        heads, steps = f"{part.heads} heads", self.buffer("steps", part.heads * delta_net.STEPS)
        scratch = aligned((self.threads, delta_net.TILE_ROWS * 2 * part.size))
        self._append(
            "delta_net",
            delta_net.delta_net,
            {qkv: ALL, z: heads, alpha: ALL, beta: ALL},
            {out: heads, steps: heads},
            keep=(part.a, part.norm.weight, scratch),
            qkv=qkv,
            z=z,
            alpha=alpha,
            beta=beta,
            heads=part.heads,
            key_heads=part.key_heads,
            size=part.size,
            tiled=int(part.tiled),
            a=part.a.ctypes.data,
            weight=part.norm.weight.ctypes.data,
            epsilon=part.norm.epsilon,
            steps=steps,
            steps_bytes=steps.array.nbytes // part.heads,
            scratch=scratch.ctypes.data,
            scratch_bytes=scratch.strides[0],
            count=self._rows_of(out, qkv),
            out=out,
            **self._remembered(il, at=part.taps[1:].nbytes),
        )

    def mamba(self, out: Buffer, x: Buffer, b: Buffer, c: Buffer, dt: Buffer, z: Buffer, part: Mamba, il: int) -> None:
        """out = (state space's answers to x) * silu(z)"""
        columns = self._columns(x)
        own = f"columns {columns}"
        self._append(
            "mamba",
            state_space.mamba,
            {x: own, b: ALL, c: ALL, dt: own, z: own},
            {out: own},
            keep=(part.a, part.d),
            x=x,
            b=b,
            c=c,
            dt=dt,
            z=z,
            columns=columns,
            state_size=self._columns(b),
            a=part.a.ctypes.data,
            d=part.d.ctypes.data,
            count=self._rows_of(out, x),
            out=out,
            **self._remembered(il, at=part.taps[1:].nbytes),
        )

    def split_heads(self, first: Buffer, second: Buffer, x: Buffer, heads: int) -> None:
        """The halves of every head of x."""
        part = f"{heads} heads"
        self._append(
            "split_heads",
            gating.split_heads,
            {x: ALL},
            {first: part, second: part},
            x=x,
            heads=heads,
            size=self._columns(first) // heads,
            count=self._rows_of(first, x),
            first=first,
            second=second,
        )

    def sigmoid_gate(self, x: Buffer, gate: Buffer) -> None:
        """x = x * sigmoid(gate)"""
        columns = self._columns(x)
        part = f"columns {columns}"
        self._append(
            "sigmoid_gate",
            gating.sigmoid_gate,
            {x: part, gate: part},
            {x: part},
            x=x,
            gate=gate,
            columns=columns,
            count=self._rows_of(x, gate),
        )

    def _remembered(self, il: int, at: int = 0) -> dict[str, int]:
        """Where rows find the state of a layer."""
        return {
            "sources": self.state.sources.ctypes.data,
            "targets": self.state.targets.ctypes.data,
            "state": self.cache.states.offsets[il] + at,
        }
