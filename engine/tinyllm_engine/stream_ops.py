"""What the recorder can write down of residual streams that lie side by side."""

from __future__ import annotations

from tinyllm_engine.kernels import streams as kernels
from tinyllm_engine.program import ALL, Buffer
from tinyllm_engine.recorder_part import RecorderPart


class StreamOps(RecorderPart):
    """A part of `Recorder`."""

    def predict_streams(self, out: Buffer, x: Buffer, coefficients: Buffer, streams: int) -> None:
        """Each stream of out: that of x, and the share of all of them that its row of coefficients says."""
        self._append(
            "streams",
            kernels.predict_streams,
            {x: ALL, coefficients: ALL},
            {out: ALL},
            x=x,
            coefficients=coefficients,
            streams=streams,
            columns=self._columns(x) // streams,
            count=self._rows_of(out, x),
            out=out,
        )

    def correct_streams(
        self, out: Buffer, predicted: Buffer, found: Buffer, coefficients: Buffer, streams: int
    ) -> None:
        """Each stream of out: the predicted one, and a share of what the first one was wrong by."""
        self._append(
            "streams",
            kernels.correct_streams,
            {predicted: ALL, found: ALL, coefficients: ALL},
            {out: ALL},
            predicted=predicted,
            found=found,
            coefficients=coefficients,
            streams=streams,
            columns=self._columns(found),
            count=self._rows_of(out, predicted),
            out=out,
        )

    def add_to_streams(self, x: Buffer, y: Buffer, streams: int) -> None:
        """y is added to all streams of x but the first."""
        self._append(
            "streams",
            kernels.add_to_streams,
            {x: ALL, y: ALL},
            {x: ALL},
            x=x,
            y=y,
            streams=streams,
            columns=self._columns(y),
            count=self._rows_of(x, y),
        )

    def match_magnitude(self, x: Buffer, like: Buffer) -> None:
        """Rows of x become as long as those of `like`."""
        self._append(
            "magnitude",
            kernels.match_magnitude,
            {x: ALL, like: ALL},
            {x: ALL},
            x=x,
            like=like,
            columns=self._columns(x),
            count=self._rows_of(x, like),
        )

    def keep_top(self, x: Buffer, factor: float) -> None:
        """x = max(x - cut, 0), where the cut lies so many deviations above the mean of the row."""
        self._append(
            "keep_top",
            kernels.keep_top,
            {x: ALL},
            {x: ALL},
            x=x,
            factor=factor,
            columns=self._columns(x),
            count=self._rows_of(x, x),
        )
