"""What every test relies on: `support` is importable, and property tests draw the same examples on every machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

# No deadline: a busy machine must not fail a test.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("repeatable")

MANY = 1000  # tests; a run of a few compiles what it needs by itself


def pytest_collection_finish(session):
    """Compiles all kernels before many tests that need them, in one process per processor.

    Of workers that test side by side the first one does it, and the others wait and find them cached.
    """
    if len(session.items) < MANY or session.config.option.collectonly:
        return
    from support.all_kernels import compile_all_kernels

    with one_at_a_time():
        compile_all_kernels()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Texts of every kind are logged by tests; those on the way from a worker must be UTF-8."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Among the processes that share a folder of kernels."""
    from tinyllm_engine.jit import CACHE_FOLDER

    try:
        import fcntl
    except ImportError:  # Windows: they all compile
        yield
        return
    if CACHE_FOLDER is None:
        yield
        return
    with open(Path(CACHE_FOLDER) / ".tests", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
