"""Starting and leaving: what the first screen may import, the environment Textual sees, and file descriptor 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tinyllm_chat.tui.guard import stderr_to_log

FIRST_SCREEN = """
import asyncio, sys
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.tui.app import TinyLLMChatApp

async def main():
    backend = ScriptedBackend(automatic=False)
    app = TinyLLMChatApp(Session(backend, None, Settings()), model="x.gguf")
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        assert "Enter send" in app.screen._compositor.render_strips()[-1].text
        print(*sorted({name.partition(".")[0] for name in sys.modules}))

asyncio.run(main())
"""


def python(code: str, **environment: str) -> str:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_screen_stands_before_anything_heavy_is_imported():
    loaded = set(python(FIRST_SCREEN).split())
    assert "textual" in loaded
    assert not loaded & {"numba", "llvmlite", "numpy", "tinyllm_engine", "jinja2", "markdown_it", "pygments"}


def test_escape_is_not_waited_for():
    code = "import tinyllm_chat.tui; from textual import constants; print(constants.ESCAPE_DELAY)"
    environment = {name: value for name, value in os.environ.items() if name != "ESCDELAY"}
    assert python(code, ESCDELAY="60").strip() == "0.06"  # what the user set stays
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "0.025"


GUARDED = """
import os, sys
from pathlib import Path
from tinyllm_chat.tui.guard import stderr_to_log
before = sys.stderr, sys.__stderr__
print("python before", file=sys.stderr, flush=True)
with stderr_to_log(Path(sys.argv[1])):
    os.write(2, b"native\\n")
    print("python", file=sys.stderr, flush=True)
    sys.__stderr__.write("screen\\n")
    sys.__stderr__.flush()
assert (sys.stderr, sys.__stderr__) == before
os.write(2, b"native after\\n")
print("python after", file=sys.stderr, flush=True)
"""


def guarded(log: str) -> list[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, log], env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_native_output_goes_to_the_log_and_the_screen_to_the_terminal(tmp_path):
    log = tmp_path / "state" / "chat.log"
    assert guarded(str(log)) == ["python before", "screen", "native after", "python after"]
    assert log.read_text().split() == ["native", "python"]
    if os.name == "posix":
        assert log.stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_written_is_no_reason_to_write_on_the_screen(tmp_path):
    (tmp_path / "file").write_text("")
    assert guarded(str(tmp_path / "file" / "chat.log")) == ["python before", "screen", "native after", "python after"]


def test_the_guard_stands_aside_where_there_is_no_standard_error(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "__stderr__", None)
    with stderr_to_log(tmp_path / "log"):
        assert sys.__stderr__ is None
    assert not (tmp_path / "log").exists()


ON_A_TERMINAL = """
import os, sys
from pathlib import Path
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.tui import app

class Noisy(ScriptedBackend):
    def open(self, path):
        os.write(2, b"NOISE FROM NATIVE CODE")
        super().open(path)

def break_down(self):
    raise RuntimeError("a bug")
def leave_soon(self):
    self.set_timer(1.0, self.exit)
if "broken" in sys.argv:
    app.TinyLLMChatApp.compose = break_down
app.TinyLLMChatApp.on_ready = leave_soon
session = Session(Noisy(), None, Settings())
interval = sys.getswitchinterval()
code = app.run(session, model="x.gguf", log_file=Path(sys.argv[1]))
assert sys.getswitchinterval() == interval
print("left with", code, flush=True)
"""


def on_a_terminal(*arguments: str) -> str:
    """Runs the app on a pseudo-terminal until it leaves; returns all it wrote."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PYTHONPATH=os.pathsep.join(sys.path), TERM="xterm-256color")
        os.execv(sys.executable, [sys.executable, "-c", ON_A_TERMINAL, *arguments])
    output = b""
    try:
        while data := os.read(terminal, 65536):
            output += data
    except OSError:  # how the end of a pseudo-terminal reads on Linux
        pass
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert status == 0, output.decode(errors="replace")[-2000:]
    return output.decode(errors="replace")


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_noise_does_not_reach_the_terminal_and_leaving_restores_it(tmp_path):
    log = tmp_path / "log"
    output = on_a_terminal(str(log))
    assert "NOISE" not in output
    assert "NOISE FROM NATIVE CODE" in log.read_text()
    assert "Enter" in output
    assert output.rstrip().endswith("left with 0")
    assert "\x1b[?1049l" in output  # back from the alternate screen


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_bug_is_one_line_on_the_terminal_and_a_traceback_in_the_log(tmp_path):
    log = tmp_path / "log"
    output = on_a_terminal(str(log), "broken")
    after = output[output.rindex("\x1b[?1049l") :]
    assert f"the screen stopped with an unexpected error; details are in {log}" in after.replace("\r\n", "")
    assert "Traceback" not in after
    assert output.rstrip().endswith("left with 1")
    assert "RuntimeError: a bug" in log.read_text()


def test_the_style_sheet_is_part_of_the_package():
    import tinyllm_chat.tui

    assert Path(tinyllm_chat.tui.__file__).with_name("style.tcss").is_file()
