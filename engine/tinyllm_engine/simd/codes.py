"""Codes of quantized weights: unpacking them, and integer dot products."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tinyllm_engine.simd.target import (
    F32,
    F32X8,
    I1,
    I8,
    I8X16,
    I8X32,
    I16,
    I32,
    I32W,
    I32X8,
    NARROW,
    ROW_PRODUCTS,
    TARGET,
    VNNI,
    call,
    joined,
    lanes_of,
    llvm_type,
    operation,
    pointer,
    spread,
)


@operation(I8X32, I8X16)
def nibbles(builder, packed):
    """16 bytes -> 32 codes 0..15: the low nibbles first, then the high ones."""
    four, fifteen = (ir.Constant(packed.type, [n] * 16) for n in (4, 15))
    return joined(builder, builder.and_(packed, fifteen), builder.lshr(packed, four))


@operation(I8X32, types.uint32)
def bits_to_bytes(builder, word):
    """Bit i of the word -> 0x00 or 0xFF in byte i."""
    codes = llvm_type(I8X32)
    if TARGET == "avx512":  # has masks of bits
        return builder.sext(builder.bitcast(word, ir.VectorType(I1, 32)), codes)
    spread_bytes = lanes_of(builder, builder.bitcast(word, ir.VectorType(I8, 4)), [lane // 8 for lane in range(32)])
    bit = ir.Constant(codes, [1 << lane % 8 for lane in range(32)])
    return builder.sext(builder.icmp_unsigned("==", builder.and_(spread_bytes, bit), bit), codes)


@operation(I8X32, types.intp, types.intp)
def load_two_i8x16(builder, first, second):
    """16 bytes of one row in the low half, 16 bytes of another in the high half."""
    half = llvm_type(I8X16)
    rows = (builder.load(pointer(builder, address, half), align=1) for address in (first, second))
    return joined(builder, *rows)


@operation(I8X32, types.intp)
def load_i8x16_twice(builder, address):
    """The same 16 bytes in both halves."""
    half = builder.load(pointer(builder, address, llvm_type(I8X16)), align=1)
    return joined(builder, half, half)


def _constant_op(name, op):
    def emit(builder, vector, value):
        return getattr(builder, op)(vector, spread(builder, value, 32))

    emit.__name__ = name
    return operation(I8X32, I8X32, types.int8)(emit)


and_byte, xor_byte, subtract_byte = (
    _constant_op(n, op) for n, op in (("and_byte", "and_"), ("xor_byte", "xor"), ("subtract_byte", "sub"))
)


@operation(I8X32, I8X32, types.int8)
def shift_right_words(builder, vector, count):
    """Processors shift words, not bytes: bits of the neighbour come along, and the caller masks them away."""
    words = builder.bitcast(vector, ir.VectorType(I16, 16))
    return builder.bitcast(builder.lshr(words, spread(builder, builder.zext(count, I16), 16)), vector.type)


@operation(I8X32, I8X32, types.intp)
def shift_words(builder, vector, count):
    """To the left, or to the right by -count."""
    count, none = builder.trunc(count, I16), I16(0)
    backwards = builder.icmp_signed("<", count, none)
    left, right = builder.select(backwards, none, count), builder.select(backwards, builder.neg(count), none)
    words = builder.shl(builder.bitcast(vector, ir.VectorType(I16, 16)), spread(builder, left, 16))
    return builder.bitcast(builder.lshr(words, spread(builder, right, 16)), vector.type)


@operation(I8X32, I8X16, I8X16)
def join_i8x16(builder, low, high):
    return joined(builder, low, high)


@operation(types.none, types.intp, types.intp, I8X32)
def scatter_words(builder, address, stride, codes):
    """Writes the eight 4-byte groups of a block `stride` bytes apart: a row becomes a column of a panel."""
    words = builder.bitcast(codes, ir.VectorType(I32, 8))
    for group in range(8):
        builder.store(builder.extract_element(words, I32(group)), pointer(builder, address, I32), align=4)
        address = builder.add(address, stride)


@operation(types.none, types.intp, types.intp, F32X8)
def transpose_store(builder, address, stride, vector):
    """Writes the eight lanes `stride` bytes apart."""
    for lane in range(8):
        builder.store(builder.extract_element(vector, I32(lane)), pointer(builder, address, F32), align=4)
        address = builder.add(address, stride)


@operation(I8X32, I32X8, I32X8, I32X8, I32X8)
def join_i32x8(builder, a, b, c, d):
    """32 integers as bytes."""
    a, b, c, d = (builder.trunc(words, ir.VectorType(I8, 8)) for words in (a, b, c, d))
    return joined(builder, joined(builder, a, b), joined(builder, c, d))


def _packed(builder, codes, low, high):
    """16 bytes: the bytes `low` in the low nibbles, `high` in the high ones; bits beyond a nibble are dropped."""
    half = ir.VectorType(I8, 16)
    four, fifteen = (ir.Constant(half, [n] * 16) for n in (4, 15))
    return builder.or_(
        builder.and_(lanes_of(builder, codes, low), fifteen), builder.shl(lanes_of(builder, codes, high), four)
    )


@operation(types.none, types.intp, I8X32)
def store_nibbles_by_eights(builder, address, codes):
    """16 bytes; 8 bytes hold 16 codes, the first 8 of them in their low nibbles."""
    low, high = ([*range(first, first + 8), *range(first + 16, first + 24)] for first in (0, 8))
    packed = _packed(builder, codes, low, high)
    builder.store(packed, pointer(builder, address, packed.type), align=1)


def _quarter(which):
    def codes_to_f32(builder, codes):
        part = lanes_of(builder, codes, range(8 * which, 8 * which + 8))
        extend = builder.zext if VNNI else builder.sext  # see SIGNED_BIAS; codes up to 127 are the same either way
        return builder.sitofp(extend(part, ir.VectorType(I32, 8)), llvm_type(F32X8))

    return operation(F32X8, I8X32)(codes_to_f32)


# Codes 0-7, 8-15, 16-23 and 24-31 of a block as float32.
first_codes, second_codes, third_codes, fourth_codes = (_quarter(which) for which in range(4))


def _sum4(builder, products):
    """<4n x i16 or i32> -> <n x i32>: sums of four neighbours."""
    count = products.type.count // 4
    products = builder.sext(products, ir.VectorType(I32, products.type.count))
    parts = [lanes_of(builder, products, range(first, 4 * count, 4)) for first in range(4)]
    return builder.add(builder.add(parts[0], parts[1]), builder.add(parts[2], parts[3]))


def _portable_dot(builder, acc, weights, x, unsigned):
    wide = ir.VectorType(I16, weights.type.count)
    extend = builder.zext if unsigned else builder.sext
    return builder.add(acc, _sum4(builder, builder.mul(extend(weights, wide), builder.sext(x, wide))))


def _halves(builder, emit, acc, weights, x):
    """Applies a 128-bit operation to both halves (or all quarters) of longer vectors."""
    parts = []
    for i in range(acc.type.count // 4):
        parts.append(
            emit(
                lanes_of(builder, acc, range(4 * i, 4 * i + 4)),
                lanes_of(builder, weights, range(16 * i, 16 * i + 16)),
                lanes_of(builder, x, range(16 * i, 16 * i + 16)),
            )
        )
    while len(parts) > 1:
        parts = [joined(builder, parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
    return parts[0]


def _neon_dot(builder, acc, weights, x):
    def sdot(a, w, v):
        return call(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", a.type, a, w, v)

    return _halves(builder, sdot, acc, weights, x)


def _vnni_dot(builder, acc, unsigned, signed):
    # the i32 spelling of the operands is the one that every llvmlite from 0.44 on accepts
    bits = 32 * acc.type.count
    name = f"llvm.x86.avx512.vpdpbusd.{bits}"
    return call(builder, name, acc.type, acc, builder.bitcast(unsigned, acc.type), builder.bitcast(signed, acc.type))


def _maddubs(builder, unsigned, signed):
    return call(builder, "llvm.x86.avx2.pmadd.ub.sw", ir.VectorType(I16, 16), unsigned, signed)


def _pair_sums(builder, words):
    ones = ir.Constant(ir.VectorType(I16, 16), [1] * 16)
    return call(builder, "llvm.x86.avx2.pmadd.wd", ir.VectorType(I32, 8), words, ones)


def _dot_u7(builder, acc, weights, x):
    if VNNI:
        return _vnni_dot(builder, acc, weights, x)
    if TARGET == "avx2":
        return builder.add(acc, _pair_sums(builder, _maddubs(builder, weights, x)))
    if TARGET == "neon":
        return _neon_dot(builder, acc, weights, x)
    return _portable_dot(builder, acc, weights, x, unsigned=True)


def _dot_s8(builder, acc, weights, x):
    if VNNI:
        return _vnni_dot(builder, acc, weights, x)
    if TARGET == "avx2":
        # |w| . (x with the sign of w): at most 2 * 128 * 127 a pair, which 16 bits hold
        magnitude = call(builder, "llvm.abs.v32i8", weights.type, weights, I1(0))
        signed = call(builder, "llvm.x86.avx2.psign.b", x.type, x, weights)
        return builder.add(acc, _pair_sums(builder, _maddubs(builder, magnitude, signed)))
    if TARGET == "neon":
        return _neon_dot(builder, acc, weights, x)
    return _portable_dot(builder, acc, weights, x, unsigned=False)


@intrinsic
def dot_s8(typingctx, acc, weights, x):
    """acc[lane] += sum of 4 products; x is -127..127.

    Codes are signed, except under VNNI, where they are biased by 128 (see `SIGNED_BIAS`) because the hardware
    multiplies unsigned by signed.
    """

    def codegen(context, builder, signature, args):
        return _dot_s8(builder, *args)

    return acc(acc, weights, x), codegen


SIGNED_BIAS = 128 if VNNI else 0


@operation(ROW_PRODUCTS, I8X32, I8X32)
def row_products(builder, weights, x):
    """Products of a block of 7-bit codes, summed so far as the target does for nothing: 8 lanes of 32 bits."""
    if TARGET == "avx2":
        return _maddubs(builder, weights, x)
    return _dot_u7(builder, ir.Constant(llvm_type(I32X8), None), weights, x)


@operation(ROW_PRODUCTS, I8X32, I8X32, I8X32, I8X32)
def nibble_products(builder, low, x_low, high, x_high):
    """low . x_low + high . x_high for codes up to 15, summed as in row_products."""
    if TARGET == "avx2":
        return builder.add(_maddubs(builder, low, x_low), _maddubs(builder, high, x_high))
    return _dot_u7(builder, _dot_u7(builder, ir.Constant(llvm_type(I32X8), None), low, x_low), high, x_high)


@operation(I32X8, ROW_PRODUCTS)
def widen(builder, products):
    """The same sums as int32 lanes."""
    return _pair_sums(builder, products) if TARGET == "avx2" else products


def _combine(name, low, high):
    """Adds or picks 32-bit lanes of two vectors; lane numbers 8-15 are those of the second."""

    def shuffled(builder, a, b, lanes):
        wide = ir.VectorType(I32, 8)
        mask = ir.Constant(wide, list(lanes))
        return builder.bitcast(builder.shuffle_vector(builder.bitcast(a, wide), builder.bitcast(b, wide), mask), a.type)

    def typer(typingctx, a, b):
        def codegen(context, builder, signature, args):
            first = shuffled(builder, args[0], args[1], low)
            return first if high is None else builder.add(first, shuffled(builder, args[0], args[1], high))

        return a(a, a), codegen

    typer.__name__ = typer.__qualname__ = name
    return intrinsic(typer)


# Eight rows of 8 lanes become one vector of 8 row sums in three steps: pairs of rows, fours, then the halves.
sum_pairs = _combine("sum_pairs", (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
sum_fours = _combine("sum_fours", (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
low_halves = _combine("low_halves", (0, 1, 2, 3, 8, 9, 10, 11), None)


def _both_halves(builder, vector):
    """The low and the high four lanes.

    Left to itself LLVM makes one shuffle of two extractions, and that takes eight micro-operations on Zen 1.
    """
    low = lanes_of(builder, vector, range(4))
    if TARGET in ("avx2", "avxvnni"):
        extract = ir.InlineAsm(ir.FunctionType(low.type, [vector.type]), "vextracti128 $$1, $1, $0", "=x,x")
        return low, builder.call(extract, [vector])
    return low, lanes_of(builder, vector, range(4, 8))


@operation(I32X8, I32X8, I32X8)
def high_halves(builder, low, high):
    first = lanes_of(builder, _both_halves(builder, low)[1], [0, 1, 2, 3, 0, 1, 2, 3])
    return builder.shuffle_vector(first, high, ir.Constant(first.type, [0, 1, 2, 3, 12, 13, 14, 15]))


@operation(I32X8, I32X8, I32X8)
def sum_halves(builder, low, high):
    """low_halves + high_halves"""
    return joined(builder, *(builder.add(*_both_halves(builder, vector)) for vector in (low, high)))


@intrinsic
def narrow_dot(typingctx, acc, weights, x):
    """acc[lane] += sum of 4 products of codes 0..127 with x.

    Where that is faster the sums stay in 16 bits: the caller widens before they can overflow.
    """

    def codegen(context, builder, signature, args):
        acc, weights, x = args
        if TARGET == "avx2":
            return builder.add(acc, _maddubs(builder, weights, x))
        return _dot_u7(builder, acc, weights, x)

    return acc(acc, weights, x), codegen


@operation(I32W, I32W, NARROW)
def widen_add(builder, acc, narrow):
    """acc + the sums of a narrow accumulator."""
    return builder.add(acc, _pair_sums(builder, narrow) if TARGET == "avx2" else narrow)
