"""A whole session calls nobody: no telemetry, no look for updates, no crash report leaves the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.tiny_model import write

SESSION = """
import asyncio, contextlib, importlib.util, json, sys
from pathlib import Path

calls = []
LOCAL = ("socket.__new__", "socket.gethostname", "socket.bind")

def watch(event, arguments):
    if event.startswith("socket.") and event not in LOCAL or event in ("urllib.Request", "webbrowser.open"):
        calls.append([event, repr(arguments)])
    elif event == "subprocess.Popen":
        if arguments[1][1:3] != ["-m", "tinyllm_engine.preparation"] and arguments[1][0] != "uname":
            calls.append([event, repr(arguments[1])])

sys.addaudithook(watch)
model, output = sys.argv[1:3]
if importlib.util.find_spec("huggingface_hub"):
    import huggingface_hub
import textual.app, textual.widgets
from tinyllm_chat.cli.program import program

def command(*arguments):
    with contextlib.suppress(SystemExit), open(output, "a") as out, contextlib.redirect_stdout(out):
        program(list(arguments), prog_name="tinyllm-chat")

command(model, "-p", "hello", "-n", "3")
command("chats")
command("doctor")
command("inspect", model)
command("--paths")
command("pull", "--help")

from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.logs import start_logging
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli.models import Models
from tinyllm_chat.tui.app import TinyLLMChatApp

async def screens():
    places = Paths.default()
    start_logging(places.log_file)
    store = TranscriptStore(places.transcripts, places.exports)
    session = Session(LocalBackend(), store, Settings().with_layer(CONFIG, {"max_tokens": 3}))
    models = Models(places, ModelOptions())
    app = TinyLLMChatApp(session, model=model, models=models, chats=ChatLibrary(store, places.state))
    async with app.run_test(size=(120, 40)) as pilot:
        while session.model is None:
            await pilot.pause(0.01)
        await pilot.press(*"hi", "enter")
        while session.busy or session.conversation.leaf is None:
            await pilot.pause(0.01)
        for key in ("f2", "ctrl+l", "alt+s", "ctrl+s"):
            await pilot.press(key, "down", "escape")
        app.mishap(ZeroDivisionError("a bug"))
        await pilot.pause()
        app._exception = None
    session.close()

asyncio.run(screens())
print(json.dumps(calls))
"""


def test_nobody_is_called(tmp_path: Path) -> None:
    model = write(tmp_path / "tiny.gguf")
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PATH": "/nowhere",  # no program of a clipboard
        **{f"TINYLLM_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "STATE")},
    }
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(model), str(tmp_path / "output")],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []
    assert "ZeroDivisionError: a bug" in (tmp_path / "state" / "tinyllm-chat.log").read_text()  # and stays there
    found = [path for name in ("config", "data", "state") for path in (tmp_path / name).rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in found} == {0}
