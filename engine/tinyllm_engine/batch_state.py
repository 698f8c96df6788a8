"""What changes from one pass of a recorded program to the next: the rows of its batch."""

from __future__ import annotations

import numpy as np


class State:
    """The rows of a batch. Kernels read them at fixed addresses.

    A row is (token, position, sequence); `tables` holds the address of the sequence's page table, `sources` and
    `targets` those of the recurrent states that a row reads and leaves: a sequence's rows all write the same block, and
    all but the first read it too.
    """

    def __init__(self, max_rows: int):
        self.max_rows = max_rows
        self.tokens = np.zeros(max_rows, np.int64)
        self.positions = np.zeros(max_rows, np.int64)
        self.tables = np.zeros(max_rows, np.int64)
        self.sources = np.zeros(max_rows, np.int64)
        self.targets = np.zeros(max_rows, np.int64)
        self._counts = np.zeros(3, np.int64)

    def set_rows(self, rows: int, first_output: int) -> None:
        """Rows in this pass, and from which one on logits are wanted."""
        self._counts[:] = rows, rows - first_output, first_output

    @property
    def rows_address(self) -> int:
        """Of the number of rows."""
        return self._counts.ctypes.data

    @property
    def outputs_address(self) -> int:
        """Of the number of rows with logits, which are the last."""
        return self._counts.ctypes.data + 8

    @property
    def first_output_address(self) -> int:
        """Of the number of the first of them."""
        return self._counts.ctypes.data + 16
