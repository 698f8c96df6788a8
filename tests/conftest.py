"""What every test relies on: `support` is importable, and property tests draw the same examples on every machine."""

import sys
from collections import Counter
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
# Files that keep a worker longest, though some hold few tests: begun early, nobody waits for them at the end. Those
# that compile for other processors are not next to each other.
LONG_FILES = (
    "unit/test_targets.py",
    "unit/test_kernels.py",
    "golden/test_archs.py",
    "pilot/test_sizes.py",
    "unit/test_neon_run.py",
    "golden/test_perplexity.py",
    "pilot/test_hostile_text.py",
    "unit/test_cross_targets.py",
    "golden/test_smollm2.py",
    "pilot/test_actions.py",
    "cli/test_answer.py",
    "golden/test_cache_types.py",
    "e2e/test_tmux.py",
)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers():
    """`-n auto`: more workers than processors, for a test of the screen or of a child process mostly waits."""
    processors = yield
    return processors + (processors + 1) // 2


def pytest_configure(config):
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # it knows of the number of tests only


def pytest_collection_modifyitems(config, items):
    """Among several workers files are taken in this order: the long ones, then those of many tests."""
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)
        places = {name: place for place, name in enumerate(LONG_FILES)}
        items.sort(key=lambda item: (places.get("/".join(item.path.parts[-2:]), len(places)), -tests[item.path]))


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
