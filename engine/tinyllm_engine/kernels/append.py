"""New keys and values, written into the pages of the cache in the type they stay in (`cached_types` has the pages)."""

import numpy as np

from tinyllm_engine.jit import kernel, layout, native, record, shared
from tinyllm_engine.kernels.cached_blocks import BLOCK, quantize_q4_0, quantize_q8_0
from tinyllm_engine.simd import (
    load_f32,
    load_f32x8,
    load_i64,
    scatter_nibbles_by_fours,
    scatter_words,
    store,
    store_bf16,
    store_bf16x8,
    store_f16x8,
    store_f32,
    store_half,
    store_nibbles_by_eights,
    xor_byte,
)

# Writes one row of K or of V per batch row into the pages of its sequence
APPEND = layout(
    "x",  # float32 [count, heads, size]
    "heads",
    "size",  # elements of a head
    "pages",
    "page_bytes",
    "positions",
    "tables",  # address of the page tables' addresses, one a row
    "count",
)
PAGE = 64  # rows


@shared
def append(thread, threads, pointer, put):
    """Threads own whole heads, as where they rotate: no barrier is needed between them."""
    a = record(pointer)
    head_bytes = a.page_bytes // a.heads
    for row in range(load_i64(a.count)):
        position = load_i64(a.positions + 8 * row)
        page = a.pages + load_i64(load_i64(a.tables + 8 * row) + 8 * (position // PAGE)) * a.page_bytes
        for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
            put(a.x + 4 * (row * a.heads + head) * a.size, page + head * head_bytes, position % PAGE, a.size)


# --- K: neighbouring keys are neighbours, so that their scores are ---------------------------------------------------


@native
def put_k_f32(row, page, slot, size):
    for i in range(size):
        store_f32(page + 4 * (i * PAGE + slot), load_f32(row + 4 * i))


@native
def put_k_f16(row, page, slot, size):
    for i in range(size):
        store_half(page + 2 * (i * PAGE + slot), load_f32(row + 4 * i))


@native
def put_k_bf16(row, page, slot, size):
    for i in range(size):
        store_bf16(page + 2 * (i * PAGE + slot), load_f32(row + 4 * i))


@native
def put_k_q8_0(row, page, slot, size):
    scales = page + PAGE * size
    for i in range(0, size, BLOCK):
        codes = quantize_q8_0(row + 4 * i, scales + 2 * (i // BLOCK * PAGE + slot))
        scatter_words(page + i * PAGE + 4 * slot, 4 * PAGE, codes)


@native
def put_k_q4_0(row, page, slot, size):
    """Codes are stored as 0..15."""
    scales = page + PAGE * size // 2
    for i in range(0, size, BLOCK):
        codes = quantize_q4_0(row + 4 * i, scales + 2 * (i // BLOCK * PAGE + slot))
        scatter_nibbles_by_fours(page + i * PAGE // 2 + 4 * slot, 4 * PAGE, xor_byte(codes, np.int8(8)))


@kernel(APPEND)
def append_k_f32(thread, threads, pointer):
    append(thread, threads, pointer, put_k_f32)


@kernel(APPEND)
def append_k_f16(thread, threads, pointer):
    append(thread, threads, pointer, put_k_f16)


@kernel(APPEND)
def append_k_bf16(thread, threads, pointer):
    append(thread, threads, pointer, put_k_bf16)


@kernel(APPEND)
def append_k_q8_0(thread, threads, pointer):
    append(thread, threads, pointer, put_k_q8_0)


@kernel(APPEND)
def append_k_q4_0(thread, threads, pointer):
    append(thread, threads, pointer, put_k_q4_0)


# --- V: row by row ---------------------------------------------------------------------------------------------------


@native
def put_v_f32(row, page, slot, size):
    for i in range(0, size, 8):
        store(page + 4 * (slot * size + i), load_f32x8(row + 4 * i))


@native
def put_v_f16(row, page, slot, size):
    for i in range(0, size, 8):
        store_f16x8(page + 2 * (slot * size + i), load_f32x8(row + 4 * i))


@native
def put_v_bf16(row, page, slot, size):
    for i in range(0, size, 8):
        store_bf16x8(page + 2 * (slot * size + i), load_f32x8(row + 4 * i))


@native
def put_v_q8_0(row, page, slot, size):
    scales = page + PAGE * size
    for i in range(0, size, BLOCK):
        codes = quantize_q8_0(row + 4 * i, scales + 2 * (i // BLOCK * PAGE + slot))
        store(page + slot * size + i, codes)


@native
def put_v_q4_0(row, page, slot, size):
    """Codes are stored as they are, -8..7."""
    scales = page + PAGE * size // 2
    for i in range(0, size, BLOCK):
        codes = quantize_q4_0(row + 4 * i, scales + 2 * (i // BLOCK * PAGE + slot))
        store_nibbles_by_eights(page + (slot * size + i) // 2, codes)


@kernel(APPEND)
def append_v_f32(thread, threads, pointer):
    append(thread, threads, pointer, put_v_f32)


@kernel(APPEND)
def append_v_f16(thread, threads, pointer):
    append(thread, threads, pointer, put_v_f16)


@kernel(APPEND)
def append_v_bf16(thread, threads, pointer):
    append(thread, threads, pointer, put_v_bf16)


@kernel(APPEND)
def append_v_q8_0(thread, threads, pointer):
    append(thread, threads, pointer, put_v_q8_0)


@kernel(APPEND)
def append_v_q4_0(thread, threads, pointer):
    append(thread, threads, pointer, put_v_q4_0)
