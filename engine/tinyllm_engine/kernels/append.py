"""New keys and values, written into the pages of the cache in the type they stay in (`cached_types` has the pages)."""

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, native, record, shared
from tinyllm_engine.kernels.cached_blocks import BLOCK, quantize_q4_0, quantize_q8_0, turned
from tinyllm_engine.simd import (
    add,
    bit_or,
    horizontal_max,
    load_f16,
    load_f16x8,
    load_f32,
    load_f32x8,
    load_i64,
    maximum,
    minimum,
    mul,
    round_to_int,
    scatter_words,
    shift_left,
    splat_f32x8,
    store,
    store_bf16,
    store_bf16x8,
    store_f16x8,
    store_f32,
    store_half,
    store_nibbles_by_eights,
    sub,
    zero_f32x8,
    zero_i32x8,
)

# Writes one row of K or of V per batch row into the pages of its sequence
APPEND = layout(
    "x",  # float32 [count, heads, size]
    "heads",
    "size",  # elements of a head
    "pages",
    "page_bytes",
    "exact",  # the pages' exact parts, for types that have them
    "exact_bytes",
    "positions",
    "tables",  # address of the page tables' addresses, one a row
    "count",
)
PAGE = 64  # rows
Q4_STEPS, Q4_MIDDLE = np.float32(15.0), np.float32(8.0)


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


@shared
def append_exact(thread, threads, pointer, put, close):
    """Writes into the exact parts of pages; the last row of a page closes it."""
    a = record(pointer)
    head_bytes, exact_bytes = a.page_bytes // a.heads, a.exact_bytes // a.heads
    for row in range(load_i64(a.count)):
        position = load_i64(a.positions + 8 * row)
        number = load_i64(load_i64(a.tables + 8 * row) + 8 * (position // PAGE))
        page, exact = a.pages + number * a.page_bytes, a.exact + number * a.exact_bytes
        for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
            part = exact + head * exact_bytes
            put(a.x + 4 * (row * a.heads + head) * a.size, part, position % PAGE, a.size)
            if position % PAGE == PAGE - 1:
                close(part, page + head * head_bytes, a.size)


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
def put_range(numbers, scale, middle):
    """The scale and the middle of 64 numbers f16, to their places as f16."""
    low = high = load_f16x8(numbers)
    for i in range(16, 2 * PAGE, 16):
        x = load_f16x8(numbers + i)
        low, high = minimum(low, x), maximum(high, x)
    lowest = -horizontal_max(sub(zero_f32x8(), low))
    store_half(scale, (horizontal_max(high) - lowest) / Q4_STEPS)
    store_half(middle, lowest + Q4_MIDDLE * load_f16(scale))


@inlined
def codes_of_eight(numbers, scale, middle):
    """Codes 0..15 of 8 numbers f16."""
    kept = load_f16(scale)
    inverse = np.float32(1.0) / kept if kept != 0 else np.float32(0.0)
    places = mul(sub(load_f16x8(numbers), splat_f32x8(load_f16(middle))), splat_f32x8(inverse))
    places = add(places, splat_f32x8(Q4_MIDDLE))
    return round_to_int(minimum(maximum(places, zero_f32x8()), splat_f32x8(Q4_STEPS)))


@native
def close_k_q4_0(exact, page, size):
    """Each element has a scale and a middle of its own for all keys of the page; codes are stored as 0..15."""
    scales = page + PAGE * size // 2
    middles = scales + 2 * size
    for i in range(size):
        put_range(exact + 2 * i * PAGE, scales + 2 * i, middles + 2 * i)
    for i in range(0, size, 8):
        for key in range(0, PAGE, 8):
            words = zero_i32x8()
            for element in range(8):
                at = i + element
                codes = codes_of_eight(exact + 2 * (at * PAGE + key), scales + 2 * at, middles + 2 * at)
                words = bit_or(words, shift_left(codes, element % 4 * 8 + element // 4 * 4))
            store(page + (i // 8 * PAGE + key) * 4, words)


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
    append_exact(thread, threads, pointer, put_k_f16, close_k_q4_0)


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
def put_v_turned(row, page, slot, size):
    for i in range(0, size, BLOCK):
        out = page + 2 * (slot * size + i)
        a, b, c, d = turned(row + 4 * i)
        store_f16x8(out, a)
        store_f16x8(out + 16, b)
        store_f16x8(out + 32, c)
        store_f16x8(out + 48, d)


@native
def close_v_q4_0(exact, page, size):
    """Codes are stored as they are, -8..7."""
    scales = page + PAGE * size // 2
    for slot in range(PAGE):
        for i in range(0, size, BLOCK):
            at = exact + 2 * (slot * size + i)
            a, b, c, d = load_f16x8(at), load_f16x8(at + 16), load_f16x8(at + 32), load_f16x8(at + 48)
            codes = quantize_q4_0(a, b, c, d, scales + 2 * (i // BLOCK * PAGE + slot))
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
    append_exact(thread, threads, pointer, put_v_turned, close_v_q4_0)
