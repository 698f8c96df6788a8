"""What every part of `Recorder` uses of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyllm_engine.batch_state import State
    from tinyllm_engine.jit import Kernel
    from tinyllm_engine.program import Buffer


class RecorderPart:
    """The operations of one kind; `Recorder`, which is made of such parts, has what is declared here."""

    if TYPE_CHECKING:
        state: State
        threads: int

        def buffer(self, name: str, columns: int, outputs: bool = False) -> Buffer: ...
        def _append(
            self,
            kind: str,
            kernel: Kernel,
            reads: dict[Any, str],
            writes: dict[Any, str],
            keep: tuple[Any, ...] = (),
            **fields: Any,
        ) -> None: ...
        def _rows_of(self, out: Buffer, source: Buffer) -> int: ...
        def _columns(self, buffer: Buffer) -> int: ...
