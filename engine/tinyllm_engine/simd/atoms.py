"""What threads need to meet: atomic words, a pause, a call by address."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tinyllm_engine.simd.target import ARM64, I32, I64, X86, call, operation, pointer


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
    elif ARM64:
        call(builder, "llvm.aarch64.isb", ir.VoidType(), I32(15))  # `yield` does nothing on most processors
    else:
        builder.fence("seq_cst")


@operation(types.none, types.intp, types.intp, types.intp, types.intp)
def call_kernel(builder, function, thread, threads, arguments):
    signature = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    builder.call(builder.inttoptr(function, signature.as_pointer()), [thread, threads, arguments])


@intrinsic
def call_step(typingctx, function, arguments):
    """Calls a function whose address is known (see jit.step) with a tuple of integers."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1], len(signature.args[1]))
        step = ir.FunctionType(ir.VoidType(), [I64] * len(values))
        builder.call(builder.inttoptr(args[0], step.as_pointer()), values)
        return context.get_dummy_value()

    whole = types.UniTuple(types.intp, len(arguments))
    return types.none(types.intp, whole), codegen
