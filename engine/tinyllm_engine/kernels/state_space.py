"""Selective state spaces: each head carries a matrix that fades, takes rows in and answers them.

Mamba-2 (arXiv:2405.21060), a head of P channels with a state of N numbers for each of them:

    dt = softplus(dt);  H = e**(dt * A) * H + (dt * x) B^T;  y = H C + D * x

with dt, A and D of the head. In Mamba (arXiv:2312.00752) they belong to the channel, and A to each of its N numbers.
H lies as float32 [heads][P / 8][N][8] at the layer's place in the state, for eight channels are computed at once. The
rows of a pass go in order, from source to target, as in `convolution`.
"""

import math

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, native, record
from tinyllm_engine.kernels.gating import silu
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.simd import (
    add,
    exp,
    fma,
    join8_floats,
    load_f32,
    load_f32x8,
    load_i64,
    mul,
    splat_at_f32x8,
    splat_f32x8,
    store,
    store_f32,
    zero_f32x8,
)

STEPS = 2  # numbers of a row and head: dt after the softplus, and how much of the state stays
TILE_ROWS = 16  # that eight channels see while their state is near

# out = (y + D * x) * silu(z)
MAMBA2 = layout(
    "x",  # float32 [count, heads, head_size]
    "b",  # float32 [count, groups, state_size]
    "c",  # float32 [count, groups, state_size]
    "x_columns",  # from a row to the next
    "b_columns",
    "c_columns",
    "dt",  # float32 [count, heads]
    "z",  # float32 [count, heads, head_size]
    "heads",
    "head_size",
    "groups",  # each with a B and a C for heads / groups neighbouring heads
    "state_size",  # a multiple of 4
    "a",  # float32 [heads], negative
    "d",  # float32 [heads]
    "steps",  # scratch: float32 [heads][count][STEPS]
    "steps_bytes",  # of a head
    "sources",
    "targets",
    "state",
    "count",
    "out",  # float32 [count, heads, head_size]
)

# Every channel has its own dt and its own decays; out = (y + D * x) * silu(z)
MAMBA = layout(
    "x",  # float32 [count, columns]
    "b",  # float32 [count, state_size]
    "c",  # float32 [count, state_size]
    "dt",  # float32 [count, columns]
    "z",  # float32 [count, columns]
    "columns",
    "state_size",
    "a",  # float32 [columns / 8][state_size][8], negative
    "d",  # float32 [columns]
    "sources",
    "targets",
    "state",
    "count",
    "out",  # float32 [count, columns]
)


@native
def softplus(x):
    """log(1 + e**x), which is x where that no longer differs from it."""
    return x if x > 20.0 else np.float32(math.log1p(math.exp(np.float64(x))))


@native
def scanned8(source, target, b, c, size, decay, x):
    """Eight channels of a head: H = decay * H + x B^T; returns H C."""
    keep = splat_f32x8(decay)
    y0, y1, y2, y3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
    for n in range(0, size, 4):
        b_n, c_n, read, write = b + 4 * n, c + 4 * n, source + 32 * n, target + 32 * n
        h0 = fma(load_f32x8(read), keep, mul(x, splat_at_f32x8(b_n)))
        h1 = fma(load_f32x8(read + 32), keep, mul(x, splat_at_f32x8(b_n + 4)))
        h2 = fma(load_f32x8(read + 64), keep, mul(x, splat_at_f32x8(b_n + 8)))
        h3 = fma(load_f32x8(read + 96), keep, mul(x, splat_at_f32x8(b_n + 12)))
        store(write, h0)
        store(write + 32, h1)
        store(write + 64, h2)
        store(write + 96, h3)
        y0, y1 = fma(h0, splat_at_f32x8(c_n), y0), fma(h1, splat_at_f32x8(c_n + 4), y1)
        y2, y3 = fma(h2, splat_at_f32x8(c_n + 8), y2), fma(h3, splat_at_f32x8(c_n + 12), y3)
    return add(add(y0, y1), add(y2, y3))


