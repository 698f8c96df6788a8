"""Codes that are looked up: tables as constants of the machine code, shuffles, and loads of whole groups of codes."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tinyllm_engine.simd.target import (
    I8,
    I8X16,
    I8X32,
    I32,
    I64,
    TARGET,
    call,
    joined,
    lanes_of,
    llvm_type,
    operation,
    pointer,
    spread,
)


def table(make):
    """Turns make() -> array into an intrinsic: the address of the array's bytes, which lie beside the machine code.

    `make` is called when a kernel is compiled. What it reads belongs to the key of the kernel cache.
    """
    name = f"table.{make.__module__}.{make.__qualname__}"

    def typer(typingctx):
        def codegen(context, builder, signature, args):
            constant = builder.module.globals.get(name)
            if constant is None:
                data = bytearray(np.ascontiguousarray(make()).tobytes())
                constant = cgutils.global_constant(builder, name, ir.Constant(ir.ArrayType(I8, len(data)), data))
                constant.align = 64
            return builder.ptrtoint(constant, I64)

        return types.intp(), codegen

    typer.__name__ = typer.__qualname__ = make.__name__
    return intrinsic(typer)


def _four_of(name, result, element):
    """An intrinsic: integers from four addresses, side by side."""

    def emit(builder, *addresses):
        vector = ir.Constant(ir.VectorType(element, 4), ir.Undefined)
        for lane, address in enumerate(addresses):
            word = builder.load(pointer(builder, address, element), align=1)
            vector = builder.insert_element(vector, word, I32(lane))
        return builder.bitcast(vector, llvm_type(result))

    emit.__name__ = name
    return operation(result, *[types.intp] * 4)(emit)


load_four_eights = _four_of("load_four_eights", I8X32, I64)  # 8 bytes each
load_four_fours = _four_of("load_four_fours", I8X16, I32)  # 4 bytes each


@operation(I8X32, I8X32, I8X32)
def lookup16(builder, entries, codes):
    """entries[code] for codes 0..15; the same 16 entries stand in both halves."""
    if TARGET in ("avx512", "avxvnni", "avx2"):
        return call(builder, "llvm.x86.avx2.pshuf.b", codes.type, entries, codes)
    if TARGET == "neon":
        half = lanes_of(builder, entries, range(16))
        parts = (lanes_of(builder, codes, range(first, first + 16)) for first in (0, 16))
        return joined(
            builder, *(call(builder, "llvm.aarch64.neon.tbl1.v16i8", half.type, half, part) for part in parts)
        )
    result = ir.Constant(codes.type, None)
    for code in range(16):
        entry = spread(builder, builder.extract_element(entries, I32(code)), 32)
        chosen = builder.icmp_unsigned("==", codes, ir.Constant(codes.type, [code] * 32))
        result = builder.select(chosen, entry, result)
    return result


@operation(I8X32, I8X16)
def nibbles_by_eights(builder, packed):
    """16 bytes -> 32 codes 0..15: of the first 8 bytes the low nibbles, then the high ones; then of the last 8."""
    four, fifteen = (ir.Constant(packed.type, [n] * 16) for n in (4, 15))
    low, high = builder.and_(packed, fifteen), builder.lshr(packed, four)
    order = [*range(8), *range(16, 24), *range(8, 16), *range(24, 32)]
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, 32), order))


@operation(I8X32, types.intp)
def load_two_bit_codes(builder, address):
    """8 bytes -> 32 codes 0..3: four of each byte, the lowest bits first."""
    packed = builder.load(pointer(builder, address, ir.VectorType(I8, 8)), align=1)
    word = ir.VectorType(I32, 8)

    def shifted(value, count):
        return builder.or_(value, builder.shl(value, ir.Constant(word, [count] * 8)))

    # bits 2i and 2i + 1 move to the bottom of byte i
    fields = shifted(shifted(builder.zext(packed, word), 12), 6)
    return builder.bitcast(builder.and_(fields, ir.Constant(word, [0x03030303] * 8)), llvm_type(I8X32))


@operation(I8X32, I8X32)
def first_digits(builder, fractions):
    """The first base-3 digit of fractions byte/256: 0, 1 or 2, which is byte * 3 >> 8."""
    third, two_thirds = (
        builder.zext(builder.icmp_unsigned(">=", fractions, ir.Constant(fractions.type, [least] * 32)), fractions.type)
        for least in (86, 171)
    )
    return builder.add(third, two_thirds)


@operation(I8X16, types.intp)
def load_i8x4_repeated(builder, address):
    """The same 4 bytes four times."""
    word = builder.load(pointer(builder, address, I32), align=1)
    return builder.bitcast(spread(builder, word, 4), llvm_type(I8X16))
