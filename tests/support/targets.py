"""The SIMD targets besides the one in use, and test modules run on them in processes of their own.

A target is chosen when the engine is imported. A processor without any vector extension is played by naming another
one to the compiler.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from tinyllm_engine import simd
from tinyllm_engine.errors import EngineError

OLD_PROCESSOR = "x86-64-v2"


def other_targets() -> list[str]:
    """Names for `run_tests_on`; none where this is such a process already."""
    if "TINYLLM_TEST_TARGET" in os.environ:
        return []
    return [name for name in simd.TARGETS if name != simd.TARGET] + [OLD_PROCESSOR]


def run_tests_on(target: str, module: str, folder: Path, *options: str) -> None:
    """Runs a test module with the engine compiled for this target; skips where the machine cannot.

    folder: where the kernels go
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "NUMBA_"))}
    environment |= {"TINYLLM_TEST_TARGET": target, "TINYLLM_CACHE_DIR": str(folder)}
    if target == OLD_PROCESSOR:
        if platform.machine().lower() not in ("x86_64", "amd64"):
            pytest.skip(f"no {target} code runs on {platform.machine()}")
        environment |= {"NUMBA_CPU_NAME": target, "NUMBA_CPU_FEATURES": ""}
        environment.pop("TINYLLM_SIMD", None)
    else:
        try:
            simd.choose_target(target)
        except EngineError as error:
            pytest.skip(str(error))
        environment["TINYLLM_SIMD"] = target
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", module, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
