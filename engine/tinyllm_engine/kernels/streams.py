"""Residual streams side by side (AltUp, arXiv:2301.13310): predicted from one another, corrected by what a layer found.

A row of streams is float32 [streams][columns].
"""

import math

from tinyllm_engine.jit import inlined, kernel, layout, record
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.simd import (
    add,
    fma,
    horizontal_sum,
    load_f32,
    load_f32x8,
    load_i64,
    maximum,
    mul,
    splat_at_f32x8,
    splat_f32x8,
    store,
    sub,
    zero_f32x8,
)

# out[row, s] = x[row, s] + sum_t coefficients[row, s, t] x[row, t]
PREDICT = layout("x", "coefficients", "streams", "columns", "count", "out")

# out[row, s] = predicted[row, s] + (1 + coefficients[row, s]) * (found[row] - predicted[row, 0])
CORRECT = layout("predicted", "found", "coefficients", "streams", "columns", "count", "out")

# x[row, s] += y[row] for all streams but the first
ADD = layout("x", "y", "streams", "columns", "count")

# x[row] times |like[row]| / |x[row]|
MATCH = layout("x", "like", "columns", "count")

# x[row] = max(x[row] - mean - factor * deviation, 0), by the mean and the deviation of the row (of n - 1)
KEEP_TOP = layout("x", "factor:f", "columns", "count")


@kernel(PREDICT)
def predict_streams(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        at = 4 * row * a.streams * a.columns
        for s in range(a.streams):
            coefficients = a.coefficients + 4 * (row * a.streams + s) * a.streams
            own = at + 4 * s * a.columns
            for k in range(4 * first, 4 * last, 32):
                total = zero_f32x8()
                for t in range(a.streams):
                    other = load_f32x8(a.x + at + 4 * t * a.columns + k)
                    total = fma(splat_at_f32x8(coefficients + 4 * t), other, total)
                store(a.out + own + k, add(load_f32x8(a.x + own + k), total))


@kernel(CORRECT)
def correct_streams(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        at, found = 4 * row * a.streams * a.columns, a.found + 4 * row * a.columns
        for k in range(4 * first, 4 * last, 32):
            news = sub(load_f32x8(found + k), load_f32x8(a.predicted + at + k))
            for s in range(a.streams):
                share = splat_f32x8(load_f32(a.coefficients + 4 * (row * a.streams + s)) + 1)
                own = at + 4 * s * a.columns + k
                store(a.out + own, add(mul(news, share), load_f32x8(a.predicted + own)))


@kernel(ADD)
def add_to_streams(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        for s in range(1, a.streams):
            x, y = a.x + 4 * (row * a.streams + s) * a.columns, a.y + 4 * row * a.columns
            for k in range(4 * first, 4 * last, 32):
                store(x + k, add(load_f32x8(x + k), load_f32x8(y + k)))


@inlined
def square_sum(x, columns, mean):
    """Of the distances from a mean."""
    total, middle = zero_f32x8(), splat_f32x8(mean)
    for k in range(0, 4 * columns, 32):
        distance = sub(load_f32x8(x + k), middle)
        total = fma(distance, distance, total)
    return horizontal_sum(total)


@kernel(MATCH)
def match_magnitude(thread, threads, pointer):
    """Threads take turns by row."""
    a = record(pointer)
    for row in range(thread, load_i64(a.count), threads):
        x, like = a.x + 4 * row * a.columns, a.like + 4 * row * a.columns
        wanted, own = square_sum(like, a.columns, 0.0), square_sum(x, a.columns, 0.0)
        factor = splat_f32x8(math.sqrt(wanted) / math.sqrt(own))
        for k in range(0, 4 * a.columns, 32):
            store(x + k, mul(load_f32x8(x + k), factor))


@kernel(KEEP_TOP)
def keep_top(thread, threads, pointer):
    """Threads take turns by row."""
    a = record(pointer)
    for row in range(thread, load_i64(a.count), threads):
        x, total = a.x + 4 * row * a.columns, zero_f32x8()
        for k in range(0, 4 * a.columns, 32):
            total = add(total, load_f32x8(x + k))
        mean = horizontal_sum(total) / a.columns
        cut = mean + a.factor * math.sqrt(square_sum(x, a.columns, mean) / (a.columns - 1))
        for k in range(0, 4 * a.columns, 32):
            store(x + k, maximum(sub(load_f32x8(x + k), splat_f32x8(cut)), zero_f32x8()))
