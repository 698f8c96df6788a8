"""Which vector instructions this process compiles for, and LLVM vectors as Numba types."""

import os

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, register_model

from tinyllm_engine.errors import EngineError

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()

ARCHITECTURE = llvm.get_process_triple().partition("-")[0]
X86 = ARCHITECTURE in ("x86_64", "i386", "i686")
ARM64 = ARCHITECTURE in ("aarch64", "arm64")

TARGETS = {
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx2", "fma", "f16c"},
    "avxvnni": {"avxvnni", "avx2", "fma", "f16c"},
    "avx2": {"avx2", "fma", "f16c"},
    "neon": {"dotprod"},
    "portable": set(),
}

PLAIN_DOT_PRODUCT = """
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define i32 @dot(<16 x i8> %a, <16 x i8> %b) {
  %x = sext <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %products = mul <16 x i32> %x, %y
  %sum = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %products)
  ret i32 %sum
}
"""


def target_features() -> set[str]:
    """Features LLVM may use for code compiled here (NUMBA_CPU_FEATURES narrows them)."""
    if config.CPU_FEATURES is not None:
        return {feature[1:] for feature in config.CPU_FEATURES.split(",") if feature.startswith("+")}
    if config.CPU_NAME == "generic":
        return set()
    found = llvm.get_host_cpu_features()
    features = {name for name, present in found.items() if present}
    if ARM64 and emits_sdot(llvm.get_process_triple(), config.CPU_NAME or llvm.get_host_cpu_name(), found.flatten()):
        features.add("dotprod")
    return features


def emits_sdot(triple: str, cpu: str, features: str) -> bool:
    """Whether code for this ARM processor may have dot products of bytes.

    No list says so: LLVM finds none on macOS and leaves this feature out on Linux. It goes by the processor's model,
    and makes one instruction of a plain dot product where that model has it.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    module = llvm.parse_assembly(PLAIN_DOT_PRODUCT)
    module.triple = triple
    return "sdot" in machine.emit_assembly(module)


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
llvm.initialize_native_asmparser()  # for the few instructions that LLVM does not choose by itself
LANES = 16 if TARGET == "avx512" else 8
VNNI = TARGET in ("avx512", "avxvnni")
HARDWARE_F16 = ARM64 or "f16c" in target_features()


class Vec(types.Type):
    """A Numba type that is one LLVM vector."""

    def __init__(self, element: str, lanes: int):
        self.element, self.lanes = element, lanes
        super().__init__(name=f"Vec({element} x {lanes})")


ELEMENTS = {"i8": I8, "i16": I16, "i32": I32, "f32": F32, "f64": F64}


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager, fe_type):
        super().__init__(manager, fe_type, ir.VectorType(ELEMENTS[fe_type.element], fe_type.lanes))


I8X16, I8X32, I32X8, F32X8 = Vec("i8", 16), Vec("i8", 32), Vec("i32", 8), Vec("f32", 8)
F64X8 = Vec("f64", 8)  # F32X8 in double precision
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
