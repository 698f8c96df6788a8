"""LLVM vectors as Numba values: one meaning, several targets.

Every function here is an intrinsic usable inside compiled code only. Addresses are plain int64 values. The vector
types are `I8X32`, `I32X8`, `F32X8` (256 bits: one block of 32 weights) for work along a row, and `I8W`, `I32W`, `F32W`
(`LANES` lanes) for work across the rows of a panel.

Targets, chosen once at import from what LLVM may emit for this processor, or forced by TINYLLM_SIMD:

    avx512    512-bit panels, vpdpbusd                avx2      maddubs + maddwd
    avxvnni   256-bit panels, vpdpbusd                neon      sdot on 128-bit halves
    portable  plain vector arithmetic; right on anything LLVM knows

An intrinsic that the target lacks aborts the whole process, so a forced target is checked against the feature list.
"""

import os
import platform

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, register_model

from tinyllm_engine.errors import EngineError

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()

TARGETS = {
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx2", "fma", "f16c"},
    "avxvnni": {"avxvnni", "avx2", "fma", "f16c"},
    "avx2": {"avx2", "fma", "f16c"},
    "neon": {"neon", "dotprod"},
    "portable": set(),
}


def target_features() -> set[str]:
    """Features LLVM may use for code compiled here (NUMBA_CPU_FEATURES narrows them)."""
    if config.CPU_FEATURES is not None:
        return {feature[1:] for feature in config.CPU_FEATURES.split(",") if feature.startswith("+")}
    if config.CPU_NAME == "generic":
        return set()
    return {name for name, present in llvm.get_host_cpu_features().items() if present}


def choose_target(forced: str | None = None) -> str:
    """The best target this processor has, or the forced one if it has that.

    Raises EngineError when `forced` is unknown or the processor lacks what it needs.
    """
    features = target_features()
    if forced:
        if forced not in TARGETS:
            raise EngineError(f"TINYLLM_SIMD: expected one of {', '.join(TARGETS)}; found {forced!r}")
        missing = TARGETS[forced] - features
        if missing:
            raise EngineError(f"TINYLLM_SIMD={forced}: this processor lacks {', '.join(sorted(missing))}")
        return forced
    return next(name for name, needed in TARGETS.items() if needed <= features)


TARGET = choose_target(os.environ.get("TINYLLM_SIMD"))
LANES = 16 if TARGET == "avx512" else 8
VNNI = TARGET in ("avx512", "avxvnni")
HARDWARE_F16 = bool({"f16c", "fp-armv8"} & target_features()) or platform.machine().lower() in ("arm64", "aarch64")
X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


class Vec(types.Type):
    """A Numba type that is one LLVM vector."""

    def __init__(self, element: str, lanes: int):
        self.element, self.lanes = element, lanes
        super().__init__(name=f"Vec({element} x {lanes})")


ELEMENTS = {"i8": I8, "i16": I16, "i32": I32, "f32": F32}


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager, fe_type):
        super().__init__(manager, fe_type, ir.VectorType(ELEMENTS[fe_type.element], fe_type.lanes))


I8X16, I8X32, I32X8, F32X8 = Vec("i8", 16), Vec("i8", 32), Vec("i32", 8), Vec("f32", 8)
I8W, I32W, F32W = Vec("i8", 4 * LANES), Vec("i32", LANES), Vec("f32", LANES)
# Where products of 7-bit codes may be summed in 16 bits for a while, that is what a tile accumulates in.
NARROW = Vec("i16", 16) if TARGET == "avx2" else I32W
ROW_PRODUCTS = Vec("i16", 16) if TARGET == "avx2" else I32X8


def llvm_type(vec: Vec) -> ir.VectorType:
    return ir.VectorType(ELEMENTS[vec.element], vec.lanes)


def operation(result, *parameters):
    """Turns emit(builder, *values) -> value into an intrinsic of the given Numba types."""

    def decorate(emit):
        signature = result(*parameters)

        def codegen(context, builder, sig, args):
            value = emit(builder, *args)
            return context.get_dummy_value() if result is types.none else value

        typers = [
            lambda typingctx: (signature, codegen),
            lambda typingctx, a: (signature, codegen),
            lambda typingctx, a, b: (signature, codegen),
            lambda typingctx, a, b, c: (signature, codegen),
            lambda typingctx, a, b, c, d: (signature, codegen),
        ]
        typer = typers[len(parameters)]
        typer.__name__ = typer.__qualname__ = emit.__name__
        return intrinsic(typer)

    return decorate


def pointer(builder, address, element):
    return builder.inttoptr(address, element.as_pointer())


def call(builder, name, result, *arguments):
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(result, [argument.type for argument in arguments]), name
    )
    return builder.call(function, arguments)


def lanes_of(builder, vector, indices):
    undefined = ir.Constant(vector.type, ir.Undefined)
    return builder.shuffle_vector(vector, undefined, ir.Constant(ir.VectorType(I32, len(indices)), list(indices)))


def spread(builder, scalar, lanes):
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    return lanes_of(builder, builder.insert_element(undefined, scalar, I32(0)), [0] * lanes)


