"""Gates: what a sigmoid of one row lets through of another, and heads that hold a vector and its gate side by side."""

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, record
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.simd import add, divide, exp, load_f32x8, load_i64, mul, splat_f32x8, store, sub, zero_f32x8

SPLIT_HEADS = layout("x", "heads", "size", "count", "first", "second")  # x [heads][first size, second size]
SIGMOID_GATE = layout("x", "gate", "columns", "count")  # x = x * sigmoid(gate)


@inlined
def sigmoid(x):
    """1 / (1 + e**-x)"""
    one = splat_f32x8(np.float32(1.0))
    return divide(one, add(one, exp(sub(zero_f32x8(), x))))


@inlined
def silu(x):
    """x / (1 + e**-x)"""
    return divide(x, add(splat_f32x8(np.float32(1.0)), exp(sub(zero_f32x8(), x))))


@kernel(SPLIT_HEADS)
def split_heads(thread, threads, pointer):
    """Threads own whole heads."""
    a = record(pointer)
    for row in range(load_i64(a.count)):
        for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
            out = 4 * (row * a.heads + head) * a.size
            x = a.x + 2 * out
            for k in range(0, 4 * a.size, 32):
                store(a.first + out + k, load_f32x8(x + k))
                store(a.second + out + k, load_f32x8(x + 4 * a.size + k))


@kernel(SIGMOID_GATE)
def sigmoid_gate(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        at = 4 * row * a.columns
        for k in range(at + 4 * first, at + 4 * last, 32):
            store(a.x + k, mul(load_f32x8(a.x + k), sigmoid(load_f32x8(a.gate + k))))
