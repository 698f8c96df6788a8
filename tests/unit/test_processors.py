"""How many threads: what a process may use of a machine's processors."""

import os

import pytest
from tinyllm_engine import processors
from tinyllm_engine.processors import cgroup_quota, default_threads, physical_cores


@pytest.fixture
def machine(monkeypatch):
    """Pretends: machine(processors we may use, physical cores, quota)."""

    def pretend(usable, cores, quota):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
        monkeypatch.setattr(processors, "physical_cores", lambda: cores)
        monkeypatch.setattr(processors, "cgroup_quota", lambda: quota)

    return pretend


@pytest.mark.parametrize(
    ("usable", "cores", "quota", "threads"),
    [(8, 4, None, 4), (2, 4, None, 2), (8, 8, 2.5, 2), (8, 8, 0.5, 1), (8, None, None, 8), (1, 1, 16.0, 1)],
)
def test_default_threads(machine, usable, cores, quota, threads):
    machine(usable, cores, quota)
    assert default_threads() == threads


def test_default_threads_where_the_system_has_no_affinity(machine, monkeypatch):
    machine(1, None, None)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert default_threads() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert default_threads() == 1


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "garbage\n"}, None),
        ({"cpu.max": "\n"}, None),
        ({"cpu.max": "100000 0\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "much\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_cgroup_quota(tmp_path, files, quota):
    assert cgroup_quota(tree(tmp_path, files)) == quota


def topology(*cores):
    """(package, core) of each logical processor."""
    files = {}
    for number, (package, core) in enumerate(cores):
        files[f"cpu{number}/topology/physical_package_id"] = f"{package}\n"
        files[f"cpu{number}/topology/core_id"] = f"{core}\n"
    return files


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        (topology((0, 0), (0, 1)), 2),
        (topology((0, 0), (0, 1), (0, 0), (0, 1)), 2),
        (topology((0, 0), (1, 0)), 2),
        (topology((0, 0)) | {"cpufreq/policy": "x", "cpuidle/topology": "x"}, 1),
        ({"cpu0/topology/core_id": "0\n"}, None),
    ],
)
def test_physical_cores(tmp_path, files, cores):
    assert physical_cores(tree(tmp_path, files)) == cores
