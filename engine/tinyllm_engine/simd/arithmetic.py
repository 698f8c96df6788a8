"""Arithmetic on float32 and int32 lanes."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tinyllm_engine.simd.target import (
    F32,
    F32X8,
    F64,
    F64X8,
    I8,
    I32,
    I32X8,
    I64,
    TARGET,
    Vec,
    call,
    lanes_of,
    llvm_type,
    operation,
    pointer,
    spread,
)


def _binary(name, float_op, int_op):
    def emit(typingctx, a, b):
        def codegen(context, builder, signature, args):
            floating = signature.return_type.element in ("f32", "f64")
            return getattr(builder, float_op if floating else int_op)(*args)

        return a(a, a), codegen

    emit.__name__ = emit.__qualname__ = name
    return intrinsic(emit)


add, sub, mul = _binary("add", "fadd", "add"), _binary("sub", "fsub", "sub"), _binary("mul", "fmul", "mul")
bit_or, bit_xor = (_binary(n, n, n) for n in ("or_", "xor"))


def _float_call(name, llvm_name, arity):
    def codegen(context, builder, signature, args):
        suffix = f"v{signature.return_type.lanes}f32"
        return call(builder, f"{llvm_name}.{suffix}", args[0].type, *args)

    emit = {
        2: lambda typingctx, a, b: (a(a, a), codegen),
        3: lambda typingctx, a, b, c: (a(a, a, a), codegen),
    }[arity]
    emit.__name__ = emit.__qualname__ = name
    return intrinsic(emit)


fma = _float_call("fma", "llvm.fma", 3)  # fma(a, b, c) = a * b + c, rounded once
maximum = _float_call("maximum", "llvm.maxnum", 2)
minimum = _float_call("minimum", "llvm.minnum", 2)


@intrinsic
def to_f32(typingctx, vector):
    """int32 lanes -> float32 lanes."""
    result = Vec("f32", vector.lanes)

    def codegen(context, builder, signature, args):
        return builder.sitofp(args[0], llvm_type(result))

    return result(vector), codegen


@operation(I32X8, I32X8, types.intp, types.intp)
def bits_of(builder, words, first, count):
    """`count` bits of each word, from bit `first` on."""
    mask = builder.sub(builder.shl(I64(1), count), I64(1))
    shifted = builder.lshr(words, spread(builder, builder.trunc(first, I32), 8))
    return builder.and_(shifted, spread(builder, builder.trunc(mask, I32), 8))


@operation(I32X8, I32X8, types.intp)
def signed_byte_of(builder, words, index):
    """Byte `index` of each word, as int8."""
    index = builder.trunc(index, I32)
    up = builder.shl(words, spread(builder, builder.sub(I32(24), builder.shl(index, I32(3))), 8))
    return builder.ashr(up, spread(builder, I32(24), 8))


@operation(I32X8, I32X8, types.intp)
def shift_left(builder, words, count):
    return builder.shl(words, spread(builder, builder.trunc(count, I32), 8))


@intrinsic
def horizontal_sum(typingctx, vector):
    """Sum of all lanes, pairwise in a fixed order (the same bits on every target)."""

    def codegen(context, builder, signature, args):
        value, lanes = args[0], signature.args[0].lanes
        combine = builder.add if signature.args[0].element == "i32" else builder.fadd
        while lanes > 1:
            lanes //= 2
            low = lanes_of(builder, value, range(lanes))
            high = lanes_of(builder, value, range(lanes, 2 * lanes))
            value = combine(low, high)
        return builder.extract_element(value, I32(0))

    return {"f32": types.float32, "f64": types.float64, "i32": types.int32}[vector.element](vector), codegen


@intrinsic
def horizontal_max(typingctx, vector):
    def codegen(context, builder, signature, args):
        value, lanes = args[0], signature.args[0].lanes
        while lanes > 1:
            lanes //= 2
            low = lanes_of(builder, value, range(lanes))
            high = lanes_of(builder, value, range(lanes, 2 * lanes))
            value = call(builder, f"llvm.maxnum.v{lanes}f32", low.type, low, high)
        return builder.extract_element(value, I32(0))

    return types.float32(vector), codegen


def _butterfly(distance):
    def emit(builder, vector):
        first = [lane & ~distance for lane in range(8)]
        second = [lane | distance for lane in range(8)]
        signs = ir.Constant(vector.type, [-1.0 if lane & distance else 1.0 for lane in range(8)])
        return builder.fadd(lanes_of(builder, vector, first), builder.fmul(lanes_of(builder, vector, second), signs))

    emit.__name__ = f"butterfly{distance}"
    return operation(F32X8, F32X8)(emit)


# Lanes i and i + distance become their sum and their difference.
butterfly1, butterfly2, butterfly4 = (_butterfly(distance) for distance in (1, 2, 4))


@operation(types.float32, F32X8, F32X8, F32X8, F32X8)
def largest_magnitude(builder, a, b, c, d):
    """The largest |x| of 32 numbers; not a number if one of them is none: as integers those are above infinity."""
    word = ir.VectorType(I32, 8)
    magnitudes = ir.Constant(word, [0x7FFFFFFF] * 8)

    def larger(x, y):
        return builder.select(builder.icmp_signed(">", x, y), x, y)

    a, b, c, d = (builder.and_(builder.bitcast(vector, word), magnitudes) for vector in (a, b, c, d))
    value = larger(larger(a, b), larger(c, d))
    for lanes in (4, 2, 1):
        value = larger(lanes_of(builder, value, range(lanes)), lanes_of(builder, value, range(lanes, 2 * lanes)))
    return builder.bitcast(builder.extract_element(value, I32(0)), F32)


@operation(I32X8, F32X8)
def round_to_int(builder, vector):
    """Nearest integer, ties to even (in range by contract)."""
    if TARGET == "portable":
        # Without AVX, LLVM would make one instruction of a load and the conversion, which only takes aligned addresses.
        vector = builder.fadd(vector, ir.Constant(vector.type, [0.0] * 8))
    rounded = call(builder, "llvm.rint.v8f32", vector.type, vector)
    return builder.fptosi(rounded, llvm_type(I32X8))


@operation(types.none, types.intp, I32X8)
def store_as_i8(builder, address, vector):
    narrow = ir.VectorType(I8, 8)
    builder.store(builder.trunc(vector, narrow), pointer(builder, address, narrow), align=1)


def _exponential(builder, x, lanes):
    """e**x by x = n ln2 + r, |r| <= ln2 / 2: a degree-6 polynomial in r (Cephes' coefficients), scaled by 2**n."""
    wide, word = ir.VectorType(F32, lanes), ir.VectorType(I32, lanes)

    def constant(value):
        return ir.Constant(wide, [float(np.float32(value))] * lanes)

    def fused(a, b, c):
        return call(builder, f"llvm.fma.v{lanes}f32", wide, a, b, c)

    x = call(builder, f"llvm.maxnum.v{lanes}f32", wide, x, constant(-87.33654))
    x = call(builder, f"llvm.minnum.v{lanes}f32", wide, x, constant(88.37626))
    n = call(builder, f"llvm.rint.v{lanes}f32", wide, builder.fmul(x, constant(1.44269504088896341)))
    r = fused(n, constant(-0.693359375), x)
    r = fused(n, constant(2.12194440e-4), r)
    p = constant(1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fused(p, r, constant(coefficient))
    p = builder.fadd(fused(builder.fmul(r, r), p, r), constant(1.0))
    exponent = builder.add(builder.fptosi(n, word), ir.Constant(word, [127] * lanes))
    scale = builder.bitcast(builder.shl(exponent, ir.Constant(word, [23] * lanes)), wide)
    vanishes = builder.fcmp_ordered("<=", x, constant(-87.33654))
    return builder.select(vanishes, constant(0.0), builder.fmul(p, scale))


@operation(F32X8, F32X8)
def exp(builder, vector):
    """e**x to about 1 unit in the last place; 0 where that would not be a normal number."""
    return _exponential(builder, vector, 8)


def _exponential_below_1(builder, x, element, word, lowest, rounder, coefficients):
    """e**x of x <= 0 without a minimum, a conversion or a table; 0 for all x up to `lowest` and what is no number.

    x = n ln2 + r as above, but n is rounded by adding a number whose last bit is worth 1: the low bits of the sum are
    n, ready to be added to the exponent of the polynomial, which interpolates e**r at Chebyshev's nodes.
    """
    lanes = x.type.count
    digits = {F32: 23, F64: 52}[element]
    wide, whole = ir.VectorType(element, lanes), ir.VectorType(word, lanes)

    def constant(value):
        return ir.Constant(wide, [float(np.float32(value)) if element is F32 else value] * lanes)

    def fused(a, b, c):
        return call(builder, f"llvm.fma.v{lanes}f{word.width}", wide, a, b, c)

    shifted = fused(x, constant(1.4426950408889634), constant(rounder))
    n = builder.fsub(shifted, constant(rounder))
    r = fused(n, constant(-0.6931471805599453), x)
    p = constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        p = fused(p, r, constant(coefficient))
    exponent = builder.shl(builder.bitcast(shifted, whole), ir.Constant(whole, [digits] * lanes))
    power = builder.bitcast(builder.add(builder.bitcast(p, whole), exponent), wide)
    return builder.select(builder.fcmp_ordered(">", x, constant(lowest)), power, constant(0.0))


def _folded(builder, vector):
    """Sums of the lanes modulo 8."""
    lanes = vector.type.count
    while lanes > 8:
        lanes //= 2
        low, high = lanes_of(builder, vector, range(lanes)), lanes_of(builder, vector, range(lanes, 2 * lanes))
        vector = builder.fadd(low, high)
    return vector


def _exponential_f32(builder, x):
    coefficients = (1.0, 1.00000001077157, 0.499988693783, 0.166665052604, 0.0419175072496, 0.0083691484909)
    return _exponential_below_1(builder, x, F32, I32, -87.0, 1.5 * 2.0**23, coefficients)


@operation(F32X8, F32X8)
def exp_of_negative(builder, vector):
    """e**x of x <= 0 to 3e-7, in half the time of `exp`; 0 up to -87."""
    return _exponential_f32(builder, vector)


# Several vectors at a time: one by one, each would wait for its own multiplications.


@operation(F32X8, types.intp, types.float32)
def sum_exp_f32x16(builder, address, highest):
    """e**(x - highest) of 16 floats, each lane the sum of two, to 2e-7; no x is above highest."""
    x = builder.load(pointer(builder, address, ir.VectorType(F32, 16)), align=1)
    return _folded(builder, _exponential_f32(builder, builder.fsub(x, spread(builder, highest, 16))))


@operation(F64X8, types.intp, types.float64, types.float64)
def sum_exp_f64x16(builder, address, highest, scale):
    """e**((x - highest) * scale) of 16 floats in double precision, to 1e-13 of it, each lane the sum of two."""
    coefficients = (
        1.0,
        1.0000000000000013,
        0.4999999999943859,
        0.16666666666615654,
        0.04166666704055194,
        0.008333333367309745,
        0.00138888017496473,
        0.0001984119064959513,
        2.4884459756805625e-05,
        2.763263992532932e-06,
    )
    x = builder.load(pointer(builder, address, ir.VectorType(F32, 16)), align=1)
    x = builder.fsub(builder.fpext(x, ir.VectorType(F64, 16)), spread(builder, highest, 16))
    x = builder.fmul(x, spread(builder, scale, 16))
    return _folded(builder, _exponential_below_1(builder, x, F64, I64, -700.0, 1.5 * 2.0**52, coefficients))


@operation(F32X8, F32X8, types.int64)
def keep_first(builder, vector, count):
    """The first `count` lanes; minus infinity in the others."""
    lane = ir.Constant(ir.VectorType(I64, 8), list(range(8)))
    inside = builder.icmp_signed("<", lane, spread(builder, count, 8))
    return builder.select(inside, vector, ir.Constant(vector.type, [float("-inf")] * 8))


@operation(F32X8, F32X8, F32X8, F32X8)
def where_positive(builder, x, yes, no):
    """The lanes of `yes` where x > 0; those of `no` elsewhere, also where x is not a number."""
    zero = ir.Constant(x.type, [0.0] * 8)
    return builder.select(builder.fcmp_ordered(">", x, zero), yes, no)


@operation(types.float32, F32X8)
def first_lane(builder, vector):
    return builder.extract_element(vector, I32(0))


@operation(F32X8, F32X8, F32X8)
def divide(builder, a, b):
    return builder.fdiv(a, b)
