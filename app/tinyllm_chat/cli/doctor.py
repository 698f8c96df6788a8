"""`tinyllm-chat doctor`: what a bug report needs to say about this machine. Each part may fail by itself."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from tinyllm_chat import __version__
from tinyllm_chat.cli.text import one_line
from tinyllm_chat.tui.text import size

PACKAGES = (
    *("textual", "rich", "numpy", "numba", "llvmlite"),
    *("platformdirs", "regex", "jinja2", "click", "tomlkit", "markdown-it-py", "pygments"),
)
# What changes how the program behaves or what it can show.
VARIABLES = ("TERM", "COLORTERM", "TERM_PROGRAM", "TMUX", "LANG", "LC_ALL", "NO_COLOR", "PYTHONUTF8")
PREFIXES = ("TINYLLM_", "NUMBA_", "TEXTUAL", "OPENBLAS_", "OMP_")

Lines = Iterator[tuple[str, str]]


@click.command("doctor")
def command() -> None:
    """Prints versions, processor, folders and models: paste it into a bug report."""
    sections: tuple[tuple[str, Callable[[], Lines]], ...] = (
        ("Versions", _versions),
        ("Machine", _machine),
        ("Engine", _engine),
        ("Terminal", _terminal),
        ("Folders", _folders),
        ("Models", _models),
        ("Environment", _environment),
    )
    for title, section in sections:
        click.echo(title)
        try:
            lines = list(section())
            width = max((len(name) for name, _ in lines), default=0)
            for name, value in lines:
                click.echo(f"  {name:{width}}  {one_line(value)}".rstrip())
        except Exception as error:  # whatever is broken is what the report is about
            click.echo(f"  failed: {type(error).__name__}: {one_line(str(error))}")


def _versions() -> Lines:
    yield "tinyllm-chat", __version__
    yield "python", f"{platform.python_version()} {platform.python_implementation()}, {sys.executable}"
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "missing"


def _machine() -> Lines:
    from tinyllm_chat.chat.memory import free_memory

    yield "system", platform.platform()
    yield "processor", processor_name()
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:
        usable = os.cpu_count() or 0
    yield "processors", f"{os.cpu_count()}, of which this process may use {usable}"
    free = free_memory()
    yield "free memory", "unknown" if free is None else size(free)


def processor_name() -> str:
    """The processor's own name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return names[0] if names else platform.processor() or platform.machine() or "unknown"


def _engine() -> Lines:
    import llvmlite.binding as llvm
    from tinyllm_engine import jit, processors, simd

    yield "llvm", f"{'.'.join(map(str, llvm.llvm_version_info))} for {llvm.get_host_cpu_name()}"
    forced = " (TINYLLM_SIMD)" if os.environ.get("TINYLLM_SIMD") else ""
    yield "simd", f"{simd.TARGET}{forced}; features: {', '.join(sorted(_features()))}"
    quota = processors.cgroup_quota()
    limits = f"{processors.physical_cores() or 'unknown'} cores, quota {'none' if quota is None else f'{quota:g}'}"
    yield "threads", f"{processors.default_threads()} ({limits})"
    folder = jit.CACHE_FOLDER
    if folder is None:
        yield "kernel cache", f"{jit.cache_root()} cannot be written: kernels are compiled at every start"
    else:
        files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        yield "kernel cache", f"{folder}: {len(files)} files, {size(sum(files))}"


def _features() -> set[str]:
    """Of the features that an SIMD choice can rest on, those that this processor has."""
    from tinyllm_engine import simd

    return set().union(*simd.TARGETS.values()) & simd.target_features()


def _terminal() -> Lines:
    columns, rows = shutil.get_terminal_size()
    yield "size", f"{columns}x{rows}"
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            yield name, "closed"
        else:
            yield name, f"{'terminal' if stream.isatty() else 'no terminal'}, {stream.encoding}"


def _folders() -> Lines:
    from tinyllm_chat.chat.kept_cache import kept_bytes
    from tinyllm_chat.chat.paths import Paths

    places = Paths.default()
    for name, path in places.listed().items():
        yield name, f"{path}  {_state(path)}"
    count, taken = kept_bytes(places.transcripts)
    yield "kept caches", f"of {count} chats, {size(taken)}" if count else "none"


def _state(path: Path) -> str:
    """Whether a file or folder is there, or could be."""
    if path.exists():
        return "writable" if os.access(path, os.W_OK) else "NOT WRITABLE"
    parent = next((folder for folder in path.parents if folder.exists()), path)
    return "not there yet" if os.access(parent, os.W_OK) else f"not there, and {parent} is NOT WRITABLE"


def _models() -> Lines:
    from tinyllm_chat.chat.catalogue import load_catalogue
    from tinyllm_chat.chat.models import find_models
    from tinyllm_chat.chat.paths import Paths

    for model in find_models(Paths.default()):
        yield size(model.size), f"{model.name}  {model.path}"
    yield "catalogue", ", ".join(load_catalogue())


def _environment() -> Lines:
    for name, value in sorted(os.environ.items()):
        if name in VARIABLES or name.startswith(PREFIXES):
            yield name, "(set)" if name == "TINYLLM_SYSTEM_PROMPT" else value  # a person's own words
