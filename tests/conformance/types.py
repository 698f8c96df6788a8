"""Tensor types: how far the answer of a one-layer model is from the exact one, beside how far llama.cpp's is."""

from __future__ import annotations

from support.measured_types import measure_type, type_names

from tests.conformance.table import Row, Table, checked, figure

COLUMNS = ("ours", "llama.cpp", "ratio")


def table(part: str) -> Table:
    rows = (checked(name, len(COLUMNS), lambda name=name: _row(name)) for name in type_names() if part in name)
    return Table("Types: NMSE of the logits, from those of the weights as float32", COLUMNS, rows)


def _row(name: str) -> Row:
    measured = measure_type(name)
    ratio = measured.ours / measured.llamacpp if measured.llamacpp else 0.0
    fault = "" if measured.ours <= measured.limit else f"expected {figure(measured.limit)} at most"
    return Row(name, (figure(measured.ours), figure(measured.llamacpp), f"{ratio:.2f}" if ratio else ""), fault)
