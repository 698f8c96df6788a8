"""Processors this machine does not have: kernels are compiled for them, to be read or to run in an emulator.

A processor is played in a process of its own: its name and features go to Numba by the environment, its architecture
by `set_compiler`, before the engine is imported.

    python -m support.cross TARGET FOLDER MODULE.KERNEL...    writes FOLDER/MODULE.KERNEL.s for each kernel
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm

TESTS = Path(__file__).resolve().parents[1]
PATIENCE = 900  # seconds for what mostly compiles, beside other tests and on a slow machine


class Processor(NamedTuple):
    """What LLVM is told. features: those that it lists for such a processor, as far as the engine asks for them."""

    triple: str
    name: str
    features: tuple[str, ...]

    @property
    def feature_string(self) -> str:
        return ",".join(f"+{feature}" for feature in self.features)


AVX2 = ("avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "lzcnt", "movbe")
PROCESSORS = {
    "avx512": Processor(
        "x86_64-unknown-linux-gnu",
        "cascadelake",
        (*AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni"),
    ),
    "avxvnni": Processor("x86_64-unknown-linux-gnu", "alderlake", (*AVX2, "avxvnni")),
    "neon": Processor("aarch64-unknown-linux-gnu", "neoverse-n1", ("fp-armv8", "neon", "lse", "dotprod")),
}


def environment(target: str | None = None) -> dict[str, str]:
    """The environment of a process that imports the engine for this target, and keeps nothing it compiles."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "NUMBA_", "TINYLLM_"))}
    path = os.pathsep.join(filter(None, (str(TESTS), kept.get("PYTHONPATH"))))
    kept |= {"PYTHONPATH": path, "TINYLLM_CACHE_DIR": os.devnull}
    if target is not None:
        processor = PROCESSORS[target]
        kept |= {"NUMBA_CPU_NAME": processor.name, "NUMBA_CPU_FEATURES": processor.feature_string}
    return kept


def run(command: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Runs Python with these arguments; returns the exit code and all it printed."""
    done = subprocess.run(
        [sys.executable, *command],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE - 10,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def run_tests(plugin: str, env: dict[str, str], *tests: str) -> tuple[int, str]:
    """Runs tests of tests/unit with a module of `support` loaded before the engine is."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", f"support.{plugin}"]
    return run(["-m", "pytest", *options, *(str(TESTS / "unit" / test) for test in tests)], env)


def assembly(target: str, folder: Path, *kernels: str) -> dict[str, str]:
    """The assembly of kernels ("matvec.matvec_q4_0") compiled for a target."""
    code, output = run(["-m", "support.cross", target, str(folder), *kernels], environment(target))
    assert code == 0, output
    return {kernel: (folder / f"{kernel}.s").read_text() for kernel in kernels}


def can_compile(triple: str) -> bool:
    """Whether LLVM has been built with this architecture, as it is where it comes with llvmlite."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        llvm.Target.from_triple(triple)
    except RuntimeError:
        return False
    return True


# --- in the process that plays the processor --------------------------------------------------------------------------

compiled: dict[int, tuple[Any, str]] = {}  # what stands for the address of a function -> (its library, its name)


def set_compiler(triple: str) -> None:
    """Makes Numba compile for another architecture. Machine code is never loaded: `compiled` says what there is."""
    from numba.core import codegen

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: triple
    numbers = count(16, 16)

    def address_of(library: Any, name: str) -> int:
        library._ensure_finalized()
        address = next(numbers)
        compiled[address] = library, name
        return address

    codegen.JITCodeLibrary._finalize_specific = lambda library: None
    codegen.JITCodeLibrary.get_pointer_to_function = address_of
    codegen.JITCPUCodegen.set_env = lambda codegen, name, environment: None


def main(target: str, folder: str, *kernels: str) -> None:
    set_compiler(PROCESSORS[target].triple)
    from tinyllm_engine import simd

    assert target == simd.TARGET
    for name in kernels:
        module, kernel = name.split(".")
        library, _ = compiled[getattr(import_module(f"tinyllm_engine.kernels.{module}"), kernel).address]
        Path(folder, f"{name}.s").write_text(library.get_asm_str())


if __name__ == "__main__":
    main(*sys.argv[1:])
