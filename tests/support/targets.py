"""The SIMD targets besides the one in use, and tests run on them in processes of their own.

A target is chosen when the engine is imported. A processor without any vector extension is played by naming another
one to the compiler.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from tinyllm_engine import simd
from tinyllm_engine.errors import EngineError

from support.cross import PATIENCE

UNIT_TESTS = Path(__file__).resolve().parents[1] / "unit"
OLD_PROCESSOR = "x86-64-v2"
ALL_TARGETS = (*simd.TARGETS, OLD_PROCESSOR)


def why_not(target: str) -> str | None:
    """Why nothing needs to be run, or can be, on this target here; None where it can."""
    if target == simd.TARGET:
        return f"{target} is what all tests run on here"
    if target == OLD_PROCESSOR:
        return None if simd.X86 else f"no {target} code runs on {platform.machine()}"
    try:
        simd.choose_target(target)
    except EngineError as error:
        return str(error)
    return None


class TestRun:
    """Tests run with the engine compiled for another target; begun at once, looked at later."""

    __test__ = False  # its name says otherwise to pytest

    def __init__(self, target: str, output: Path, *tests: str):
        """tests: files under tests/unit, or tests in them. output: the file for what they print."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "NUMBA_"))}
        environment.pop("TINYLLM_SIMD", None)
        if target == OLD_PROCESSOR:
            environment |= {"NUMBA_CPU_NAME": target, "NUMBA_CPU_FEATURES": ""}
        else:
            environment["TINYLLM_SIMD"] = target
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                [*command, *(str(UNIT_TESTS / test) for test in tests)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def result(self) -> tuple[int, str]:
        """Exit code and output, when it has ended."""
        code = self._process.wait(timeout=PATIENCE - 10)
        return code, self._output.read_text(errors="replace")

    def end(self) -> None:
        """Ends it if it has not ended by itself."""
        self._process.kill()
        self._process.wait()
