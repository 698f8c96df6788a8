"""Token embeddings: one stored row becomes floats; and the choice of rows that go on to the output."""

from tinyllm_engine.jit import kernel, layout, record, shared
from tinyllm_engine.kernels import unpack as u
from tinyllm_engine.kernels import unpack_grids as g
from tinyllm_engine.kernels.scales import as_f32, first_half, second_half
from tinyllm_engine.simd import (
    first_codes,
    fma,
    fourth_codes,
    load_bf16x8,
    load_f16x8,
    load_f32x8,
    load_f64x8,
    load_i64,
    second_codes,
    splat_f32x8,
    store,
    third_codes,
)

# out[row] = weights[token of row]
EMBED = layout("weights", "row_bytes", "columns", "tokens", "count", "out")

# out[i] = x[first + i], for the rows whose logits are wanted
SELECT_ROWS = layout("x", "columns", "first", "count", "out")


@shared
def embed(thread, threads, pointer, unpack, bias, block_bytes, in_block):
    """Threads take turns by batch row."""
    a = record(pointer)
    for row in range(thread, load_i64(a.count), threads):
        stored = a.weights + load_i64(a.tokens + 8 * row) * a.row_bytes
        out = a.out + 4 * row * a.columns
        for part in range(a.columns // 32):
            codes, scale, minimum = unpack(stored + part // in_block * block_bytes, part % in_block)
            at = out + 128 * part
            s, m = as_f32(first_half(scale)), as_f32(first_half(minimum))
            factor, offset = splat_f32x8(s), splat_f32x8(m - bias * s)
            store(at, fma(first_codes(codes), factor, offset))
            store(at + 32, fma(second_codes(codes), factor, offset))
            s, m = as_f32(second_half(scale)), as_f32(second_half(minimum))
            factor, offset = splat_f32x8(s), splat_f32x8(m - bias * s)
            store(at + 64, fma(third_codes(codes), factor, offset))
            store(at + 96, fma(fourth_codes(codes), factor, offset))


@shared
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
def embed_f64(thread, threads, pointer):
    embed_float(thread, threads, pointer, load_f64x8, 8)


@kernel(EMBED)
def embed_q4_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q4_0, u.BIAS_Q4_0, 18, 1)


@kernel(EMBED)
def embed_q4_1(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q4_1, u.NO_BIAS, 20, 1)


@kernel(EMBED)
def embed_q5_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q5_0, u.BIAS_Q5_0, 22, 1)


@kernel(EMBED)
def embed_q5_1(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q5_1, u.NO_BIAS, 24, 1)


@kernel(EMBED)
def embed_q8_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q8_0, u.BIAS_Q8_0, 34, 1)


@kernel(EMBED)
def embed_q4_k(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q4_k, u.NO_BIAS, 144, 8)


@kernel(EMBED)
def embed_q6_k(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q6_k, u.BIAS_Q6_K, 210, 8)


@kernel(EMBED)
def embed_q2_k(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q2_k, u.NO_BIAS, 84, 8)


@kernel(EMBED)
def embed_q3_k(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q3_k, u.BIAS_Q3_K, 110, 8)


@kernel(EMBED)
def embed_q5_k(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q5_k, u.NO_BIAS, 176, 8)


@kernel(EMBED)
def embed_iq1_s(thread, threads, pointer):
    embed(thread, threads, pointer, g.unpack_iq1_s, u.NO_BIAS, 50, 8)


@kernel(EMBED)
def embed_iq1_m(thread, threads, pointer):
    embed(thread, threads, pointer, g.unpack_iq1_m, g.BIAS_IQ1_M, 56, 8)


@kernel(EMBED)
def embed_iq2_xxs(thread, threads, pointer):
    embed(thread, threads, pointer, g.unpack_iq2_xxs, g.BIAS_IQ2, 66, 8)


@kernel(EMBED)
def embed_iq2_xs(thread, threads, pointer):
    embed(thread, threads, pointer, g.unpack_iq2_xs, g.BIAS_IQ2, 74, 8)


@kernel(EMBED)
def embed_iq2_s(thread, threads, pointer):
    embed(thread, threads, pointer, g.unpack_iq2_s, g.BIAS_IQ2, 82, 8)


@kernel(EMBED)
def embed_iq3_xxs(thread, threads, pointer):
    embed(thread, threads, pointer, g.unpack_iq3_xxs, g.BIAS_IQ3_XXS, 98, 8)


@kernel(EMBED)
def embed_iq3_s(thread, threads, pointer):
    embed(thread, threads, pointer, g.unpack_iq3_s, g.BIAS_IQ3_S, 110, 8)


@kernel(EMBED)
def embed_iq4_nl(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_iq4_nl, u.BIAS_IQ4, 18, 1)


@kernel(EMBED)
def embed_iq4_xs(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_iq4_xs, u.BIAS_IQ4, 136, 8)


@kernel(EMBED)
def embed_mxfp4(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_mxfp4, u.BIAS_FP4, 17, 1)


@kernel(EMBED)
def embed_nvfp4(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_nvfp4, u.BIAS_FP4, 36, 2)


@kernel(EMBED)
def embed_tq1_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_tq1_0, u.BIAS_TERNARY, 54, 8)


@kernel(EMBED)
def embed_tq2_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_tq2_0, u.BIAS_TERNARY, 66, 8)


@kernel(EMBED)
def embed_q1_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q1_0, u.BIAS_TERNARY, 18, 4)


@kernel(EMBED)
def embed_q2_0(thread, threads, pointer):
    embed(thread, threads, pointer, u.unpack_q2_0, u.BIAS_TERNARY, 18, 2)
