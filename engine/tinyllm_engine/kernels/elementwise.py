"""Sums, products and activations, each thread on its own part of every row."""

import math

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, native, record
from tinyllm_engine.kernels.gating import silu
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.kernels.quantize import quantize_block
from tinyllm_engine.simd import (
    add,
    divide,
    exp,
    first_lane,
    fma,
    load_f32,
    load_f32x8,
    load_i64,
    maximum,
    minimum,
    mul,
    splat_f32x8,
    store,
    store_f32,
    sub,
    where_positive,
    zero_f32x8,
)

LIMIT = np.float32(7.0)  # of gate and up in the SwiGLU of gpt-oss

ADD = layout("out", "x", "columns", "count")  # out += x
SCALE = layout("x", "factor:f", "columns", "count")  # x *= factor
CLAMP = layout("x", "limit:f", "columns", "count")  # to -limit .. limit
DIVIDE = layout("x", "divisor", "columns", "count")  # every row by the float32 [columns] at `divisor`
SOFTCAP = layout("x", "cap:f", "columns", "count")  # x = cap * tanh(x / cap); any number of columns

# x *= 1 + factor * ln(1 + floor(position / period)), for every row
TEMPERATURE = layout("x", "factor:f", "period", "columns", "positions", "count")

# out = activation(gate) * up, or activation(gate) alone where there is no up (0)
ACTIVATE = layout("gate", "up", "columns", "count", "out")
ACTIVATE_QUANTIZE = layout("gate", "up", "columns", "codes", "scales", "sums", "half_sums")  # one row

# x > 0: alpha_p x^2 + beta x; else alpha_n (e^min(x, epsilon) - 1 - x) + beta x, in place (arXiv:2411.13010)
XIELU = layout("x", "alpha_n:f", "alpha_p:f", "beta:f", "epsilon:f", "columns", "count")


@inlined
def over_all(thread, threads, a, function):
    """function(a, row, address) for each 8 elements of this thread's part of every row of x."""
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        at = a.x + 4 * row * a.columns
        for k in range(at + 4 * first, at + 4 * last, 32):
            function(a, row, k)


