"""A plugin of pytest that plays a processor whose dot product instruction this machine does not have.

Everything runs here as the engine would compile it there, but that the one instruction is replaced by its definition
in plain arithmetic. The target comes in the environment (see `environment`).
"""

from __future__ import annotations

import os
from typing import Any

from llvmlite import ir
from numba.core import config

from support import cross

VARIABLE = "TINYLLM_TEST_PLAYED"


def environment(target: str) -> dict[str, str]:
    """The environment of a process that plays this target."""
    return cross.environment() | {VARIABLE: target}


def pytest_configure() -> None:
    """Imports the engine as on a processor of that target; the code it makes is then compiled for this one."""
    target = os.environ[VARIABLE]
    config.CPU_FEATURES = cross.PROCESSORS[target].feature_string
    from tinyllm_engine import simd
    from tinyllm_engine.simd import codes

    config.CPU_FEATURES = None
    assert target == simd.TARGET
    llvm_call = codes.call

    def call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
        """vpdpbusd and sdot: each lane of the first argument plus four products of bytes, exactly."""
        if "vpdpbusd" not in name and "sdot" not in name:
            return llvm_call(builder, name, result, *arguments)
        acc, first, second = arguments
        extend_first = builder.zext if "vpdpbusd" in name else builder.sext
        count = 4 * acc.type.count
        bytes_, words = ir.VectorType(ir.IntType(8), count), ir.VectorType(ir.IntType(32), count)
        products = builder.mul(
            extend_first(builder.bitcast(first, bytes_), words), builder.sext(builder.bitcast(second, bytes_), words)
        )
        for offset in range(4):
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), count // 4), list(range(offset, count, 4)))
            acc = builder.add(acc, builder.shuffle_vector(products, products, lanes))
        return acc

    codes.call = call
