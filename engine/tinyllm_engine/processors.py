"""How many threads are worth having: what this process may use of the machine's processors."""

from __future__ import annotations

import math
import os
from pathlib import Path


def default_threads() -> int:
    """min(processors this process may use, cgroup CPU quota, physical cores), at least 1."""
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:
        usable = os.cpu_count() or 1
    limits = [usable, physical_cores() or usable]
    quota = cgroup_quota()
    if quota is not None:
        limits.append(max(1, math.floor(quota)))
    return max(1, min(limits))


def cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Processors granted by the control group (version 2, then 1), None without a limit."""
    try:
        limit, period = (root / "cpu.max").read_text().split()[:2]
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        limit_us = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu" / "cpu.cfs_period_us").read_text())
        return limit_us / period_us if limit_us > 0 and period_us > 0 else None
    except (OSError, ValueError):
        return None


def physical_cores(root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Distinct (package, core) pairs, None where the system does not say."""
    cores = set()
    for topology in root.glob("cpu[0-9]*/topology"):
        try:
            cores.add(((topology / "physical_package_id").read_text(), (topology / "core_id").read_text()))
        except OSError:
            return None
    return len(cores) or None
