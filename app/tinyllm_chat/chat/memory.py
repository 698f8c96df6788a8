"""How much memory a model may still take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """Bytes that can be used without swapping, file cache counted as free; None where the system does not say."""
    if sys.platform == "linux":
        return _linux_free(Path("/proc/meminfo"), _CGROUP)
    if sys.platform == "win32":
        return _windows_free()
    if sys.platform == "darwin":
        return _macos_free()
    return None


def _linux_free(meminfo: Path, cgroup: Path) -> int | None:
    known = [_available(meminfo), _cgroup_free(cgroup)]
    return min((free for free in known if free is not None), default=None)


def _available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _cgroup_free(cgroup: Path) -> int | None:
    """What a container may still take; None without a limit."""
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit_file, usage_file = cgroup / limit_name, cgroup / usage_name
        try:
            limit, usage = int(limit_file.read_text()), int(usage_file.read_text())
            stat = limit_file.with_name("memory.stat").read_text().split()
        except (OSError, ValueError):  # "max": no limit
            continue
        # The file cache counts as used, but goes when the memory is wanted.
        cache = int(stat[stat.index(cache_name) + 1]) if cache_name in stat else 0
        return max(0, limit - usage + cache)
    return None


def _windows_free() -> int | None:
    import ctypes

    class MemoryStatus(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total", ctypes.c_uint64),
            ("available", ctypes.c_uint64),
            ("page_file_total", ctypes.c_uint64),
            ("page_file_available", ctypes.c_uint64),
            ("virtual_total", ctypes.c_uint64),
            ("virtual_available", ctypes.c_uint64),
            ("extended", ctypes.c_uint64),
        )

    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined, unused-ignore]
    return int(status.available) if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def _macos_free() -> int | None:
    try:
        text = subprocess.run(["vm_stat"], capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return _parse_vm_stat(text)


def _parse_vm_stat(text: str) -> int | None:
    """Free, inactive, speculative and purgeable pages of `vm_stat`'s report, in bytes."""
    page, pages = 4096, 0
    for line in text.splitlines():
        if "page size of" in line:
            page = int(line.split("page size of")[1].split()[0])
        name, _, value = line.partition(":")
        if name in ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable"):
            pages += int(value.strip().rstrip("."))
    return pages * page or None
