"""Token embeddings: one stored row becomes floats; and the choice of rows that go on to the output."""

import numpy as np
from numba import types
from numba.extending import overload

from tinyllm_engine.jit import inlined, kernel, layout, record
from tinyllm_engine.kernels import unpack as u
from tinyllm_engine.simd import (
    codes_to_f32,
    fma,
    load_bf16x8,
    load_f16x8,
    load_f32x8,
    load_i64,
    splat_f32x8,
    store,
)

# out[row] = weights[token of row]
EMBED = layout("weights", "row_bytes", "columns", "tokens", "count", "out")

# out[i] = x[first + i], for the rows whose logits are wanted
SELECT_ROWS = layout("x", "columns", "first", "count", "out")


def half_of(value, second):
    """The scale or offset of one half of a part: the value itself where both halves share it."""


@overload(half_of, inline="always")
def _half_of(value, second):
    if isinstance(value, types.NoneType):
        return lambda value, second: np.float32(0.0)
    if isinstance(value, types.BaseTuple):
        return lambda value, second: value[1] if second else value[0]
    return lambda value, second: value


@inlined
def embed(thread, threads, pointer, unpack, block_bytes, parts_per_block):
    """Threads take turns by batch row."""
    a = record(pointer)
    for row in range(thread, load_i64(a.count), threads):
        stored = a.weights + load_i64(a.tokens + 8 * row) * a.row_bytes
        out = a.out + 4 * row * a.columns
        for part in range(a.columns // 32):
            block = stored + part // parts_per_block * block_bytes
            codes, scale, offset = unpack(block, part % parts_per_block)
            s0, o0 = splat_f32x8(half_of(scale, False)), splat_f32x8(half_of(offset, False))
            s1, o1 = splat_f32x8(half_of(scale, True)), splat_f32x8(half_of(offset, True))
            at = out + 128 * part
            store(at, fma(codes_to_f32(codes, 0), s0, o0))
            store(at + 32, fma(codes_to_f32(codes, 1), s0, o0))
            store(at + 64, fma(codes_to_f32(codes, 2), s1, o1))
            store(at + 96, fma(codes_to_f32(codes, 3), s1, o1))


@inlined
def embed_float(thread, threads, pointer, load8, element_bytes):
    a = record(pointer)
    for row in range(thread, load_i64(a.count), threads):
        stored = a.weights + load_i64(a.tokens + 8 * row) * a.row_bytes
        out = a.out + 4 * row * a.columns
        for k in range(0, a.columns, 8):
            store(out + 4 * k, load8(stored + k * element_bytes))


@kernel(SELECT_ROWS)
def select_rows(thread, threads, pointer):
    a = record(pointer)
    source = a.x + 4 * load_i64(a.first) * a.columns
    for row in range(thread, load_i64(a.count), threads):
        at = 4 * row * a.columns
        for k in range(0, 4 * a.columns, 32):
            store(a.out + at + k, load_f32x8(source + at + k))


@kernel(EMBED)
def embed_f32(thread, threads, pointer):
    embed_float(thread, threads, pointer, load_f32x8, 4)


@kernel(EMBED)
def embed_f16(thread, threads, pointer):
    embed_float(thread, threads, pointer, load_f16x8, 2)


@kernel(EMBED)
def embed_bf16(thread, threads, pointer):
    embed_float(thread, threads, pointer, load_bf16x8, 2)


@kernel(EMBED)
def embed_q4_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q4_0, 18, 1)


@kernel(EMBED)
def embed_q4_1(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q4_1, 20, 1)


@kernel(EMBED)
def embed_q5_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q5_0, 22, 1)


@kernel(EMBED)
def embed_q5_1(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q5_1, 24, 1)


@kernel(EMBED)
def embed_q8_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q8_0, 34, 1)


@kernel(EMBED)
def embed_q4_k(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q4_k, 144, 8)


@kernel(EMBED)
def embed_q6_k(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q6_k, 210, 8)
