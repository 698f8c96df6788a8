"""The values step of attention for each type of V: a page's weighted values are folded into those of 1 to 4 queries.

V lies key by key, [64][size]; where it is quantized, f16 scales [size / 32][64] follow its codes, and a key's weight is
multiplied with its scale, block by block, instead of its codes. Each element is summed key by key, whatever the number
of queries.

weights: float32 [4][64], with room for as many behind them; ahead: see cached_keys
"""

from tinyllm_engine.jit import inlined, native, shared, step
from tinyllm_engine.kernels.cached_blocks import BLOCK
from tinyllm_engine.simd import (
    fma,
    load_bf16x8,
    load_f16x8,
    load_f32x8,
    load_i8x8,
    load_signed_nibbles,
    mul,
    prefetch,
    splat_at_f32x8,
    store,
    zero_f32x8,
)

PAGE = 64
# What is known of a query: the maximum of its scores, the sum of its weights, and the two factors by which the last
# merge scales the values so far and the new ones. float32, in this order.
STATE = 16
KEEP, TAKE = 8, 12


@inlined
def merge_values(out, values, state):
    """Folds 8 new values into those so far, by the factors of the query's state."""
    kept = mul(load_f32x8(out), splat_at_f32x8(state + KEEP))
    store(out, fma(values, splat_at_f32x8(state + TAKE), kept))


@inlined
def merge4(out, a, b, c, d, state):
    merge_values(out, a, state)
    merge_values(out + 32, b, state)
    merge_values(out + 64, c, state)
    merge_values(out + 96, d, state)


# --- weights of a block: as they are, or times the keys' scales ------------------------------------------------------


@inlined
def plain_weights(count, weights, scales, i):
    return weights


