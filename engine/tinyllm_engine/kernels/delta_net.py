"""Gated delta net (arXiv:2412.06464): each head carries a matrix that corrects what it remembers under a key.

    q, k of length 1, q scaled by size**-0.5;  S = e**(A * softplus(alpha)) * S
    S = S + k (sigmoid(beta) * (v - S^T k))^T;  o = S^T q;  out = norm(o) * silu(z)

S [key][value] lies as float32 [heads][size / 8][size][8] at the layer's place in the state, for eight values are
computed at once. The rows of a pass go in order, from source to target, as in `convolution`.
"""

import math

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, native, record
from tinyllm_engine.kernels.gating import silu
from tinyllm_engine.kernels.norm import inverse_rms
from tinyllm_engine.kernels.state_space import softplus
from tinyllm_engine.simd import (
    add,
    fma,
    load_f32,
    load_f32x8,
    load_i64,
    mul,
    splat_at_f32x8,
    splat_f32x8,
    store,
    store_f32,
    sub,
    zero_f32x8,
)

STEPS = 2  # numbers of a row and head: how much of S stays, and sigmoid(beta)
TILE_ROWS = 16  # that eight values see while their columns of S are near

DELTA_NET = layout(
    "qkv",  # float32 [count][q: key_heads, size; k: key_heads, size; v: heads, size]
    "z",  # float32 [count, heads, size]
    "alpha",  # float32 [count, heads]
    "beta",  # float32 [count, heads]
    "heads",
    "key_heads",
    "size",  # of keys and values, a multiple of 8
    "tiled",  # head h has key h % key_heads; else heads / key_heads neighbouring heads share one
    "a",  # float32 [heads], negative
    "weight",  # float32 [size], of the norm
    "epsilon:f",
    "steps",  # scratch: float32 [heads][count][STEPS]
    "steps_bytes",  # of a head
    "scratch",  # float32 [threads][TILE_ROWS][q: size, k: size]
    "scratch_bytes",  # of a thread
    "sources",
    "targets",
    "state",
    "count",
    "out",  # float32 [count, heads, size]
)


@native
def inverse_length(x, size, epsilon):
    """1 / sqrt(sum(x^2) + epsilon)"""
    return inverse_rms(x, size, epsilon / size) / np.float32(math.sqrt(size))


@native
def recalled8(source, k, size):
    """Eight columns of S: S^T k."""
    s0, s1, s2, s3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
    for i in range(0, size, 4):
        s0 = fma(load_f32x8(source + 32 * i), splat_at_f32x8(k + 4 * i), s0)
        s1 = fma(load_f32x8(source + 32 * i + 32), splat_at_f32x8(k + 4 * i + 4), s1)
        s2 = fma(load_f32x8(source + 32 * i + 64), splat_at_f32x8(k + 4 * i + 8), s2)
        s3 = fma(load_f32x8(source + 32 * i + 96), splat_at_f32x8(k + 4 * i + 12), s3)
    return add(add(s0, s1), add(s2, s3))


@native
def corrected8(source, target, q, k, size, decay, delta):
    """Eight columns of S: S = decay * S + k delta^T; returns S^T q."""
    keep = splat_f32x8(decay)
    o0, o1, o2, o3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
    for i in range(0, size, 4):
        read, write, k_i, q_i = source + 32 * i, target + 32 * i, k + 4 * i, q + 4 * i
        s0 = fma(delta, splat_at_f32x8(k_i), mul(load_f32x8(read), keep))
        s1 = fma(delta, splat_at_f32x8(k_i + 4), mul(load_f32x8(read + 32), keep))
        s2 = fma(delta, splat_at_f32x8(k_i + 8), mul(load_f32x8(read + 64), keep))
        s3 = fma(delta, splat_at_f32x8(k_i + 12), mul(load_f32x8(read + 96), keep))
        store(write, s0)
        store(write + 32, s1)
        store(write + 64, s2)
        store(write + 96, s3)
        o0, o1 = fma(s0, splat_at_f32x8(q_i), o0), fma(s1, splat_at_f32x8(q_i + 4), o1)
        o2, o3 = fma(s2, splat_at_f32x8(q_i + 8), o2), fma(s3, splat_at_f32x8(q_i + 12), o3)
    return add(add(o0, o1), add(o2, o3))


@inlined
def find_steps(a, head, count, steps):
    """The numbers of every row of one head."""
    rate = np.float64(load_f32(a.a + 4 * head))
    for row in range(count):
        step = softplus(load_f32(a.alpha + 4 * (row * a.heads + head)))
        beta = np.float64(load_f32(a.beta + 4 * (row * a.heads + head)))
        store_f32(steps + 8 * row, np.float32(math.exp(rate * step)))
        store_f32(steps + 8 * row + 4, np.float32(1.0 / (1.0 + math.exp(-beta))))


@inlined
def scaled_copy(out, x, size, factor):
    scale = splat_f32x8(factor)
    for i in range(0, 4 * size, 32):
        store(out + i, mul(load_f32x8(x + i), scale))


@inlined
def normed_and_gated(a, head, row):
    """out = norm(out) * silu(z)"""
    at = 4 * (row * a.heads + head) * a.size
    factor = splat_f32x8(inverse_rms(a.out + at, a.size, a.epsilon))
    for k in range(0, 4 * a.size, 32):
        y = mul(mul(load_f32x8(a.out + at + k), factor), load_f32x8(a.weight + k))
        store(a.out + at + k, mul(y, silu(load_f32x8(a.z + at + k))))


@native
def correct_tile(a, head, first, last, steps, scratch):
    """Rows first..last of one head; their queries and keys lie together in `scratch`, brought to their lengths."""
    size = a.size
    columns = (2 * a.key_heads + a.heads) * size
    key = head % a.key_heads if a.tiled != 0 else head // (a.heads // a.key_heads)
    for row in range(first, last):
        q, k = a.qkv + 4 * (row * columns + key * size), a.qkv + 4 * (row * columns + (a.key_heads + key) * size)
        own = scratch + 8 * (row - first) * size
        scaled_copy(own, q, size, inverse_length(q, size, a.epsilon) / np.float32(math.sqrt(size)))
        scaled_copy(own + 4 * size, k, size, inverse_length(k, size, a.epsilon))
    for value in range(head * size, (head + 1) * size, 8):
        at = a.state + 4 * value * size
        for row in range(first, last):
            source, target = load_i64(a.sources + 8 * row) + at, load_i64(a.targets + 8 * row) + at
            q, decay = scratch + 8 * (row - first) * size, load_f32(steps + 8 * row)
            v = load_f32x8(a.qkv + 4 * (row * columns + 2 * a.key_heads * size + value))
            found = mul(recalled8(source, q + 4 * size, size), splat_f32x8(decay))
            delta = mul(sub(v, found), splat_at_f32x8(steps + 8 * row + 4))
            o = corrected8(source, target, q, q + 4 * size, size, decay, delta)
            store(a.out + 4 * (row * a.heads * size + value), o)
    for row in range(first, last):
        normed_and_gated(a, head, row)


@kernel(DELTA_NET)
def delta_net(thread, threads, pointer):
    """Threads own whole heads."""
    a = record(pointer)
    count = load_i64(a.count)
    for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
        steps = a.steps + head * a.steps_bytes
        find_steps(a, head, count, steps)
        for tile in range(0, count, TILE_ROWS):
            correct_tile(a, head, tile, min(tile + TILE_ROWS, count), steps, a.scratch + thread * a.scratch_bytes)
