"""Tensor types: how far the answer of a one-layer model is from the exact one, beside how far llama.cpp's is."""

from __future__ import annotations

from support.measured_types import BATCHES, measured, type_names

from tests.conformance.table import Row, Table, checked, figure

COLUMNS = ("ours", "llama.cpp", "ratio")


def table(part: str) -> Table:
    rows = (checked(name, len(COLUMNS), lambda name=name: _row(name)) for name in type_names() if part in name)
    return Table("Types: NMSE of the logits, from those of the weights as float32", COLUMNS, rows)


def _row(name: str) -> Row:
    worst = max((measured(name, batch) for batch in BATCHES), key=lambda found: found.ours)
    ratio = f"{worst.ours / worst.llamacpp:.2f}" if worst.llamacpp else ""
    fault = "" if worst.ours <= worst.limit else f"expected {figure(worst.limit)} at most"
    return Row(name, (figure(worst.ours), figure(worst.llamacpp), ratio), fault)
