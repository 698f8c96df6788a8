"""A progress bar on standard error, shown where that is a terminal and gone when its work is done."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """Shows one stage of work after another. Quiet where standard error is no terminal.

    `in_bytes`: amounts are bytes, shown with speed and time left.
    """

    def __init__(self, in_bytes: bool = False) -> None:
        self._in_bytes = in_bytes
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._stage = ""

    def update(self, stage: str, done: int, total: int) -> None:
        """`total` 0: not known. A new `stage` starts a new bar in the same place."""
        if not (sys.stderr and sys.stderr.isatty()):
            return
        if self._bar is None:
            self._bar = _bar(self._in_bytes)
            self._bar.start()
        if self._task is None or stage != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task, self._stage = self._bar.add_task(stage, total=None), stage
        self._bar.update(self._task, completed=done, total=total or None)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bar(in_bytes: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    amounts = (
        [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
        if in_bytes
        else [TextColumn("{task.percentage:>3.0f} %")]
    )
    description = TextColumn("{task.description}", markup=False)
    return Progress(description, BarColumn(), *amounts, console=Console(stderr=True), transient=True)
