"""Loads, stores, splats, and the conversions between float32 and its halves."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tinyllm_engine.simd.target import (
    ELEMENTS,
    F16,
    F32,
    F32W,
    F32X8,
    F64,
    F64X8,
    HARDWARE_F16,
    I8,
    I8W,
    I8X16,
    I8X32,
    I16,
    I32,
    I32W,
    I32X8,
    I64,
    NARROW,
    ROW_PRODUCTS,
    joined,
    lanes_of,
    llvm_type,
    operation,
    pointer,
    spread,
)


def _load(vec):
    def load(builder, address):
        return builder.load(pointer(builder, address, llvm_type(vec)), align=1)

    return operation(vec, types.intp)(load)


def _scalar_load(numba_type, element):
    def load(builder, address):
        return builder.load(pointer(builder, address, element), align=1)

    return operation(numba_type, types.intp)(load)


def _scalar_store(numba_type, element):
    def store(builder, address, value):
        builder.store(value, pointer(builder, address, element), align=1)

    return operation(types.none, types.intp, numba_type)(store)


def _element(builder, address, index, element):
    return builder.gep(pointer(builder, address, element), [index])


def _item(numba_type, element):
    """item(address, index) of an array: quicker to compile than arithmetic with addresses."""

    def item(builder, address, index):
        return builder.load(_element(builder, address, index, element))

    return operation(numba_type, types.intp, types.int64)(item)


def _set_item(numba_type, element):
    def set_item(builder, address, index, value):
        builder.store(value, _element(builder, address, index, element))

    return operation(types.none, types.intp, types.int64, numba_type)(set_item)


def _splat_at(vec):
    def splat_at(builder, address):
        element = ELEMENTS[vec.element]
        return spread(builder, builder.load(pointer(builder, address, element), align=1), vec.lanes)

    return operation(vec, types.intp)(splat_at)


def _splat(vec, numba_type):
    def splat(builder, value):
        return spread(builder, value, vec.lanes)

    return operation(vec, numba_type)(splat)


def _zero(vec):
    def zero(builder):
        return ir.Constant(llvm_type(vec), None)

    return operation(vec)(zero)


load_i8x16, load_i8x32, load_f32x8, load_i8w, load_f32w = (_load(v) for v in (I8X16, I8X32, F32X8, I8W, F32W))
load_u8, load_i8, load_u16 = (
    _scalar_load(types.uint8, I8),
    _scalar_load(types.int8, I8),
    _scalar_load(types.uint16, I16),
)
load_i64, load_f32 = _scalar_load(types.int64, I64), _scalar_load(types.float32, F32)
load_u32 = _scalar_load(types.uint32, I32)
store_i32, store_i64, store_f32 = (
    _scalar_store(types.int32, I32),
    _scalar_store(types.int64, I64),
    _scalar_store(types.float32, F32),
)
item_f32, item_f64 = _item(types.float32, F32), _item(types.float64, F64)
set_f32, set_f64, set_i32 = (
    _set_item(types.float32, F32),
    _set_item(types.float64, F64),
    _set_item(types.int32, I32),
)
splat_f32x8, splat_f32w = _splat(F32X8, types.float32), _splat(F32W, types.float32)
splat_at_f32x8, splat_at_f32w, splat_at_i32x8 = _splat_at(F32X8), _splat_at(F32W), _splat_at(I32X8)
zero_i32x8, zero_f32x8, zero_f64x8 = (_zero(v) for v in (I32X8, F32X8, F64X8))
zero_i32w, zero_f32w, zero_narrow = (_zero(v) for v in (I32W, F32W, NARROW))
zero_products = _zero(ROW_PRODUCTS)


@operation(types.int64, types.intp, types.int64)
def item_i32(builder, address, index):
    """An int32 of an array, as int64."""
    return builder.sext(builder.load(_element(builder, address, index, I32)), I64)


def _splat4_at(vec):
    def splat4_at(builder, address):
        """The 4 bytes at `address`, repeated in every lane."""
        word = builder.load(pointer(builder, address, I32), align=1)
        return builder.bitcast(spread(builder, word, vec.lanes // 4), llvm_type(vec))

    return operation(vec, types.intp)(splat4_at)


splat4_at, splat4_at_i8x32 = _splat4_at(I8W), _splat4_at(I8X32)


@intrinsic
def store(typingctx, address, vector):
    """Stores a vector of any type; no alignment is assumed."""

    def codegen(context, builder, signature, args):
        builder.store(args[1], pointer(builder, args[0], args[1].type), align=1)
        return context.get_dummy_value()

    return types.none(types.intp, vector), codegen


def half_to_float(builder, bits):
    """<8 x i16> holding f16 -> <8 x float>."""
    lanes, wide = 8, llvm_type(F32X8)
    if HARDWARE_F16:
        return builder.fpext(builder.bitcast(bits, ir.VectorType(F16, lanes)), wide)
    word = ir.VectorType(I32, lanes)

    def all_lanes(value):
        return ir.Constant(word, [value] * lanes)

    bits = builder.zext(bits, word)
    sign = builder.shl(builder.and_(bits, all_lanes(0x8000)), all_lanes(16))
    body = builder.shl(builder.and_(bits, all_lanes(0x7FFF)), all_lanes(13))
    # 2**112 moves the exponent bias from 15 to 127 and is exact for subnormals too
    finite = builder.bitcast(
        builder.fmul(builder.bitcast(body, wide), ir.Constant(wide, [float(2.0**112)] * lanes)), word
    )
    special = builder.icmp_unsigned(">=", body, all_lanes(0x0F800000))
    body = builder.select(special, builder.or_(body, all_lanes(0x7F800000)), finite)
    return builder.bitcast(builder.or_(sign, body), wide)


@operation(types.float32, types.intp)
def load_f16(builder, address):
    # Inserted into a zero vector: a bare half load merges into a live register and chains every iteration to the last
    # accumulator (measured: 4 times slower).
    word = builder.load(pointer(builder, address, I16), align=1)
    vector = builder.insert_element(ir.Constant(ir.VectorType(I16, 8), None), word, I32(0))
    return builder.extract_element(half_to_float(builder, vector), I32(0))


@operation(types.float32, types.uint16)
def half_bits_to_f32(builder, bits):
    vector = builder.insert_element(ir.Constant(ir.VectorType(I16, 8), None), bits, I32(0))
    return builder.extract_element(half_to_float(builder, vector), I32(0))


def _join8(vec, numba_type, convert):
    """Eight scalars -> one float32 vector."""

    def codegen(context, builder, signature, args):
        vector = ir.Constant(ir.VectorType(args[0].type, 8), None)
        for lane, value in enumerate(args):
            vector = builder.insert_element(vector, value, I32(lane))
        return convert(builder, vector)

    def join8(typingctx, a, b, c, d, e, f, g, h):
        return vec(*[numba_type] * 8), codegen

    return intrinsic(join8)


join8_halves = _join8(F32X8, types.uint16, half_to_float)
join8_floats = _join8(F32X8, types.float32, lambda builder, vector: vector)


@operation(I32X8, types.intp, types.intp)
def load8_words(builder, address, stride):
    """Eight int32, `stride` bytes apart."""
    halves = []
    for _ in range(2):
        half = ir.Constant(ir.VectorType(I32, 4), None)
        for lane in range(4):
            half = builder.insert_element(half, builder.load(pointer(builder, address, I32), align=1), I32(lane))
            address = builder.add(address, stride)
        halves.append(half)
    return joined(builder, *halves)


@intrinsic
def split_halves(typingctx, words):
    """Words that hold two f16 each -> the low ones and the high ones as float32."""

    def codegen(context, builder, signature, args):
        pairs = [
            builder.bitcast(lanes_of(builder, args[0], range(first, first + 4)), ir.VectorType(I16, 8))
            for first in (0, 4)
        ]
        halves = [
            builder.shuffle_vector(*pairs, ir.Constant(ir.VectorType(I32, 8), [2 * lane + which for lane in range(8)]))
            for which in (0, 1)
        ]
        return context.make_tuple(builder, signature.return_type, [half_to_float(builder, half) for half in halves])

    return types.Tuple((F32X8, F32X8))(words), codegen


@operation(F32X8, types.intp)
def load_f16x8(builder, address):
    bits = builder.load(pointer(builder, address, ir.VectorType(I16, 8)), align=1)
    return half_to_float(builder, bits)


@operation(F32X8, types.intp)
def load_bf16x8(builder, address):
    bits = builder.load(pointer(builder, address, ir.VectorType(I16, 8)), align=1)
    wide = builder.shl(builder.zext(bits, ir.VectorType(I32, 8)), ir.Constant(ir.VectorType(I32, 8), [16] * 8))
    return builder.bitcast(wide, llvm_type(F32X8))


@operation(F32X8, types.intp)
def load_i8x8(builder, address):
    """Eight int8 as float32."""
    codes = builder.load(pointer(builder, address, ir.VectorType(I8, 8)), align=1)
    return builder.sitofp(builder.sext(codes, ir.VectorType(I32, 8)), llvm_type(F32X8))


@intrinsic
def load_signed_nibbles(typingctx, address):
    """8 bytes -> the signed numbers in their low nibbles and in their high ones, as float32."""

    def codegen(context, builder, signature, args):
        codes = builder.load(pointer(builder, args[0], ir.VectorType(I8, 8)), align=1)
        word = ir.VectorType(I32, 8)
        codes, up, four = builder.sext(codes, word), ir.Constant(word, [28] * 8), ir.Constant(word, [4] * 8)
        parts = builder.ashr(builder.shl(codes, up), up), builder.ashr(codes, four)
        floats = [builder.sitofp(part, llvm_type(F32X8)) for part in parts]
        return context.make_tuple(builder, signature.return_type, floats)

    return types.Tuple((F32X8, F32X8))(types.intp), codegen


@operation(F32X8, types.intp)
def load_f64x8(builder, address):
    """Rounded to float32."""
    wide = builder.load(pointer(builder, address, ir.VectorType(F64, 8)), align=1)
    return builder.fptrunc(wide, llvm_type(F32X8))


@operation(F32X8, I32X8)
def e8m0_halves(builder, codes):
    """8-bit exponents, half of what they stand for: 2^(code - 128). The first two are below the normal floats."""
    word = ir.VectorType(I32, 8)

    def all_lanes(value):
        return ir.Constant(word, [value] * 8)

    normal = builder.shl(builder.sub(codes, all_lanes(1)), all_lanes(23))
    tiny = builder.shl(all_lanes(1 << 21), builder.and_(codes, all_lanes(1)))
    is_tiny = builder.icmp_unsigned("<", codes, all_lanes(2))
    return builder.bitcast(builder.select(is_tiny, tiny, normal), llvm_type(F32X8))


@operation(F32X8, I32X8)
def ue4m3_halves(builder, codes):
    """Half the values of 8-bit floats: four bits of exponent, three of mantissa, an ignored bit on top; 0x7f is 0."""
    word = ir.VectorType(I32, 8)

    def all_lanes(value):
        return ir.Constant(word, [value] * 8)

    is_zero = builder.icmp_unsigned("==", codes, all_lanes(0x7F))
    codes = builder.select(is_zero, all_lanes(0), builder.and_(codes, all_lanes(0x7F)))
    same_bits = builder.bitcast(builder.shl(codes, all_lanes(20)), llvm_type(F32X8))
    # 2**119 moves the exponent bias from 7 to 126 and is exact for subnormals too
    return builder.fmul(same_bits, ir.Constant(llvm_type(F32X8), [float(2.0**119)] * 8))


@operation(types.none, types.intp, F32X8)
def store_f16x8(builder, address, vector):
    """Rounds to nearest even, as the hardware conversion does."""
    builder.store(float_to_half(builder, vector), pointer(builder, address, ir.VectorType(I16, 8)), align=1)


@operation(types.none, types.intp, types.float32)
def store_half(builder, address, value):
    """One float32 as f16, rounded to nearest even."""
    vector = builder.insert_element(ir.Constant(llvm_type(F32X8), None), value, I32(0))
    half = builder.extract_element(float_to_half(builder, vector), I32(0))
    builder.store(half, pointer(builder, address, I16), align=1)


def float_to_half(builder, vector):
    """<8 x float> -> <8 x i16> holding f16, nearest even; overflow becomes infinity."""
    lanes, word = 8, ir.VectorType(I32, 8)
    if HARDWARE_F16:
        half = builder.fptrunc(vector, ir.VectorType(F16, lanes))
        return builder.bitcast(half, ir.VectorType(I16, lanes))

    def all_lanes(value):
        return ir.Constant(word, [value] * lanes)

    bits = builder.bitcast(vector, word)
    sign = builder.and_(builder.lshr(bits, all_lanes(16)), all_lanes(0x8000))
    body = builder.and_(bits, all_lanes(0x7FFFFFFF))
    # subnormal halves: adding 0.5 lines the 10 kept bits up with the end of the float's fraction
    magic = ir.Constant(llvm_type(F32X8), [0.5] * lanes)
    small = builder.bitcast(builder.fadd(builder.bitcast(body, llvm_type(F32X8)), magic), word)
    small = builder.sub(small, all_lanes(0x3F000000))
    odd = builder.and_(builder.lshr(body, all_lanes(13)), all_lanes(1))
    normal = builder.lshr(builder.add(builder.add(body, all_lanes((0xC8000FFF) - (1 << 32))), odd), all_lanes(13))
    is_small = builder.icmp_unsigned("<", body, all_lanes(0x38800000))
    is_large = builder.icmp_unsigned(">=", body, all_lanes(0x477FF000))
    is_nan = builder.icmp_unsigned(">", body, all_lanes(0x7F800000))
    half = builder.select(is_small, small, normal)
    half = builder.select(is_large, all_lanes(0x7C00), half)
    half = builder.select(is_nan, all_lanes(0x7E00), half)
    return builder.trunc(builder.or_(half, sign), ir.VectorType(I16, lanes))


def float_to_bf16(builder, vector):
    """<8 x float> -> <8 x i16> holding bf16, nearest even; what is no number stays so."""
    word = ir.VectorType(I32, 8)

    def all_lanes(value):
        return ir.Constant(word, [value] * 8)

    bits = builder.bitcast(vector, word)
    odd = builder.and_(builder.lshr(bits, all_lanes(16)), all_lanes(1))
    rounded = builder.add(builder.add(bits, all_lanes(0x7FFF)), odd)
    is_nan = builder.icmp_unsigned(">", builder.and_(bits, all_lanes(0x7FFFFFFF)), all_lanes(0x7F800000))
    rounded = builder.select(is_nan, builder.or_(bits, all_lanes(0x400000)), rounded)
    return builder.trunc(builder.lshr(rounded, all_lanes(16)), ir.VectorType(I16, 8))


@operation(types.none, types.intp, F32X8)
def store_bf16x8(builder, address, vector):
    """Rounds to nearest even."""
    builder.store(float_to_bf16(builder, vector), pointer(builder, address, ir.VectorType(I16, 8)), align=1)


@operation(types.none, types.intp, types.float32)
def store_bf16(builder, address, value):
    """One float32 as bf16, rounded to nearest even."""
    vector = builder.insert_element(ir.Constant(llvm_type(F32X8), None), value, I32(0))
    builder.store(
        builder.extract_element(float_to_bf16(builder, vector), I32(0)), pointer(builder, address, I16), align=1
    )


@operation(types.none, types.intp)
def prefetch(builder, address):
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32]), "llvm.prefetch.p0"
    )
    builder.call(function, [pointer(builder, address, I8), I32(0), I32(3), I32(1)])