def joined(builder, low, high):
    lanes = low.type.count + high.type.count
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, lanes), list(range(lanes))))


# --- loads, stores, splats ----------------------------------------------------------------


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
load_i32, load_i64, load_f32 = (
    _scalar_load(types.int32, I32),
    _scalar_load(types.int64, I64),
    _scalar_load(types.float32, F32),
)
load_u32 = _scalar_load(types.uint32, I32)
store_i8, store_u16 = _scalar_store(types.int8, I8), _scalar_store(types.uint16, I16)
store_i32, store_i64, store_f32 = (
    _scalar_store(types.int32, I32),
    _scalar_store(types.int64, I64),
    _scalar_store(types.float32, F32),
)
splat_f32x8, splat_f32w = _splat(F32X8, types.float32), _splat(F32W, types.float32)
splat_at_f32x8, splat_at_f32w = _splat_at(F32X8), _splat_at(F32W)
zero_i32x8, zero_f32x8, zero_i32w, zero_f32w, zero_narrow = (_zero(v) for v in (I32X8, F32X8, I32W, F32W, NARROW))


@operation(I8W, types.intp)
def splat4_at(builder, address):
    """The 4 bytes at `address`, repeated in every lane."""
    word = builder.load(pointer(builder, address, I32), align=1)
    return builder.bitcast(spread(builder, word, LANES), llvm_type(I8W))


@intrinsic
def store(typingctx, address, vector):
    """Stores a vector of any type; no alignment is assumed."""

    def codegen(context, builder, signature, args):
        builder.store(args[1], pointer(builder, args[0], args[1].type), align=1)
        return context.get_dummy_value()

    return types.none(types.intp, vector), codegen


def half_to_float(builder, bits, lanes):
    """<lanes x i16> holding f16 -> <lanes x float>."""
    wide = ir.VectorType(F32, lanes)
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
    return builder.extract_element(half_to_float(builder, vector, 8), I32(0))


@operation(types.float32, types.uint16)
def half_bits_to_f32(builder, bits):
    vector = builder.insert_element(ir.Constant(ir.VectorType(I16, 8), None), bits, I32(0))
    return builder.extract_element(half_to_float(builder, vector, 8), I32(0))


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


join8_halves = _join8(F32X8, types.uint16, lambda builder, bits: half_to_float(builder, bits, 8))
join8_floats = _join8(F32X8, types.float32, lambda builder, vector: vector)


@operation(F32X8, types.intp)
def load_f16x8(builder, address):
    bits = builder.load(pointer(builder, address, ir.VectorType(I16, 8)), align=1)
    return half_to_float(builder, bits, 8)


@operation(F32X8, types.intp)
def load_bf16x8(builder, address):
    bits = builder.load(pointer(builder, address, ir.VectorType(I16, 8)), align=1)
    wide = builder.shl(builder.zext(bits, ir.VectorType(I32, 8)), ir.Constant(ir.VectorType(I32, 8), [16] * 8))
    return builder.bitcast(wide, llvm_type(F32X8))


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


@operation(types.none, types.intp)
def prefetch(builder, address):
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32]), "llvm.prefetch.p0"
    )
    builder.call(function, [pointer(builder, address, I8), I32(0), I32(3), I32(1)])


# --- arithmetic, for any vector type ------------------------------------------------------


def _binary(name, float_op, int_op):
    def emit(typingctx, a, b):
        def codegen(context, builder, signature, args):
            floating = signature.return_type.element == "f32"
            return getattr(builder, float_op if floating else int_op)(*args)

        return a(a, a), codegen

    emit.__name__ = emit.__qualname__ = name
    return intrinsic(emit)


add, sub, mul = _binary("add", "fadd", "add"), _binary("sub", "fsub", "sub"), _binary("mul", "fmul", "mul")
bit_and, bit_or, bit_xor = (_binary(n, n, n) for n in ("and_", "or_", "xor"))


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


@intrinsic
def horizontal_sum(typingctx, vector):
    """Sum of all lanes, pairwise in a fixed order (the same bits on every target)."""

    def codegen(context, builder, signature, args):
        value, lanes = args[0], signature.args[0].lanes
        combine = builder.fadd if signature.args[0].element == "f32" else builder.add
        while lanes > 1:
            lanes //= 2
            low = lanes_of(builder, value, range(lanes))
            high = lanes_of(builder, value, range(lanes, 2 * lanes))
            value = combine(low, high)
        return builder.extract_element(value, I32(0))

    return (types.float32 if vector.element == "f32" else types.int32)(vector), codegen


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


@operation(F32X8, types.float32, types.float32)
def halves_f32x8(builder, low, high):
    """low in lanes 0-3, high in lanes 4-7."""
    return joined(builder, spread(builder, low, 4), spread(builder, high, 4))


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


@operation(F32X8, F32X8, types.int64)
def keep_first(builder, vector, count):
    """The first `count` lanes; minus infinity in the others."""
    lane = ir.Constant(ir.VectorType(I64, 8), list(range(8)))
    inside = builder.icmp_signed("<", lane, spread(builder, count, 8))
    return builder.select(inside, vector, ir.Constant(vector.type, [float("-inf")] * 8))


