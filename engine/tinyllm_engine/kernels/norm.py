"""RMS norm: out = x / sqrt(mean(x^2) + epsilon) * weight."""

import math

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, native, record
from tinyllm_engine.kernels.partition import first_owned
from tinyllm_engine.kernels.quantize import quantize_block
from tinyllm_engine.simd import (
    add,
    fma,
    horizontal_sum,
    load_f32x8,
    load_i64,
    mul,
    splat_f32x8,
    store,
    zero_f32x8,
)

RMS_NORM = layout("x", "weight", "columns", "epsilon:f", "count", "out")

# The norm of one row and its codes, computed by every thread for itself into its own copy: cheaper than a barrier.
RMS_NORM_QUANTIZE = layout("x", "weight", "columns", "epsilon:f", "codes", "scales", "sums", "half_sums", "copy_bytes")


@native
def inverse_rms(x, columns, epsilon):
    """1 / sqrt(mean(x^2) + epsilon) of `columns` floats (a multiple of 8)."""
    s0, s1 = zero_f32x8(), zero_f32x8()
    whole = columns // 16 * 16
    for k in range(0, whole, 16):
        v0, v1 = load_f32x8(x + 4 * k), load_f32x8(x + 4 * k + 32)
        s0, s1 = fma(v0, v0, s0), fma(v1, v1, s1)
    for k in range(whole, columns, 8):
        v0 = load_f32x8(x + 4 * k)
        s0 = fma(v0, v0, s0)
    mean = np.float64(horizontal_sum(add(s0, s1))) / columns
    return np.float32(1.0 / math.sqrt(mean + epsilon))


@inlined
def normalized(x, weight, factor):
    return mul(mul(load_f32x8(x), factor), load_f32x8(weight))


@kernel(RMS_NORM)
def rms_norm(thread, threads, pointer):
    """Many rows: threads take turns. Few rows: each thread writes its own columns."""
    a = record(pointer)
    rows = load_i64(a.count)
    by_row = rows >= 2 * threads
    first_row, step = (thread, threads) if by_row else (0, 1)
    first = 0 if by_row else first_owned(a.columns, thread, threads)
    last = a.columns if by_row else first_owned(a.columns, thread + 1, threads)
    for row in range(first_row, rows, step):
        x, out = a.x + 4 * row * a.columns, a.out + 4 * row * a.columns
        factor = splat_f32x8(inverse_rms(x, a.columns, a.epsilon))
        for k in range(first, last, 8):
            store(out + 4 * k, normalized(x + 4 * k, a.weight + 4 * k, factor))


@kernel(RMS_NORM_QUANTIZE)
def rms_norm_quantize(thread, threads, pointer):
    a = record(pointer)
    copy = thread * a.copy_bytes
    factor = splat_f32x8(inverse_rms(a.x, a.columns, a.epsilon))
    for k in range(0, a.columns, 32):
        x, weight, block = a.x + 4 * k, a.weight + 4 * k, copy + k // 32 * 4
        quantize_block(
            normalized(x, weight, factor),
            normalized(x + 32, weight + 32, factor),
            normalized(x + 64, weight + 64, factor),
            normalized(x + 96, weight + 96, factor),
            a.codes + copy + k,
            a.scales + block,
            a.sums + block,
            a.half_sums + copy + k // 32 * 8,
        )
