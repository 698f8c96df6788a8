"""Compilation on demand, kept on disk: what a kernel is, and where its machine code lies.

A kernel is a native function `(thread, threads, address of its arguments)` that a recorded program calls by address.
Nothing is compiled at import: the first use of `Kernel.address` compiles it or loads it from the cache folder. The
folder's name carries a hash of the engine's sources, the processor and the SIMD target, because Numba's own key
notices neither a changed callee nor an environment variable.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np
import platformdirs
from numba import carray, cfunc, njit, types
from numba.core import config
from numba.np.numpy_support import from_dtype

from tinyllm_engine import simd

KEPT_FOLDERS = 4  # forced SIMD targets and an older version side by side


def cache_root() -> Path:
    """The folder that holds one kernel folder per version, processor and SIMD target."""
    override = os.environ.get("TINYLLM_CACHE_DIR")
    return Path(override) / "kernels" if override else platformdirs.user_cache_path("tinyllm-chat") / "kernels"


def cache_key() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    for fact in (
        numba.__version__,
        llvmlite.__version__,
        np.__version__,
        platform.python_version(),
        config.CPU_NAME or llvm.get_host_cpu_name(),
        config.CPU_FEATURES or "",
    ):
        digest.update(str(fact).encode())
    return f"{simd.TARGET}-{digest.hexdigest()[:16]}"


def _open_folder() -> Path | None:
    """The cache folder, created private; None where it cannot be written (kernels are then compiled each time)."""
    folder = cache_root() / cache_key()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError:
        return None
    return folder


CACHE_FOLDER = _open_folder()
if CACHE_FOLDER is not None:
    config.CACHE_DIR = str(CACHE_FOLDER)


def remove_old_folders() -> None:
    """Forgets the kernels of earlier versions, all but the latest few."""
    if CACHE_FOLDER is None:
        return
    try:
        os.utime(CACHE_FOLDER)
        folders = sorted(CACHE_FOLDER.parent.iterdir(), key=lambda f: f.stat().st_mtime, reverse=True)
    except OSError:
        return
    for folder in folders[KEPT_FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)


# Code that kernels are made of: inlined into each kernel that calls it. No fast-math: a sum has the same bits in every
# kernel that computes it in the same order, so decode and prefill agree exactly.
native = njit(nogil=True, error_model="numpy")
inlined = njit(nogil=True, error_model="numpy", forceinline=True)


def compiled(signature: Any) -> Callable[[Callable], Callable]:
    """A native function called from Python: compiled on first call, kept in the cache folder, without the GIL."""

    def decorate(function: Callable) -> Callable:
        return njit(signature, nogil=True, error_model="numpy", cache=CACHE_FOLDER is not None)(function)

    return decorate


class Kernel:
    """A native function of a recorded program and the layout of its arguments.

    `arguments` is a NumPy structured dtype; the function sees one record of it. `numpy` is the same computation in
    NumPy, on the arrays themselves; the debug mode of Program compares the two.
    """

    def __init__(self, function: Callable, arguments: np.dtype):
        self.name = function.__name__
        self.arguments = arguments
        self._function = function
        self._compiled: Any = None

    @property
    def is_compiled(self) -> bool:
        return self._compiled is not None

    @property
    def address(self) -> int:
        if self._compiled is None:
            self._compiled = self._compile()
        return self._compiled.address

    def _compile(self) -> Any:
        signature = types.void(types.intp, types.intp, types.CPointer(from_dtype(self.arguments)))
        options = {"nopython": True, "error_model": "numpy"}
        if CACHE_FOLDER is None:
            return cfunc(signature, **options)(self._function)
        try:
            return cfunc(signature, cache=True, **options)(self._function)
        except Exception:
            # A damaged or foreign cache file, whatever it made Numba raise: throw the folder's contents away and
            # compile. An error of our own source comes back from the second attempt.
            shutil.rmtree(CACHE_FOLDER, ignore_errors=True)
            CACHE_FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
            return cfunc(signature, **options)(self._function)

    def __repr__(self) -> str:
        return f"Kernel({self.name})"


def kernel(arguments: np.dtype) -> Callable[[Callable], Kernel]:
    """Declares `function(thread, threads, pointer)` as a kernel whose arguments have this layout."""
    return lambda function: Kernel(function, arguments)


@inlined
def record(pointer):
    """The argument record behind a kernel's pointer."""
    return carray(pointer, 1)[0]


def layout(*fields: str) -> np.dtype:
    """An argument layout: addresses, counts and strides are int64; a name with `:f` is a float32."""
    return np.dtype([(f[:-2], np.float32) if f.endswith(":f") else (f, np.int64) for f in fields], align=True)