@inlined
def scaled_weights(count, weights, scales, i):
    """Those of the block that holds element `i`, made where it begins."""
    out = weights + 16 * PAGE
    if i % BLOCK == 0:
        for key in range(0, PAGE, 8):
            scale = load_f16x8(scales + 2 * (i // BLOCK * PAGE + key))
            for t in range(count):
                at = 4 * (t * PAGE + key)
                store(out + at, mul(load_f32x8(weights + at), scale))
    return out


# --- 1, 3 and 4 queries ----------------------------------------------------------------------------------------------


@shared
def values3(weights, values, scales, keys, size, load16, unit, weights_of, states, out, ahead):
    """unit: bytes of 16 elements; load16 makes two vectors of them"""
    stride, row_bytes = 4 * size, size * unit // 16
    for i in range(0, size // 32 * 32, 32):
        w, first = weights_of(3, weights, scales, i), values + i * unit // 16
        a0, a1, a2, a3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        b0, b1, b2, b3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        c0, c1, c2, c3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for key in range(keys):
            at, each = first + key * row_bytes, w + 4 * key
            prefetch(ahead + 2 * unit * (key + 2 * i))
            a, b, c = splat_at_f32x8(each), splat_at_f32x8(each + 4 * PAGE), splat_at_f32x8(each + 8 * PAGE)
            u, v = load16(at)
            a0, b0, c0 = fma(u, a, a0), fma(u, b, b0), fma(u, c, c0)
            a1, b1, c1 = fma(v, a, a1), fma(v, b, b1), fma(v, c, c1)
            u, v = load16(at + unit)
            a2, b2, c2 = fma(u, a, a2), fma(u, b, b2), fma(u, c, c2)
            a3, b3, c3 = fma(v, a, a3), fma(v, b, b3), fma(v, c, c3)
        merge4(out + 4 * i, a0, a1, a2, a3, states)
        merge4(out + 4 * i + stride, b0, b1, b2, b3, states + STATE)
        merge4(out + 4 * i + 2 * stride, c0, c1, c2, c3, states + 2 * STATE)


@shared
def values4(weights, values, scales, keys, size, load16, unit, weights_of, states, out, ahead):
    stride, row_bytes = 4 * size, size * unit // 16
    for i in range(0, size // 16 * 16, 16):
        w, first = weights_of(4, weights, scales, i), values + i * unit // 16
        a0, a1, b0, b1 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        c0, c1, d0, d1 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for key in range(keys):
            at, each = first + key * row_bytes, w + 4 * key
            prefetch(ahead + 2 * unit * (key + 4 * i))
            u, v = load16(at)
            x = splat_at_f32x8(each)
            a0, a1 = fma(u, x, a0), fma(v, x, a1)
            x = splat_at_f32x8(each + 4 * PAGE)
            b0, b1 = fma(u, x, b0), fma(v, x, b1)
            x = splat_at_f32x8(each + 8 * PAGE)
            c0, c1 = fma(u, x, c0), fma(v, x, c1)
            x = splat_at_f32x8(each + 12 * PAGE)
            d0, d1 = fma(u, x, d0), fma(v, x, d1)
        o = out + 4 * i
        merge_values(o, a0, states)
        merge_values(o + 32, a1, states)
        merge_values(o + stride, b0, states + STATE)
        merge_values(o + stride + 32, b1, states + STATE)
        merge_values(o + 2 * stride, c0, states + 2 * STATE)
        merge_values(o + 2 * stride + 32, c1, states + 2 * STATE)
        merge_values(o + 3 * stride, d0, states + 3 * STATE)
        merge_values(o + 3 * stride + 32, d1, states + 3 * STATE)


@shared
def values1(weights, values, scales, keys, size, load16, unit, weights_of, states, out, ahead):
    row_bytes = size * unit // 16
    for i in range(0, size // 16 * 16, 16):
        w, first = weights_of(1, weights, scales, i), values + i * unit // 16
        a0, a1 = zero_f32x8(), zero_f32x8()
        for key in range(keys):
            prefetch(ahead + 2 * unit * (key + 4 * i))
            u, v = load16(first + key * row_bytes)
            x = splat_at_f32x8(w + 4 * key)
            a0, a1 = fma(u, x, a0), fma(v, x, a1)
        merge_values(out + 4 * i, a0, states)
        merge_values(out + 4 * i + 32, a1, states)


@shared
def fold_values(count, weights, values, scales, keys, size, states, out, ahead, load16, unit, weights_of):
    if count == 1:
        values1(weights, values, scales, keys, size, load16, unit, weights_of, states, out, ahead)
    elif count < 4:
        values3(weights, values, scales, keys, size, load16, unit, weights_of, states, out, ahead)
    else:
        values4(weights, values, scales, keys, size, load16, unit, weights_of, states, out, ahead)


@native
def values8(weights, values, keys, size, i, load8, element_bytes, state, out):
    """The 8 elements from `i` on, for one query."""
    total = zero_f32x8()
    for key in range(keys):
        total = fma(load8(values + (key * size + i) * element_bytes), splat_at_f32x8(weights + 4 * key), total)
    merge_values(out + 4 * i, total, state)


@shared
def values_of_floats(count, weights, values, keys, size, states, out, ahead, load16, load8, element_bytes):
    """Any multiple of 8 elements."""
    fold_values(count, weights, values, 0, keys, size, states, out, ahead, load16, 16 * element_bytes, plain_weights)
    # what is left of a row when the above has taken its 32 or 16 elements at a time
    for i in range(size // 32 * 32 if 1 < count < 4 else size // 16 * 16, size, 8):
        for t in range(count):
            at, state = 4 * t * PAGE, states + t * STATE
            values8(weights + at, values, keys, size, i, load8, element_bytes, state, out + 4 * t * size)


@shared
def values_of_codes(count, weights, values, keys, size, states, out, ahead, load16, unit):
    """Multiples of 32 elements."""
    scales = values + PAGE * size // 16 * unit
    fold_values(count, weights, values, scales, keys, size, states, out, ahead, load16, unit, scaled_weights)


# --- types -----------------------------------------------------------------------------------------------------------


@inlined
def load_f32x16(at):
    return load_f32x8(at), load_f32x8(at + 32)


@inlined
def load_f16x16(at):
    return load_f16x8(at), load_f16x8(at + 16)


@inlined
def load_bf16x16(at):
    return load_bf16x8(at), load_bf16x8(at + 16)


@inlined
def load_i8x16_as_floats(at):
    return load_i8x8(at), load_i8x8(at + 8)


@step
def values_f32(count, weights, values, keys, size, states, out, ahead):
    values_of_floats(count, weights, values, keys, size, states, out, ahead, load_f32x16, load_f32x8, 4)


@step
def values_f16(count, weights, values, keys, size, states, out, ahead):
    values_of_floats(count, weights, values, keys, size, states, out, ahead, load_f16x16, load_f16x8, 2)


@step
def values_bf16(count, weights, values, keys, size, states, out, ahead):
    values_of_floats(count, weights, values, keys, size, states, out, ahead, load_bf16x16, load_bf16x8, 2)


@step
def values_q8_0(count, weights, values, keys, size, states, out, ahead):
    values_of_codes(count, weights, values, keys, size, states, out, ahead, load_i8x16_as_floats, 16)


@step
def values_q4_0(count, weights, values, keys, size, states, out, ahead):
    values_of_codes(count, weights, values, keys, size, states, out, ahead, load_signed_nibbles, 8)


# --- pages unpacked once for many queries ----------------------------------------------------------------------------


@inlined
def unpack(source, count, out, load8):
    for i in range(0, count, 8):
        store(out + 4 * i, load8(source + 2 * i))


@step
def unpack_f16(source, count, out):
    """`count` numbers as float32."""
    unpack(source, count, out, load_f16x8)


@step
def unpack_bf16(source, count, out):
    unpack(source, count, out, load_bf16x8)
