"""Sums, products and activations, each thread on its own part of every row."""

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, record
from tinyllm_engine.kernels.partition import first_owned
from tinyllm_engine.kernels.quantize import quantize_block
from tinyllm_engine.simd import (
    add,
    divide,
    exp,
    load_f32x8,
    load_i64,
    mul,
    splat_f32x8,
    store,
    sub,
    zero_f32x8,
)

ADD = layout("out", "x", "columns", "count")  # out += x
SWIGLU = layout("gate", "up", "columns", "count", "out")  # out = silu(gate) * up
SWIGLU_QUANTIZE = layout("gate", "up", "columns", "codes", "scales", "sums", "half_sums")  # one row


@inlined
def swiglu8(gate, up):
    """x / (1 + e**-x) * up."""
    one = splat_f32x8(np.float32(1.0))
    x = load_f32x8(gate)
    return mul(divide(x, add(one, exp(sub(zero_f32x8(), x)))), load_f32x8(up))


@kernel(ADD)
def add_rows(thread, threads, pointer):
    a = record(pointer)
    first, last = first_owned(a.columns, thread, threads), first_owned(a.columns, thread + 1, threads)
    for row in range(load_i64(a.count)):
        at = 4 * row * a.columns
        for k in range(at + 4 * first, at + 4 * last, 32):
            store(a.out + k, add(load_f32x8(a.out + k), load_f32x8(a.x + k)))


@kernel(SWIGLU)
def swiglu(thread, threads, pointer):
    a = record(pointer)
    first, last = first_owned(a.columns, thread, threads), first_owned(a.columns, thread + 1, threads)
    for row in range(load_i64(a.count)):
        at = 4 * row * a.columns
        for k in range(at + 4 * first, at + 4 * last, 32):
            store(a.out + k, swiglu8(a.gate + k, a.up + k))


@kernel(SWIGLU_QUANTIZE)
def swiglu_quantize(thread, threads, pointer):
    """The codes of the activation of the part this thread has just computed."""
    a = record(pointer)
    first, last = first_owned(a.columns, thread, threads), first_owned(a.columns, thread + 1, threads)
    for k in range(first, last, 32):
        gate, up, block = a.gate + 4 * k, a.up + 4 * k, k // 32
        quantize_block(
            swiglu8(gate, up),
            swiglu8(gate + 32, up + 32),
            swiglu8(gate + 64, up + 64),
            swiglu8(gate + 96, up + 96),
            a.codes + k,
            a.scales + 4 * block,
            a.sums + 4 * block,
            a.half_sums + 8 * block,
        )
