"""Rules by which neighbouring ops become one. Each takes (ops, i) and returns what replaces ops[i] and ops[i + 1]."""

from __future__ import annotations

from collections.abc import Callable

from tinyllm_engine.kernels import elementwise, norm
from tinyllm_engine.kernels.quantize import Codes
from tinyllm_engine.program import ALL, CODE_FIELDS, CodesBuffer, Op, read_before_written

# kernels that can make codes of what they compute
WITH_CODES = {
    norm.rms_norm: norm.rms_norm_quantize,
    norm.layer_norm: norm.layer_norm_quantize,
    elementwise.swiglu: elementwise.swiglu_quantize,
    elementwise.geglu: elementwise.geglu_quantize,
    elementwise.reglu: elementwise.reglu_quantize,
    elementwise.limited_swiglu: elementwise.limited_swiglu_quantize,
    elementwise.gelu: elementwise.gelu_quantize,
    elementwise.relu_squared: elementwise.relu_squared_quantize,
}

Rule = Callable[[list[Op], int], list[Op] | None]


def residual(ops: list[Op], i: int) -> list[Op] | None:
    """y = W x, then z += y: the matmul adds to z itself."""
    product, total = ops[i], ops[i + 1]
    if product.kind != "matmul" or total.kind != "add" or total.fields["x"] is not product.fields["out"]:
        return None
    y, z = product.fields["out"], total.fields["out"]
    if product.fields["residual"] or {y, z} & set(product.reads) or read_before_written(ops, i + 2, y):
        return None
    part = product.writes[y]
    fields = product.fields | {"out": z, "residual": z}
    return [Op("matmul", product.kernel, fields, product.reads | {z: part}, {z: part}, keep=product.keep)]


def one_row_rules(threads: int) -> list[Rule]:
    """The rules for a program of one row; private copies of codes are made for this many threads."""
    private: dict[CodesBuffer, CodesBuffer] = {}

    def norm_quantize(ops: list[Op], i: int) -> list[Op] | None:
        """norm, then codes: every thread makes all codes for itself, which is cheaper than waiting for the others."""
        normed, coded = ops[i], ops[i + 1]
        if normed.kind != "norm" or not _makes_codes(normed, coded):
            return None
        y = normed.fields["out"]
        if read_before_written(ops, i + 2, y):
            return None  # somebody wants the floats as well
        (shared,) = coded.writes
        if shared not in private:
            columns = coded.fields["columns"]
            private[shared] = CodesBuffer(f"{shared.name} each", Codes(1, columns, copies=threads))
        copies = private[shared]
        fields = {name: value for name, value in normed.fields.items() if name not in ("out", "count")}
        fields |= copies.fields() | {"copy_bytes": copies.codes.copy_bytes}
        _redirect(ops, i + 2, shared, copies)
        kernel = WITH_CODES[normed.kernel]
        return [Op("norm", kernel, fields, {normed.fields["x"]: ALL}, {copies: "private"}, keep=normed.keep)]

    def activation_quantize(ops: list[Op], i: int) -> list[Op] | None:
        """Activation, then codes: a thread's part of the activation is exactly what it quantizes."""
        active, coded = ops[i], ops[i + 1]
        if active.kind != "activation" or not _makes_codes(active, coded):
            return None
        if read_before_written(ops, i + 2, active.fields["out"]):
            return None
        fields = {name: active.fields[name] for name in ("gate", "up", "columns")}
        fields |= {name: coded.fields[name] for name in CODE_FIELDS}
        return [Op("activation", WITH_CODES[active.kernel], fields, active.reads, coded.writes)]

    return [residual, norm_quantize, activation_quantize]


def batch_rules() -> list[Rule]:
    """The rules for a program of many rows."""
    return [residual]


def _makes_codes(first: Op, coded: Op) -> bool:
    """Whether codes are made of what the first op computes, and it could make them itself."""
    return first.kernel in WITH_CODES and coded.kind == "quantize" and coded.fields["x"] is first.fields["out"]


def _redirect(ops: list[Op], start: int, shared: CodesBuffer, copies: CodesBuffer) -> None:
    """Lets the readers of `shared`, up to where it is written again, read each thread's own copy."""
    for j in range(start, len(ops)):
        op = ops[j]
        if shared in op.writes:
            return
        if shared in op.reads:
            reads = {copies if buffer is shared else buffer: part for buffer, part in op.reads.items()}
            reads[copies] = "private"
            fields = op.fields | copies.fields() | {"copy_bytes": copies.codes.copy_bytes}
            ops[j] = Op(op.kind, op.kernel, fields, reads, op.writes, keep=op.keep)
