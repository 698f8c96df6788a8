"""A plugin of pytest that plays a processor whose own instructions this machine does not have.

Everything runs here as the engine would compile it there, but that dot products and lookups are replaced by their
definitions in plain arithmetic. The target comes in the environment (see `environment`).
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
    from tinyllm_engine.simd import codes, lookup

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

    def look_up(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
        """tbl1: an entry for each code; 0 where there is none of that number."""
        if "tbl1" not in name:
            return llvm_call(builder, name, result, *arguments)
        entries, numbers = arguments
        found = ir.Constant(result, None)
        for lane in range(16):
            number = builder.extract_element(numbers, ir.IntType(32)(lane))
            entry = builder.extract_element(entries, builder.zext(number, ir.IntType(32)))
            inside = builder.icmp_unsigned("<", number, number.type(16))
            found = builder.insert_element(found, builder.select(inside, entry, number.type(0)), ir.IntType(32)(lane))
        return found

    codes.call, lookup.call = call, look_up
