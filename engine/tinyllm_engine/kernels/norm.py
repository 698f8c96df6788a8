"""Norms of rows, and of the heads of a row.

RMS norm (arXiv:1910.07467): out = x / sqrt(mean(x^2) + epsilon) * weight
Layer norm (arXiv:1607.06450): out = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
"""

import math

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, native, record
from tinyllm_engine.kernels.partition import owned
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
    sub,
    zero_f32x8,
)

RMS_NORM = layout("x", "weight", "columns", "epsilon:f", "count", "out")
LAYER_NORM = layout("x", "weight", "bias", "columns", "epsilon:f", "count", "out")

# The norm of one row and its codes, computed by every thread for itself into its own copy: cheaper than a barrier.
RMS_NORM_QUANTIZE = layout("x", "weight", "columns", "epsilon:f", "codes", "scales", "sums", "half_sums", "copy_bytes")
LAYER_NORM_QUANTIZE = layout(
    "x", "weight", "bias", "columns", "epsilon:f", "codes", "scales", "sums", "half_sums", "copy_bytes"
)

# Every head of x by itself, in place. Its weights and biases lie `stride` floats behind those of the head before: 0 if
# they are the same for all.
HEAD_NORM = layout("x", "heads", "head_size", "weight", "bias", "stride", "epsilon:f", "count")


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


@native
def moments(x, columns, epsilon):
    """(mean, 1 / sqrt(variance + epsilon)) of `columns` floats (a multiple of 8)."""
    sums = zero_f32x8()
    for k in range(0, columns, 8):
        sums = add(sums, load_f32x8(x + 4 * k))
    mean = np.float32(np.float64(horizontal_sum(sums)) / columns)
    middle, squares = splat_f32x8(mean), zero_f32x8()
    for k in range(0, columns, 8):
        distance = sub(load_f32x8(x + 4 * k), middle)
        squares = fma(distance, distance, squares)
    variance = np.float64(horizontal_sum(squares)) / columns
    return mean, np.float32(1.0 / math.sqrt(variance + epsilon))


@inlined
def centered(x, weight, bias, mean, factor):
    return add(mul(mul(sub(load_f32x8(x), mean), factor), load_f32x8(weight)), load_f32x8(bias))


@inlined
def own_part(a, rows, thread, threads):
    """Many rows: threads take turns. Few rows: each thread writes its own columns."""
    if rows >= 2 * threads:
        return thread, threads, 0, a.columns
    first, last = owned(a.columns, thread, threads)
    return 0, 1, first, last


@kernel(RMS_NORM)
def rms_norm(thread, threads, pointer):
    a = record(pointer)
    rows = load_i64(a.count)
    first_row, step, first, last = own_part(a, rows, thread, threads)
    for row in range(first_row, rows, step):
        x, out = a.x + 4 * row * a.columns, a.out + 4 * row * a.columns
        factor = splat_f32x8(inverse_rms(x, a.columns, a.epsilon))
        for k in range(first, last, 8):
            store(out + 4 * k, normalized(x + 4 * k, a.weight + 4 * k, factor))


@kernel(LAYER_NORM)
def layer_norm(thread, threads, pointer):
    a = record(pointer)
    rows = load_i64(a.count)
    first_row, step, first, last = own_part(a, rows, thread, threads)
    for row in range(first_row, rows, step):
        x, out = a.x + 4 * row * a.columns, a.out + 4 * row * a.columns
        middle, deviation = moments(x, a.columns, a.epsilon)
        mean, factor = splat_f32x8(middle), splat_f32x8(deviation)
        for k in range(first, last, 8):
            store(out + 4 * k, centered(x + 4 * k, a.weight + 4 * k, a.bias + 4 * k, mean, factor))


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


@kernel(LAYER_NORM_QUANTIZE)
def layer_norm_quantize(thread, threads, pointer):
    a = record(pointer)
    copy = thread * a.copy_bytes
    middle, deviation = moments(a.x, a.columns, a.epsilon)
    mean, factor = splat_f32x8(middle), splat_f32x8(deviation)
    for k in range(0, a.columns, 32):
        x, weight, bias, block = a.x + 4 * k, a.weight + 4 * k, a.bias + 4 * k, copy + k // 32 * 4
        quantize_block(
            centered(x, weight, bias, mean, factor),
            centered(x + 32, weight + 32, bias + 32, mean, factor),
            centered(x + 64, weight + 64, bias + 64, mean, factor),
            centered(x + 96, weight + 96, bias + 96, mean, factor),
            a.codes + copy + k,
            a.scales + block,
            a.sums + block,
            a.half_sums + copy + k // 32 * 8,
        )


@kernel(HEAD_NORM)
def rms_norm_heads(thread, threads, pointer):
    """Threads own whole heads, as in `rope`."""
    a = record(pointer)
    for row in range(load_i64(a.count)):
        for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
            x = a.x + 4 * (row * a.heads + head) * a.head_size
            weight = a.weight + 4 * head * a.stride
            factor = splat_f32x8(inverse_rms(x, a.head_size, a.epsilon))
            for k in range(0, 4 * a.head_size, 32):
                store(x + k, normalized(x + k, weight + k, factor))


@kernel(HEAD_NORM)
def layer_norm_heads(thread, threads, pointer):
    a = record(pointer)
    for row in range(load_i64(a.count)):
        for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
            x = a.x + 4 * (row * a.heads + head) * a.head_size
            weight, bias = a.weight + 4 * head * a.stride, a.bias + 4 * head * a.stride
            middle, deviation = moments(x, a.head_size, a.epsilon)
            mean, factor = splat_f32x8(middle), splat_f32x8(deviation)
            for k in range(0, 4 * a.head_size, 32):
                store(x + k, centered(x + k, weight + k, bias + k, mean, factor))
