"""What recurrent layers remember of a sequence, and the checkpoints from which it can be read again.

A block of memory holds the state of all layers after some token. A pass reads one block and writes another, so a pass
that is given up has changed nothing, and a checkpoint is a block that is no longer written: no copy is made of it.
A sequence writes two blocks in turn and keeps a bounded number of checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinyllm_engine.errors import OutOfMemoryError
from tinyllm_engine.memory import CACHE_LINE, aligned

MOST_CHECKPOINTS, FEWEST_CHECKPOINTS = 32, 2  # of a sequence
CHECKPOINT_BYTES = 256 << 20  # what its checkpoints may take, the fewest aside


class StatePool:
    """Blocks of state for the sequences of one model.

    floats: numbers that each layer remembers, 0 for a layer that is not recurrent
    offsets: where a layer's part begins in a block, in bytes
    """

    def __init__(self, floats: Sequence[int]):
        ends = np.cumsum([0, *(-(-4 * count // CACHE_LINE) * CACHE_LINE for count in floats)]).tolist()
        self.offsets, self.block_bytes = ends[:-1], ends[-1]
        self.checkpoints = FEWEST_CHECKPOINTS
        if self.block_bytes:
            fitting = CHECKPOINT_BYTES // self.block_bytes
            self.checkpoints = min(MOST_CHECKPOINTS, max(FEWEST_CHECKPOINTS, fitting))
        self.beginning = self._allocate()  # before the first token all is zero; never written
        self.blocks = 0
        self._owners: dict[int, int] = {}  # of each block, by its address

    @property
    def bytes_in_use(self) -> int:
        return self.blocks * self.block_bytes

    @property
    def most_bytes(self) -> int:
        """What one sequence takes at most."""
        return (2 + self.checkpoints) * self.block_bytes

    def take(self) -> np.ndarray:
        """A block of unknown contents. Raises OutOfMemoryError when the system refuses."""
        block = self._allocate()
        self.blocks += 1
        self._owners[block.ctypes.data] = 1
        return block

    def share(self, block: np.ndarray) -> None:
        """One owner more."""
        self._owners[block.ctypes.data] += 1

    def drop(self, block: np.ndarray) -> None:
        """Gives one owner's claim up."""
        self._owners[block.ctypes.data] -= 1
        if not self._owners[block.ctypes.data]:
            del self._owners[block.ctypes.data]
            self.blocks -= 1

    def _allocate(self) -> np.ndarray:
        try:
            return aligned(self.block_bytes, np.uint8)
        except MemoryError:
            raise OutOfMemoryError(
                f"recurrent state: the system refuses {self.block_bytes / 1e6:.0f} MB of memory"
            ) from None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after the first `position` tokens."""

    position: int
    block: np.ndarray


class RecurrentState:
    """The state of one sequence."""

    def __init__(self, pool: StatePool):
        self.pool = pool
        self._block = pool.beginning
        self._written: list[np.ndarray] = []  # the two that passes write in turn
        self._checkpoints: list[Checkpoint] = []

    @property
    def positions(self) -> list[int]:
        """Where it can go back to, besides the beginning."""
        return [checkpoint.position for checkpoint in self._checkpoints]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return list(self._checkpoints)

    def addresses(self) -> tuple[int, int, int]:
        """What the next pass reads, what it writes, and what the one after that writes."""
        if not self.pool.block_bytes:
            return 0, 0, 0
        while len(self._written) < 2:
            self._written.append(self.pool.take())
        first, second = self._written
        if self._block is first:
            first, second = second, first
        return self._block.ctypes.data, first.ctypes.data, second.ctypes.data

    def advance(self, passes: int) -> None:
        """So many passes over `addresses` are complete."""
        if not self.pool.block_bytes or not passes:
            return
        first, second = self._written
        odd, even = (second, first) if self._block is first else (first, second)
        self._block = odd if passes % 2 else even

    def keep(self, position: int) -> None:
        """Makes a checkpoint of the present state, which is the one after `position` tokens."""
        if not any(self._block is block for block in self._written):
            return  # it is the beginning, or a checkpoint already
        self._written = [block for block in self._written if block is not self._block]
        self._checkpoints.append(Checkpoint(position, self._block))
        if len(self._checkpoints) > self.pool.checkpoints:
            self._forget_one()

    def go_back(self, position: int) -> int:
        """Returns to the last checkpoint at `position` or before; returns where that is, 0 at the beginning.

        A model without recurrent layers goes anywhere.
        """
        if not self.pool.block_bytes:
            return position
        while self._checkpoints and self._checkpoints[-1].position > position:
            self.pool.drop(self._checkpoints.pop().block)
        if not self._checkpoints:
            self._block = self.pool.beginning
            return 0
        self._block = self._checkpoints[-1].block
        return self._checkpoints[-1].position

    def fork(self) -> RecurrentState:
        """A state for another sequence, with the checkpoints of this one; `go_back` sets where it is."""
        fork = RecurrentState(self.pool)
        fork._checkpoints = list(self._checkpoints)
        for checkpoint in fork._checkpoints:
            self.pool.share(checkpoint.block)
        return fork

    def restored(self, position: int) -> np.ndarray:
        """The block of a new checkpoint behind the others, where the state is from now on; the caller fills it."""
        self._block = self.pool.take()
        self._checkpoints.append(Checkpoint(position, self._block))
        return self._block

    def close(self) -> None:
        """Gives all blocks back."""
        for block in (*self._written, *(checkpoint.block for checkpoint in self._checkpoints)):
            self.pool.drop(block)
        self._block, self._written, self._checkpoints = self.pool.beginning, [], []

    def _forget_one(self) -> None:
        """Drops the checkpoint without which least has to be read again; never one of the last two."""
        starts = [0, *self.positions]
        gaps = [position - start for start, position in zip(starts, self.positions[:-2], strict=False)]
        self.pool.drop(self._checkpoints.pop(int(np.argmin(gaps))).block)