@inlined
def find_steps(dt, heads, count, a, steps):
    """dt and the decay of every row of one head."""
    for row in range(count):
        step = softplus(load_f32(dt + 4 * row * heads))
        store_f32(steps + 8 * row, step)
        store_f32(steps + 8 * row + 4, np.float32(math.exp(np.float64(step) * a)))


@native
def scan_tile(a, head, first, last, steps):
    """Rows first..last of one head."""
    inner, group = a.heads * a.head_size, head // (a.heads // a.groups)
    b, c = a.b + 4 * group * a.state_size, a.c + 4 * group * a.state_size
    d = splat_at_f32x8(a.d + 4 * head)
    for channel in range(head * a.head_size, (head + 1) * a.head_size, 8):
        at = a.state + 4 * channel * a.state_size
        for row in range(first, last):
            x = load_f32x8(a.x + 4 * (row * a.x_columns + channel))
            y = scanned8(
                load_i64(a.sources + 8 * row) + at,
                load_i64(a.targets + 8 * row) + at,
                b + 4 * row * a.b_columns,
                c + 4 * row * a.c_columns,
                a.state_size,
                load_f32(steps + 8 * row + 4),
                mul(x, splat_at_f32x8(steps + 8 * row)),
            )
            out = 4 * (row * inner + channel)
            store(a.out + out, mul(fma(x, d, y), silu(load_f32x8(a.z + out))))


@kernel(MAMBA2)
def mamba2(thread, threads, pointer):
    """Threads own whole heads."""
    a = record(pointer)
    count = load_i64(a.count)
    for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
        steps = a.steps + head * a.steps_bytes
        find_steps(a.dt + 4 * head, a.heads, count, load_f32(a.a + 4 * head), steps)
        for tile in range(0, count, TILE_ROWS):
            scan_tile(a, head, tile, min(tile + TILE_ROWS, count), steps)


@inlined
def softplus8(x):
    """Of the eight numbers at x."""
    return join8_floats(
        softplus(load_f32(x)),
        softplus(load_f32(x + 4)),
        softplus(load_f32(x + 8)),
        softplus(load_f32(x + 12)),
        softplus(load_f32(x + 16)),
        softplus(load_f32(x + 20)),
        softplus(load_f32(x + 24)),
        softplus(load_f32(x + 28)),
    )


@native
def faded8(source, target, a, b, c, size, dt, x):
    """Eight channels with decays of their own: H = e**(dt A) * H + dt x B^T; returns H C."""
    y, taken = zero_f32x8(), mul(dt, x)
    for n in range(size):
        keep = exp(mul(dt, load_f32x8(a + 32 * n)))
        h = fma(load_f32x8(source + 32 * n), keep, mul(taken, splat_at_f32x8(b + 4 * n)))
        store(target + 32 * n, h)
        y = fma(h, splat_at_f32x8(c + 4 * n), y)
    return y


@kernel(MAMBA)
def mamba(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for tile in range(0, load_i64(a.count), TILE_ROWS):
        end = min(tile + TILE_ROWS, load_i64(a.count))
        for channel in range(first, last, 8):
            at = 4 * channel * a.state_size
            for row in range(tile, end):
                own = 4 * (row * a.columns + channel)
                x, dt = load_f32x8(a.x + own), softplus8(a.dt + own)
                source, target = load_i64(a.sources + 8 * row) + a.state, load_i64(a.targets + 8 * row) + a.state
                b, c = a.b + 4 * row * a.state_size, a.c + 4 * row * a.state_size
                y = faded8(source + at, target + at, a.a + at, b, c, a.state_size, dt, x)
                y = fma(x, load_f32x8(a.d + 4 * channel), y)
                store(a.out + own, mul(y, silu(load_f32x8(a.z + own))))
