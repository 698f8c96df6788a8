"""Getting kernels ready before they are needed: loaded where they are cached, else compiled by child processes.

LLVM does not compile in parallel within a process and leaves about 100 MB behind, so on a first start children compile
into the cache folder, one per processor, and this process only loads the results. Where that is impossible (no cache
folder, no interpreter to start) everything is compiled here, slower but the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from queue import SimpleQueue

from tinyllm_engine import jit
from tinyllm_engine.jit import Compiled
from tinyllm_engine.model import Progress

STAGE, LOADING = "compiling kernels", "loading kernels"
WORTH_CHILDREN = 3  # a child needs most of a second to import Numba
MAX_CHILDREN = 4
SLOWEST_FIRST = ("attend_", "matmul_", "sample", "values_", "scores_", "matvec_")


def prepare(wanted: Sequence[Compiled], progress: Progress | None = None) -> None:
    """Makes all of them callable; progress(stage, done, total) counts them."""
    report = progress or unreported
    wanted = [item for item in dict.fromkeys(wanted) if not item.is_prepared]
    missing = compile_missing(wanted, report)
    stage = STAGE if missing else LOADING
    for done, item in enumerate(wanted):
        if not missing or not item.is_cached:
            report(stage, done, len(wanted))
        item.prepare()
    report(stage, len(wanted), len(wanted))


def unreported(stage: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""


def compile_missing(wanted: Sequence[Compiled], report: Progress = unreported) -> list[Compiled]:
    """Has children fill the cache where that is worth it; returns what was missing from it before."""
    missing = [item for item in wanted if not item.is_cached]
    if len(missing) >= WORTH_CHILDREN and jit.CACHE_FOLDER is not None:
        _compile_in_children(missing, len(wanted), report)
    return missing


def _compile_in_children(missing: list[Compiled], total: int, report: Progress) -> None:
    """Hands the places out, slowest first, to children that ask for one after the other."""

    def weight(item: Compiled) -> int:
        return next((i for i, prefix in enumerate(SLOWEST_FIRST) if item.name.startswith(prefix)), len(SLOWEST_FIRST))

    places = SimpleQueue[str | None]()
    for item in sorted(missing, key=weight):
        places.put(item.place)
    count = min(os.cpu_count() or 1, MAX_CHILDREN, len(missing))
    finished = SimpleQueue[bool]()
    for _ in range(count):
        places.put(None)
        threading.Thread(target=_feed_child, args=(places, finished), daemon=True).start()
    done, running = total - len(missing), count
    report(STAGE, done, total)
    while running:
        if finished.get():
            done += 1
            report(STAGE, min(done, total), total)
        else:
            running -= 1


def _feed_child(places: SimpleQueue[str | None], finished: SimpleQueue[bool]) -> None:
    """One child: a place a line in, an answer a line out. Puts True per compiled place, False at the end."""
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "tinyllm_engine.preparation"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        with child:
            assert child.stdin is not None
            assert child.stdout is not None
            while (place := places.get()) is not None:
                child.stdin.write(place + "\n")
                child.stdin.flush()
                if not child.stdout.readline():
                    break  # it died: what it left undone is compiled in this process
                finished.put(True)
            child.stdin.close()
    except OSError:
        pass  # no child could be started, or it went away: see above
    finally:
        finished.put(False)


def serve() -> None:
    """The child: compiles what it is asked for until there is no more."""
    for line in sys.stdin:
        module, _, name = line.strip().partition(":")
        getattr(import_module(module), name).prepare()
        print(name, flush=True)


if __name__ == "__main__":
    serve()
