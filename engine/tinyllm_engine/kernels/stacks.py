"""Stacks of matrices: one for each expert, or for each head, in one tensor; and which of them meets which rows.

A product over a stack is the ordinary product, done group by group. The groups lie in memory, so that a program which
is recorded once follows what a router chooses at every token:

    int64 [1 + 3 * n]: n, then of each group its matrix, its first row and its number of rows (ALL_ROWS: those in force)

Rows of x and of the result are counted in the buffer's own stride; with a step per matrix they begin further right,
which is how the heads of one row meet a matrix each. Groups hold no row twice.
"""

from tinyllm_engine.jit import inlined
from tinyllm_engine.simd import load_f32, load_i64

ALL_ROWS = -1  # as many as the batch has
GROUP_BYTES = 24


@inlined
def group_count(a):
    """Groups of a product; without any, one matrix meets all rows."""
    return load_i64(a.groups) if a.groups != 0 else 1


@inlined
def group_at(a, index):
    """(matrix, first row, rows) of a group."""
    if a.groups == 0:
        return 0, 0, load_i64(a.count)
    at = a.groups + 8 + index * GROUP_BYTES
    rows = load_i64(at + 16)
    return load_i64(at), load_i64(at + 8), rows if rows >= 0 else load_i64(a.count)


@inlined
def first_input(a, matrix, row):
    """The element of x, counted from the beginning of the buffer, at which a group's first row begins."""
    return row * a.x_stride + matrix * a.x_step


@inlined
def target(a, matrix, row):
    """(scale, addresses of bias, residual and result) of a group, as `finish` needs them."""
    at = 4 * (row * a.out_stride + matrix * a.out_step)
    scale = a.weight_scale
    if a.matrix_scales != 0:
        scale = load_f32(a.matrix_scales + 4 * matrix)
    bias = a.bias + 4 * matrix * a.rows if a.bias != 0 else 0
    residual = a.residual + at if a.residual != 0 else 0
    return scale, bias, residual, a.out + at
