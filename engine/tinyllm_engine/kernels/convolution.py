"""Short causal convolutions along a sequence, each channel for itself.

A sequence keeps the last taps - 1 columns of every channel, oldest first: float32 [taps - 1][columns] at the layer's
place in its state. The rows of a pass follow one another: a row reads the columns at its `source` and leaves them,
moved on by one, at its `target`. The first row of a sequence reads what the pass before has left and all others what
the row before them has, so rows go in order, and a pass that is given up has spoilt nothing that was there.
"""

from tinyllm_engine.jit import inlined, kernel, layout, record
from tinyllm_engine.kernels.gating import silu
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.simd import add, fma, load_f32x8, load_i64, mul, store, zero_f32x8

# out = silu(sum of weight[tap] * column[tap] + bias), the newest column being x
CONVOLVE = layout(
    "x",  # float32 [count, columns]
    "columns",
    "taps",
    "weight",  # float32 [taps][columns]
    "bias",  # float32 [columns], or 0
    "sources",  # int64 [count]: address of the state a row reads
    "targets",  # int64 [count]: address of the state it leaves
    "state",  # where in it this layer's part begins, in bytes
    "count",
    "out",  # float32 [count, columns]
)

# out = c * sum of weight[tap] * column[tap], the newest column being b * x
GATED_CONVOLVE = layout(
    "b", "c", "x", "columns", "taps", "weight", "sources", "targets", "state", "count", "out"
)  # fmt: skip


@inlined
def convolved8(source, target, weight, taps, row_bytes, newest):
    """Eight channels; source and target may be the same place."""
    total = zero_f32x8()
    for tap in range(taps - 1):
        column = load_f32x8(source + tap * row_bytes)
        total = fma(column, load_f32x8(weight + tap * row_bytes), total)
        if tap > 0:
            store(target + (tap - 1) * row_bytes, column)
    if taps > 1:
        store(target + (taps - 2) * row_bytes, newest)
    return fma(newest, load_f32x8(weight + (taps - 1) * row_bytes), total)


@kernel(CONVOLVE)
def convolve(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    row_bytes = 4 * a.columns
    for row in range(load_i64(a.count)):
        source, target = load_i64(a.sources + 8 * row) + a.state, load_i64(a.targets + 8 * row) + a.state
        for k in range(4 * first, 4 * last, 32):
            x = load_f32x8(a.x + row * row_bytes + k)
            y = convolved8(source + k, target + k, a.weight + k, a.taps, row_bytes, x)
            if a.bias != 0:
                y = add(y, load_f32x8(a.bias + k))
            store(a.out + row * row_bytes + k, silu(y))


@kernel(GATED_CONVOLVE)
def gated_convolve(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    row_bytes = 4 * a.columns
    for row in range(load_i64(a.count)):
        source, target = load_i64(a.sources + 8 * row) + a.state, load_i64(a.targets + 8 * row) + a.state
        for k in range(4 * first, 4 * last, 32):
            at = row * row_bytes + k
            x = mul(load_f32x8(a.b + at), load_f32x8(a.x + at))
            y = convolved8(source + k, target + k, a.weight + k, a.taps, row_bytes, x)
            store(a.out + at, mul(load_f32x8(a.c + at), y))
