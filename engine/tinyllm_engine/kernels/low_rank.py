"""What an adapter adds to a product: out += scale * B (A x), with two matrices of few rows or few columns.

One row and a batch take the same operations in the same order, so an adapted model stays as exact as it was: the bits
depend neither on the number of threads nor on what else is in the batch.
"""

from tinyllm_engine.agreed import UNIT
from tinyllm_engine.jit import inlined, kernel, layout, record
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.simd import (
    add,
    fma,
    horizontal_sum,
    load_f32,
    load_f32x8,
    load_i64,
    splat_at_f32x8,
    splat_f32x8,
    store,
    store_f32,
    zero_f32x8,
)

# out[row, r] = sum_k matrix[r, k] x[row, k], columns in any multiple of 8
NARROW = layout("x", "columns", "matrix", "rank", "count", "out")

# out[row, n] += scale * sum_r x[row, r] matrix[n, r], which lies as float32 [block][rank][UNIT], the columns in blocks
WIDEN = layout("x", "rank", "matrix", "columns", "scale:f", "count", "out")


@inlined
def product(a, x, columns):
    """The sum of the products of two rows, in four sums of eight."""
    s0, s1, s2, s3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
    whole = columns // 32 * 128
    for k in range(0, whole, 128):
        s0 = fma(load_f32x8(a + k), load_f32x8(x + k), s0)
        s1 = fma(load_f32x8(a + k + 32), load_f32x8(x + k + 32), s1)
        s2 = fma(load_f32x8(a + k + 64), load_f32x8(x + k + 64), s2)
        s3 = fma(load_f32x8(a + k + 96), load_f32x8(x + k + 96), s3)
    for k in range(whole, 4 * columns, 32):
        s0 = fma(load_f32x8(a + k), load_f32x8(x + k), s0)
    return horizontal_sum(add(add(s0, s1), add(s2, s3)))


@kernel(NARROW)
def low_rank_narrow(thread, threads, pointer):
    """Results are counted on from row to row: a single row is work for all threads too."""
    a = record(pointer)
    results = load_i64(a.count) * a.rank
    for result in range(results * thread // threads, results * (thread + 1) // threads):
        row, r = result // a.rank, result % a.rank
        store_f32(a.out + 4 * result, product(a.matrix + 4 * r * a.columns, a.x + 4 * row * a.columns, a.columns))


@inlined
def widen_block(a, x, b, out):
    """A whole block of one row."""
    s0, s1, s2, s3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
    for r in range(a.rank):
        factor, at = splat_at_f32x8(x + 4 * r), b + 4 * UNIT * r
        s0 = fma(load_f32x8(at), factor, s0)
        s1 = fma(load_f32x8(at + 32), factor, s1)
        s2 = fma(load_f32x8(at + 64), factor, s2)
        s3 = fma(load_f32x8(at + 96), factor, s3)
    scale = splat_f32x8(a.scale)
    store(out, fma(s0, scale, load_f32x8(out)))
    store(out + 32, fma(s1, scale, load_f32x8(out + 32)))
    store(out + 64, fma(s2, scale, load_f32x8(out + 64)))
    store(out + 96, fma(s3, scale, load_f32x8(out + 96)))


@inlined
def widen_rest(a, x, b, out, columns):
    """The last block of one row, which has fewer columns."""
    for n in range(columns):
        total = load_f32(x) * load_f32(b + 4 * n)
        for r in range(1, a.rank):
            total += load_f32(x + 4 * r) * load_f32(b + 4 * (UNIT * r + n))
        store_f32(out + 4 * n, load_f32(out + 4 * n) + a.scale * total)


@kernel(WIDEN)
def low_rank_widen(thread, threads, pointer):
    """Each thread has the columns that it has of a product."""
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for n in range(first, last, UNIT):
        b = a.matrix + 4 * n * a.rank
        for row in range(load_i64(a.count)):
            x, out = a.x + 4 * row * a.rank, a.out + 4 * (row * a.columns + n)
            if n + UNIT <= a.columns:
                widen_block(a, x, b, out)
            else:
                widen_rest(a, x, b, out, a.columns - n)