@operation(types.float32, F32X8)
def first_lane(builder, vector):
    return builder.extract_element(vector, I32(0))


@operation(F32X8, F32X8, F32X8)
def divide(builder, a, b):
    return builder.fdiv(a, b)


# --- codes: unpacking and integer dot products --------------------------------------------


@operation(I8X32, I8X16)
def nibbles(builder, packed):
    """16 bytes -> 32 codes 0..15: the low nibbles first, then the high ones."""
    four, fifteen = (ir.Constant(packed.type, [n] * 16) for n in (4, 15))
    return joined(builder, builder.and_(packed, fifteen), builder.lshr(packed, four))


@operation(I8X32, types.uint32)
def bits_to_bytes(builder, word):
    """Bit i of the word -> 0x00 or 0xFF in byte i."""
    mask = builder.bitcast(word, ir.VectorType(I1, 32))
    return builder.sext(mask, llvm_type(I8X32))


def _constant_op(name, op):
    def emit(builder, vector, value):
        return getattr(builder, op)(vector, spread(builder, value, 32))

    emit.__name__ = name
    return operation(I8X32, I8X32, types.int8)(emit)


and_byte, xor_byte, subtract_byte = (
    _constant_op(n, op) for n, op in (("and_byte", "and_"), ("xor_byte", "xor"), ("subtract_byte", "sub"))
)


def _shift(name, op):
    def emit(builder, vector, count):
        words = builder.bitcast(vector, ir.VectorType(I16, 16))
        shifted = getattr(builder, op)(words, spread(builder, builder.zext(count, I16), 16))
        return builder.bitcast(shifted, vector.type)

    emit.__name__ = name
    return operation(I8X32, I8X32, types.int8)(emit)


# Processors shift words, not bytes: bits of the neighbour come along, and the caller masks them away.
shift_right_words, shift_left_words = _shift("shift_right_words", "lshr"), _shift("shift_left_words", "shl")


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


def _dot(name, emit):
    def typer(typingctx, acc, weights, x):
        def codegen(context, builder, signature, args):
            return emit(builder, *args)

        return acc(acc, weights, x), codegen

    typer.__name__ = typer.__qualname__ = name
    return intrinsic(typer)


# acc[lane] += sum of 4 products. Codes of dot_u7 are 0..127. Codes of dot_s8 are signed, except under VNNI, where
# they are biased by 128 (see `SIGNED_BIAS`) because the hardware multiplies unsigned by signed. x is -127..127.
dot_u7, dot_s8 = _dot("dot_u7", _dot_u7), _dot("dot_s8", _dot_s8)
SIGNED_BIAS = 128 if VNNI else 0


@operation(ROW_PRODUCTS, I8X32, I8X32)
def row_products(builder, weights, x):
    """Products of a block of 7-bit codes, summed so far as the target does for nothing: 8 lanes of 32 bits."""
    if TARGET == "avx2":
        return _maddubs(builder, weights, x)
    return _dot_u7(builder, ir.Constant(llvm_type(I32X8), None), weights, x)


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
high_halves = _combine("high_halves", (4, 5, 6, 7, 12, 13, 14, 15), None)


@operation(NARROW, NARROW, I8W, I8W)
def narrow_dot(builder, acc, weights, x):
    """Like dot_u7, but where that is faster the sums stay in 16 bits: the caller widens before they can overflow."""
    if TARGET == "avx2":
        return builder.add(acc, _maddubs(builder, weights, x))
    return _dot_u7(builder, acc, weights, x)


@operation(I32W, I32W, NARROW)
def widen_add(builder, acc, narrow):
    """acc + the sums of a narrow accumulator."""
    return builder.add(acc, _pair_sums(builder, narrow) if TARGET == "avx2" else narrow)


# --- atoms for the team -------------------------------------------------------------------


@operation(types.int64, types.intp, types.int64)
def atomic_add(builder, address, amount):
    """Adds and returns the value before."""
    return builder.atomic_rmw("add", pointer(builder, address, I64), amount, "seq_cst")


@operation(types.int64, types.intp)
def atomic_load(builder, address):
    return builder.load_atomic(pointer(builder, address, I64), "seq_cst", 8)


@operation(types.none, types.intp, types.int64)
def atomic_store(builder, address, value):
    builder.store_atomic(value, pointer(builder, address, I64), "seq_cst", 8)


@operation(types.int32, types.intp)
def atomic_load_i32(builder, address):
    return builder.load_atomic(pointer(builder, address, I32), "seq_cst", 4)


@operation(types.none)
def pause(builder):
    """Tells the processor that this is a spin loop."""
    if X86:
        call(builder, "llvm.x86.sse2.pause", ir.VoidType())
    else:
        builder.fence("seq_cst")


@operation(types.none, types.intp, types.intp, types.intp, types.intp)
def call_kernel(builder, function, thread, threads, arguments):
    signature = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    builder.call(builder.inttoptr(function, signature.as_pointer()), [thread, threads, arguments])