@kernel(ADD)
def add_rows(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        at = 4 * row * a.columns
        for k in range(at + 4 * first, at + 4 * last, 32):
            store(a.out + k, add(load_f32x8(a.out + k), load_f32x8(a.x + k)))


@inlined
def scale8(a, row, x):
    store(x, mul(load_f32x8(x), splat_f32x8(a.factor)))


@kernel(SCALE)
def scale_rows(thread, threads, pointer):
    over_all(thread, threads, record(pointer), scale8)


@inlined
def clamp8(a, row, x):
    store(x, maximum(minimum(load_f32x8(x), splat_f32x8(a.limit)), splat_f32x8(-a.limit)))


@kernel(CLAMP)
def clamp_rows(thread, threads, pointer):
    over_all(thread, threads, record(pointer), clamp8)


@inlined
def divide8(a, row, x):
    column = x - a.x - 4 * row * a.columns
    store(x, divide(load_f32x8(x), load_f32x8(a.divisor + column)))


@kernel(DIVIDE)
def divide_columns(thread, threads, pointer):
    over_all(thread, threads, record(pointer), divide8)


@native
def temperature(factor, position, period):
    return np.float32(1.0 + factor * math.log(1.0 + position // period))


@inlined
def temperature8(a, row, x):
    factor = temperature(a.factor, load_i64(a.positions + 8 * row), a.period)
    store(x, mul(load_f32x8(x), splat_f32x8(factor)))


@kernel(TEMPERATURE)
def temperature_rows(thread, threads, pointer):
    over_all(thread, threads, record(pointer), temperature8)


# --- activations -------------------------------------------------------------------------------------------------


@inlined
def gelu8(x):
    """x (1 + tanh(u)) / 2 = x / (1 + e**-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3), arXiv:1606.08415."""
    one = splat_f32x8(np.float32(1.0))
    slope = fma(mul(x, x), splat_f32x8(np.float32(0.044715)), one)
    twice = mul(mul(x, slope), splat_f32x8(np.float32(-2.0 * math.sqrt(2.0 / math.pi))))
    return divide(x, add(one, exp(twice)))


@inlined
def relu_squared8(x):
    """max(x, 0)^2, arXiv:2109.08668"""
    positive = maximum(x, zero_f32x8())
    return mul(positive, positive)


@inlined
def relu8(x):
    return maximum(x, zero_f32x8())


@inlined
def at_most(x, limit):
    """What is no number stays so."""
    return where_positive(sub(x, limit), limit, x)


@inlined
def limited_silu8(x):
    """x / (1 + e**-1.702x) with x up to 7"""
    x = at_most(x, splat_f32x8(LIMIT))
    steep = mul(x, splat_f32x8(np.float32(-1.702)))
    return divide(x, add(splat_f32x8(np.float32(1.0)), exp(steep)))


@inlined
def times_limited_up(activation, gate, up):
    """Times 1 + up, with up from -7 to 7."""
    zero, limit = zero_f32x8(), splat_f32x8(LIMIT)
    up = at_most(load_f32x8(up), limit)
    up = sub(zero, at_most(sub(zero, up), limit))
    return mul(activation(load_f32x8(gate)), add(up, splat_f32x8(np.float32(1.0))))


@inlined
def times_up(activation, gate, up):
    return mul(activation(load_f32x8(gate)), load_f32x8(up))


@inlined
def alone(activation, gate, up):
    return activation(load_f32x8(gate))


@inlined
def activate(thread, threads, pointer, activation, combine):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        at = 4 * row * a.columns
        for k in range(at + 4 * first, at + 4 * last, 32):
            store(a.out + k, combine(activation, a.gate + k, a.up + k))


@inlined
def activate_quantize(thread, threads, pointer, activation, combine):
    """The codes of the activation of the part this thread has just computed."""
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for k in range(first, last, 32):
        gate, up, block = a.gate + 4 * k, a.up + 4 * k, k // 32
        quantize_block(
            combine(activation, gate, up),
            combine(activation, gate + 32, up + 32),
            combine(activation, gate + 64, up + 64),
            combine(activation, gate + 96, up + 96),
            a.codes + k,
            a.scales + 4 * block,
            a.sums + 4 * block,
            a.half_sums + 8 * block,
        )


@kernel(ACTIVATE)
def swiglu(thread, threads, pointer):
    activate(thread, threads, pointer, silu, times_up)


@kernel(ACTIVATE_QUANTIZE)
def swiglu_quantize(thread, threads, pointer):
    activate_quantize(thread, threads, pointer, silu, times_up)


@kernel(ACTIVATE)
def geglu(thread, threads, pointer):
    activate(thread, threads, pointer, gelu8, times_up)


@kernel(ACTIVATE_QUANTIZE)
def geglu_quantize(thread, threads, pointer):
    activate_quantize(thread, threads, pointer, gelu8, times_up)


@kernel(ACTIVATE)
def reglu(thread, threads, pointer):
    activate(thread, threads, pointer, relu8, times_up)


@kernel(ACTIVATE_QUANTIZE)
def reglu_quantize(thread, threads, pointer):
    activate_quantize(thread, threads, pointer, relu8, times_up)


@kernel(ACTIVATE)
def limited_swiglu(thread, threads, pointer):
    activate(thread, threads, pointer, limited_silu8, times_limited_up)


@kernel(ACTIVATE_QUANTIZE)
def limited_swiglu_quantize(thread, threads, pointer):
    activate_quantize(thread, threads, pointer, limited_silu8, times_limited_up)


@kernel(ACTIVATE)
def gelu(thread, threads, pointer):
    activate(thread, threads, pointer, gelu8, alone)


@kernel(ACTIVATE_QUANTIZE)
def gelu_quantize(thread, threads, pointer):
    activate_quantize(thread, threads, pointer, gelu8, alone)


@kernel(ACTIVATE)
def relu_squared(thread, threads, pointer):
    activate(thread, threads, pointer, relu_squared8, alone)


@kernel(ACTIVATE_QUANTIZE)
def relu_squared_quantize(thread, threads, pointer):
    activate_quantize(thread, threads, pointer, relu_squared8, alone)


@inlined
def xielu8(a, row, at):
    x, one = load_f32x8(at), splat_f32x8(np.float32(1.0))
    rise = mul(mul(x, x), splat_f32x8(a.alpha_p))
    bend = mul(sub(sub(exp(minimum(x, splat_f32x8(a.epsilon))), one), x), splat_f32x8(a.alpha_n))
    store(at, fma(x, splat_f32x8(a.beta), where_positive(x, rise, bend)))


@kernel(XIELU)
def xielu(thread, threads, pointer):
    over_all(thread, threads, record(pointer), xielu8)


# --- logits ------------------------------------------------------------------------------------------------------


@inlined
def softcap8(x, cap):
    """cap * tanh(x / cap), and not a number where x is none: tanh(y) = 1 - 2 / (e**2y + 1)"""
    one, two = splat_f32x8(np.float32(1.0)), splat_f32x8(np.float32(2.0))
    tanh = sub(one, divide(two, add(exp(mul(x, splat_f32x8(np.float32(2.0) / cap))), one)))
    return fma(tanh, splat_f32x8(cap), mul(x, zero_f32x8()))


@kernel(SOFTCAP)
def softcap_rows(thread, threads, pointer):
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    whole = first + (last - first) // 8 * 8
    for row in range(load_i64(a.count)):
        at = a.x + 4 * row * a.columns
        for k in range(at + 4 * first, at + 4 * whole, 32):
            store(k, softcap8(load_f32x8(k), a.cap))
        for k in range(at + 4 * whole, at + 4 * last, 4):
            store_f32(k, first_lane(softcap8(splat_f32x8(load_f32(k)), a.cap)))
