"""What is loaded when, seen from fresh interpreters: the engine without a screen, the screen without compilers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Names on Unix only; the program must at least be importable without them.
UNIX_ONLY = ("fcntl", "termios", "tty", "pty", "resource", "pwd", "grp", "syslog")


def run(source: str) -> str:
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def loaded_after(source: str) -> set[str]:
    """The top-level modules, and our own modules in full, that a fresh interpreter holds after `source`."""
    modules = json.loads(run(f"{source}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))").splitlines()[-1])
    ours = {name for name in modules if name.startswith("tinyllm_")}
    return ours | {name.split(".")[0] for name in modules}


def test_engine_loads_no_screen_and_no_chat() -> None:
    loaded = loaded_after(
        "import pkgutil, importlib, tinyllm_engine\n"
        "for module in pkgutil.walk_packages(tinyllm_engine.__path__, 'tinyllm_engine.'):\n"
        "    importlib.import_module(module.name)"
    )
    assert "tinyllm_engine.gguf" in loaded
    assert not loaded & {"textual", "rich", "click", "tinyllm_chat"}


def test_engine_import_alone_loads_no_compiler() -> None:
    assert not loaded_after("import tinyllm_engine") & {"numba", "llvmlite", "textual", "rich"}


@pytest.mark.skipif(sys.platform == "win32", reason="the home folder is found in another way there")
def test_the_engine_of_a_user_without_a_home_keeps_no_kernels() -> None:
    said = run(
        "import os, pwd\n"
        "for name in ('HOME', 'XDG_CACHE_HOME', 'TINYLLM_CACHE_DIR'):\n"
        "    os.environ.pop(name, None)\n"
        "def nobody(*of):\n"
        "    raise KeyError(of)\n"
        "pwd.getpwuid = nobody\n"
        "from tinyllm_engine.jit import CACHE_FOLDER\n"
        "print(CACHE_FOLDER)"
    )
    assert said == "None\n"


def test_chat_layer_loads_no_screen_and_no_engine() -> None:
    loaded = loaded_after(
        "import pkgutil, importlib, tinyllm_chat.chat\n"
        "for module in pkgutil.walk_packages(tinyllm_chat.chat.__path__, 'tinyllm_chat.chat.'):\n"
        "    importlib.import_module(module.name)"
    )
    assert "tinyllm_chat.chat.session" in loaded
    assert not loaded & {"textual", "rich", "click", "numba", "llvmlite", "numpy"}


def test_command_line_alone_loads_only_click() -> None:
    loaded = loaded_after("import tinyllm_chat.cli.program")
    assert not loaded & {"textual", "rich", "numba", "numpy", "tomlkit", "jinja2", "regex"}


def test_first_paint_needs_no_compiler() -> None:
    """The screen is built and painted once, with all that the command line imports for it; then modules are counted."""
    loaded = loaded_after(
        "import asyncio, tinyllm_chat.cli.chat, tinyllm_chat.cli.models\n"
        "from tinyllm_chat.chat.local_backend import LocalBackend\n"
        "from tinyllm_chat.chat.session import Session\n"
        "from tinyllm_chat.chat.settings import Settings\n"
        "from tinyllm_chat.tui.app import TinyLLMChatApp\n"
        "async def paint():\n"
        "    app = TinyLLMChatApp(Session(LocalBackend(), None, Settings()))\n"
        "    async with app.run_test(size=(80, 24)) as pilot:\n"
        "        await pilot.pause()\n"
        "asyncio.run(paint())"
    )
    assert "textual" in loaded
    assert not loaded & {"numba", "llvmlite", "numpy"}


@pytest.mark.parametrize("package", ["tinyllm_engine", "tinyllm_chat"])
def test_everything_imports_without_unix(package: str) -> None:
    # asyncio and subprocess themselves import some of these on Unix: they come first, as what they are on each system.
    out = run(
        "import asyncio, importlib, os, pkgutil, subprocess, sys\n"
        f"for name in {UNIX_ONLY!r}: sys.modules[name] = None\n"
        "del os.sched_getaffinity\n"
        f"package = importlib.import_module({package!r})\n"
        f"for module in pkgutil.walk_packages(package.__path__, {package + '.'!r}):\n"
        "    importlib.import_module(module.name)\n"
        "    print(module.name)\n"
    )
    assert len(out.splitlines()) > 5
