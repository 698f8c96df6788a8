"""Programs recorded by hand: a recorder with memory, threads and tensors of any type, without a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from tinyllm_engine.batch_state import State
from tinyllm_engine.fusion import batch_rules, one_row_rules
from tinyllm_engine.kv_cache import KVCache, LayerShape, PageTable
from tinyllm_engine.memory import array_at
from tinyllm_engine.parts.base import Norm
from tinyllm_engine.program import Buffer, Program
from tinyllm_engine.quants import QUANT_TYPES, QuantType
from tinyllm_engine.recorder import Recorder
from tinyllm_engine.recurrent_state import RecurrentState
from tinyllm_engine.team import CANCEL, Team
from tinyllm_engine.tensor import TensorView
from tinyllm_engine.twins import check

TYPES = {kind.name: kind for kind in QUANT_TYPES.values()}


def random_tensor(kind: QuantType, columns: int, rows: int, seed: int = 3) -> TensorView:
    """Random weights of magnitude 1 or so; the first two rows have all bits of their codes off, and on."""
    random = np.random.default_rng(seed)
    if kind.block_elements == 1:
        values = random.normal(0, 1, (rows, columns)).astype(np.float32)
        bits = (values.view(np.uint32) >> 16).astype(np.uint16) if kind.name == "BF16" else values.astype(kind.layout)
        return TensorView(f"random.{kind.name}", (columns, rows), kind, bits.view(np.uint8).reshape(-1))
    blocks = random.integers(0, 256, (rows, columns // kind.block_elements, kind.block_bytes), dtype=np.uint8)
    blocks[0], blocks[min(1, rows - 1)] = 0, 255
    fields = blocks.reshape(-1).view(kind.layout)
    for name in kind.layout.names or ():
        if kind.layout[name].base == np.dtype("<f2"):
            fields[name] = random.normal(0, 0.05, fields[name].shape)
    if kind.name == "MXFP4":
        fields["e"] = random.integers(118, 126, fields.shape)
    elif kind.name == "IQ1_M":  # its scale is spread over the top nibbles of four words
        scale = random.normal(0, 0.05, fields.shape).astype("<f2").view("<u2")
        nibbles = scale[:, None] << np.array([12, 8, 4, 0], np.uint16) & 0xF000
        fields["scales"] = fields["scales"] & 0xFFF | nibbles
    return TensorView(f"random.{kind.name}", (columns, rows), kind, blocks.reshape(-1))


def random_norm(kind: str, columns: int, seed: int = 4) -> Norm:
    random = np.random.default_rng(seed)
    weight, bias = random.normal(1, 0.3, columns).astype(np.float32), random.normal(0, 0.3, columns).astype(np.float32)
    return Norm(kind, weight, bias, 1e-5)


class Recording:
    """A recorder for `rows` rows (1: decode) with a cache of one layer, and the team that runs what it records."""

    def __init__(
        self,
        rows: int,
        threads: int,
        shape: LayerShape,
        context_length: int,
        k_type: str,
        state_size: int,
        v_type: str | None,
    ):
        self.team = Team(threads)
        self.state = State(rows)
        self.cache = KVCache([shape], context_length, k_type, [state_size], v_type)
        self.pages = PageTable(self.cache, context_length)
        self.recurrent = RecurrentState(self.cache.states)
        cancel = self.team.address(CANCEL)
        self.recorder = Recorder(self.state, self.cache, context_length, threads, cancel, rows, rows)
        self.random = np.random.default_rng(5)
        self.set_rows(rows)

    def set_rows(self, rows: int, first_output: int = 0, position: int = 0) -> None:
        """So many rows in force, the first at `position`."""
        self.state.set_rows(rows, first_output)
        self.state.positions[:] = position + np.arange(len(self.state.positions))
        self.state.tables[:] = self.pages.table.ctypes.data
        source, target, _ = self.recurrent.addresses()
        self.state.sources[:], self.state.targets[:] = target, target
        self.state.sources[0] = source

    def filled(self, name: str, columns: int, scale: float = 1.0) -> Buffer:
        """A buffer of random numbers."""
        buffer = self.recorder.buffer(name, columns)
        buffer.array[:] = self.random.normal(0, scale, buffer.array.shape)
        return buffer

    def program(self, fuse: bool = False) -> Program:
        """What has been recorded so far; the recorder begins another one."""
        program, self.recorder.program = self.recorder.program, Program()
        if not fuse:
            return program
        return program.fuse(one_row_rules(self.team.threads) if self.recorder.one_row else batch_rules())

    def check_program(self, program: Program) -> None:
        """Runs a program, each op against its twin."""
        check(program, self.team)

    def floats_at(self, address: int) -> np.ndarray:
        """A copy of the recurrent state at an address."""
        return array_at(address, np.float32, self.cache.states.block_bytes // 4).copy()

    def check(self, fuse: bool = False) -> None:
        """Runs what has been recorded, each op against its twin."""
        self.check_program(self.program(fuse))


@contextmanager
def recording(
    rows: int = 1,
    threads: int = 1,
    shape: LayerShape | None = None,
    context_length: int = 64,
    k_type: str = "f32",
    state_size: int = 0,
    v_type: str | None = None,
) -> Iterator[Recording]:
    made = Recording(rows, threads, shape or LayerShape(1, 32, 32), context_length, k_type, state_size, v_type)
    try:
        yield made
    finally:
        made.team.close()
