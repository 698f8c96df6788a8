"""Compilation on demand, kept on disk: what a kernel is, and where its machine code lies.

A kernel is a native function `(thread, threads, address of its arguments)` that a recorded program calls by address.
Nothing is compiled at import: the first use of `Kernel.address` compiles it or loads it from the cache folder. The
folder's name carries a hash of the engine's sources, the processor and the SIMD target, because Numba's own key
notices neither a changed callee nor an environment variable.
"""

from __future__ import annotations

import contextlib
import ctypes
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


def compiled_sources() -> list[Path]:
    """The files whose text ends up in machine code."""
    package = Path(__file__).parent
    return [
        package / "agreed.py",
        package / "jit.py",
        package / "system_calls.py",
        package / "team.py",
        *sorted(package.glob("simd/*.py")),
        *sorted(package.glob("kernels/*.py")),
        *sorted(package.glob("quants/*.*")),  # what kernels look up
    ]


def cache_key() -> str:
    digest = hashlib.sha256()
    for source in compiled_sources():
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
    try:
        folder = cache_root() / cache_key()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError):  # platformdirs raises the latter for a user without a home
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


# Code that kernels are made of. No fast-math: a sum has the same bits in every
# kernel that computes it in the same order, so decode and prefill agree exactly.
_LEAN = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# A kernel in whose code an address of a function is left is never cached: who gets functions is inlined or shared.
native = njit(**_LEAN)  # called: compiled once for all its callers
inlined = njit(**_LEAN, forceinline=True)  # small, or in an inner loop
# Pasted into its caller before types are known: for the large bodies that kernels of several types share. Anything
# compiled on its own is optimized once for itself and again in everything that contains it.
shared = njit(**_LEAN, inline="always")


class Compiled:
    """Something compiled when first needed and kept in the cache folder. `module:name` is where it can be found."""

    def __init__(self, function: Callable):
        self.name: str = function.__name__
        self.place = f"{function.__module__}:{self.name}"
        self._function = function
        self._compiled: Any = None

    def prepare(self) -> None:
        """Compiles it, or loads it from the cache folder; later calls do nothing."""
        if self._compiled is not None:
            return
        try:
            self._compiled = self._compile(cache=CACHE_FOLDER is not None)
        except Exception:
            if CACHE_FOLDER is None:
                raise
            # A damaged or foreign cache file, whatever it made Numba raise: throw the folder's contents away and
            # compile. An error of our own source comes back from the second attempt.
            shutil.rmtree(CACHE_FOLDER, ignore_errors=True)
            CACHE_FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._compiled = self._compile(cache=False)
        else:
            if CACHE_FOLDER is not None:
                with contextlib.suppress(OSError):
                    (CACHE_FOLDER / f"{self.name}.done").touch()

    @property
    def is_prepared(self) -> bool:
        return self._compiled is not None

    @property
    def is_cached(self) -> bool:
        """Whether some process has left it in the cache folder."""
        return CACHE_FOLDER is not None and (CACHE_FOLDER / f"{self.name}.done").exists()

    def _compile(self, cache: bool) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class Function(Compiled):
    """A native function called from Python, without the GIL while it runs."""

    def __init__(self, function: Callable, signature: Any):
        super().__init__(function)
        self._signature = signature

    def _compile(self, cache: bool) -> Any:
        return njit(self._signature, nogil=True, error_model="numpy", cache=cache)(self._function)

    def __call__(self, *arguments: Any) -> Any:
        self.prepare()
        return self._compiled(*arguments)


def compiled(signature: Any) -> Callable[[Callable], Function]:
    """Declares a native function of this Numba signature that Python calls."""
    return lambda function: Function(function, signature)


class Addressed(Compiled):
    """A native function that compiled code calls by address."""

    @property
    def address(self) -> int:
        self.prepare()
        return self._compiled.address


class Step(Addressed):
    """A part of a kernel that depends on a type: the kernel is told its address and calls it with integers.

    So a kernel with steps for K and for V is compiled once, and not for each pair of their types.
    """

    def _compile(self, cache: bool) -> Any:
        signature = types.void(*[types.intp] * self._function.__code__.co_argcount)
        return cfunc(signature, cache=cache, nopython=True, error_model="numpy")(self._function)


step = Step


class Kernel(Addressed):
    """A native function of a recorded program and the layout of its arguments: the function sees one such record."""

    def __init__(self, function: Callable, arguments: np.dtype):
        super().__init__(function)
        self.arguments = arguments

        self._call: Any = None

    def __call__(self, thread: int, threads: int, arguments: int) -> None:
        """Calls it alone, from Python, without the GIL while it runs; `arguments` is the address of such a record."""
        if self._call is None:
            self.prepare()
            self._call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(self.address)
        self._call(thread, threads, arguments)

    def _compile(self, cache: bool) -> Any:
        signature = types.void(types.intp, types.intp, types.CPointer(from_dtype(self.arguments)))
        return cfunc(signature, cache=cache, nopython=True, error_model="numpy")(self._function)


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
