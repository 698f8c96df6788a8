"""Models of the Hugging Face Hub by name, `hf:owner/repository/file.gguf`: fetched in pieces that survive, and checked.

huggingface_hub, an optional package, knows the Hub's addresses, tokens and proxies; it runs in a process of its own,
so that it can be stopped at any moment. Of a download that was stopped the rest is fetched the next time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.download import CHUNK_BYTES, INSTALL_HUB, Command, Progress, one_line_errors, require_space, run
from tinyllm_chat.chat.errors import DownloadError
from tinyllm_chat.chat.files import make_private_folder, sync_folder
from tinyllm_chat.chat.locks import LockFile

PREFIX = "hf:"
_NAME = r"[0-9A-Za-z][0-9A-Za-z._-]{0,95}"
_REFERENCE = re.compile(rf"hf:({_NAME})/({_NAME})(?:@({_NAME}))?/((?:{_NAME}/)*{_NAME}\.gguf)", re.IGNORECASE)
_SPLIT = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf", re.IGNORECASE)
_MOST_PARTS = 999
# Says what is known of a file as one line of JSON in `facts`, then appends to `part` what it lacks.
_SCRIPT = """
import json, os, sys
repository, name, revision, facts, part = sys.argv[1:]
def fail(text):
    sys.exit("error: " + " ".join(text.split())[:300])
try:
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers
except ImportError as error:
    fail(f"huggingface_hub cannot be used: {error}")
try:
    url = hf_hub_url(repository, name, revision=revision)
    found = get_hf_file_metadata(url)
    with open(facts, "w") as file:
        json.dump({"etag": found.etag, "size": found.size}, file)
    part = os.path.join(part, f"{found.etag}.part")
    done = os.path.getsize(part) if os.path.exists(part) else 0
    if found.size is not None and done > found.size:
        os.truncate(part, 0)
        done = 0
    with open(part, "r+b" if done else "wb") as file:
        file.seek(done)
        http_get(url, file, resume_size=done, headers=build_hf_headers(), expected_size=found.size)
except errors.GatedRepoError:
    fail("it wants you to agree to its conditions on its page first, and a token (hf auth login)")
except errors.RepositoryNotFoundError:
    fail("there is no such repository, or it is private")
except errors.RevisionNotFoundError:
    fail(f"the repository has no revision {revision}")
except errors.EntryNotFoundError:
    fail(f"the repository has no file {name}")
except Exception as error:
    kinds = " ".join(kind.__name__ for kind in type(error).__mro__)
    if any(sign in kinds for sign in ("ConnectError", "ConnectionError", "Timeout", "ProtocolError", "OfflineMode")):
        fail("there is no connection to its server")
    fail(f"{type(error).__name__}: {error}")
"""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository."""

    owner: str
    repository: str
    file: str
    revision: str = "main"

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.owner}/{self.repository}/{self.file}"

    def target(self, models: Path) -> Path:
        """Where it belongs in the models folder."""
        return models / self.owner / self.repository / self.file.rpartition("/")[2]

    @property
    def parts(self) -> list[HubFile]:
        """All files of a split model."""
        match = _SPLIT.fullmatch(self.file)
        count = int(match[2]) if match is not None else 1
        if match is None or not 1 <= count <= _MOST_PARTS:
            return [self]
        names = (f"{match[1]}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))
        return [HubFile(self.owner, self.repository, name, self.revision) for name in names]


def parse_hub_name(text: str) -> HubFile | None:
    """`hf:owner/repository[@revision]/file.gguf`; None for a text that does not begin so. Raises DownloadError."""
    if not text.lower().startswith(PREFIX):
        return None
    match = _REFERENCE.fullmatch(text)
    if match is None or ".." in text:
        shown = text if text.isprintable() else repr(text)
        raise DownloadError(f"{shown[:200]}: expected hf:owner/repository/file.gguf")
    owner, repository, revision, file = match.groups()
    return HubFile(owner, repository, file, revision or "main")


def pull_from_hub(
    wanted: HubFile,
    models: Path,
    progress: Progress = lambda stage, done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Path:
    """Fetches a model and returns the path of its (first) file. Raises DownloadError, DownloadCancelled."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise DownloadError(f"{wanted.name}: needs the package huggingface_hub: {INSTALL_HUB}")
    parts = wanted.parts
    for number, part in enumerate(parts, 1):
        target = part.target(models)
        if target.is_file():
            continue  # it was checked when it was put there
        said = f"part {number} of {len(parts)}, " if len(parts) > 1 else ""

        def report(stage: str, done: int, total: int, said: str = said) -> None:
            progress(said + stage, done, total)

        with one_line_errors(part.name):
            make_private_folder(target.parent)
            lock = LockFile.acquire(target.parent / ".pull.lock")
            if lock is None:
                raise DownloadError(f"{part.name}: another download into {target.parent} is running")
            try:
                _fetch(part, target, report, cancelled)
            finally:
                lock.release()
    return parts[0].target(models)


def _fetch(part: HubFile, target: Path, progress: Progress, cancelled: Callable[[], bool]) -> None:
    folder = target.parent / f".part-{hashlib.blake2b(part.file.encode(), digest_size=6).hexdigest()}"
    make_private_folder(folder)
    facts = folder / "facts.json"
    facts.unlink(missing_ok=True)
    source = f"{part.owner}/{part.repository}"
    command = Command(
        "huggingface_hub",
        [sys.executable, "-c", _SCRIPT, source, part.file, part.revision, str(facts), str(folder)],
        {
            **os.environ,
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_VERBOSITY": "critical",
        },
    )
    checked_space = False

    def look() -> None:
        nonlocal checked_space
        known = _facts(facts)
        if known is None:
            progress("asking for the file", 0, 0)
            return
        etag, size = known
        received = folder / f"{etag}.part"
        have = received.stat().st_size if received.is_file() else 0
        if not checked_space:
            require_space(part.name, target.parent, max(0, size - have))
            checked_space = True
        progress("downloading", have, size)

    run(command, part.name, folder, look, cancelled)
    known = _facts(facts)
    if known is None:
        raise DownloadError(f"{part.name}: the Hub does not say how large the file is and what its hash is")
    etag, size = known
    received = folder / f"{etag}.part"
    if _hash(received, etag, size, part.name, progress) != etag:
        received.unlink(missing_ok=True)
        raise DownloadError(f"{part.name}: the downloaded file is not the expected one (its hash differs)")
    os.chmod(received, 0o600)
    os.replace(received, target)
    sync_folder(target.parent)
    for left in folder.iterdir():
        left.unlink()
    folder.rmdir()


def _facts(path: Path) -> tuple[str, int] | None:
    """Hash and size of a file as the Hub says them; None until it has."""
    try:
        found: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    etag, size = (found.get("etag"), found.get("size")) if isinstance(found, dict) else (None, None)
    if not isinstance(etag, str) or not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", etag):
        return None
    return (etag, size) if type(size) is int and size > 0 else None


def _hash(path: Path, etag: str, size: int, name: str, progress: Progress) -> str:
    """The hash of a file, of the kind that `etag` is: SHA-256 for large files, Git's own for small ones."""
    if path.stat().st_size != size:
        raise DownloadError(f"{name}: the downloaded file has {path.stat().st_size} bytes, expected {size}")
    digest = hashlib.sha256() if len(etag) == 64 else hashlib.sha1(b"blob %d\x00" % size, usedforsecurity=False)
    done = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress("checking", done, size)
        os.fsync(file.fileno())
    return digest.hexdigest()
