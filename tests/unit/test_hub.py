"""Models of the Hugging Face Hub: fetched by name, gone on with, checked; nothing of that without being asked."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from tinyllm_chat.chat import hub
from tinyllm_chat.chat.errors import DownloadCancelled, DownloadError
from tinyllm_chat.chat.hub import HubFile, parse_hub_name, pull_from_hub

CONTENT = b"GGUF" + bytes(range(256)) * 40
WANTED = HubFile("owner", "name", "sub/Tiny-Q4_0.gguf")
# What of huggingface_hub is used, answering from a folder. Its modes are set by the environment.
PACKAGE = """
import hashlib, os, pathlib
from types import SimpleNamespace
from . import errors
served = pathlib.Path(os.environ["SERVED"])

def hf_hub_url(repository, name, *, revision):
    if os.environ.get("RAISES"):
        raise getattr(errors, os.environ["RAISES"])("no\\nway")
    return f"{repository}@{revision}/{name}"

def get_hf_file_metadata(url):
    data = served.joinpath(url.rpartition("/")[2]).read_bytes()
    etag = hashlib.sha256(data).hexdigest()
    if os.environ.get("ETAG") == "git":
        etag = hashlib.sha1(b"blob %d\\0" % len(data) + data).hexdigest()
    return SimpleNamespace(etag=os.environ.get("ETAG") if os.environ.get("ETAG") not in (None, "git") else etag,
                           size=len(data))
"""
FILE_DOWNLOAD = """
import os, time
from . import served

def http_get(url, file, *, resume_size, headers, expected_size):
    data = served.joinpath(url.rpartition("/")[2]).read_bytes()
    with open(served / "log", "a") as log:
        log.write(f"{url} from {resume_size}\\n")
    stop = int(os.environ.get("STOP_AT", len(data)))
    file.write(data[resume_size:stop])
    file.flush()
    if stop < len(data):
        if os.environ.get("HANGS"):
            time.sleep(600)
        raise ConnectionError("cut off")
"""
ERRORS = "\n".join(
    f"class {name}({base}): pass"
    for name, base in [
        ("RepositoryNotFoundError", "Exception"),
        ("GatedRepoError", "RepositoryNotFoundError"),
        ("RevisionNotFoundError", "Exception"),
        ("EntryNotFoundError", "Exception"),
        ("OfflineModeIsEnabled", "ConnectionError"),
        ("StrangeError", "Exception"),
    ]
)


class Hub:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.models = folder / "models"
        self.served = folder / "served"
        self.served.mkdir()
        package = folder / "site" / "huggingface_hub"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(PACKAGE)
        (package / "errors.py").write_text(ERRORS)
        (package / "file_download.py").write_text(FILE_DOWNLOAD)
        (package / "utils.py").write_text("def build_hf_headers(): return {}\n")
        monkeypatch.setenv("PYTHONPATH", str(package.parent))
        monkeypatch.setenv("SERVED", str(self.served))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        self.set = monkeypatch.setenv
        self.unset = monkeypatch.delenv

    def serve(self, name: str = "Tiny-Q4_0.gguf", content: bytes = CONTENT) -> None:
        (self.served / name).write_bytes(content)

    @property
    def log(self) -> list[str]:
        path = self.served / "log"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    return Hub(tmp_path, monkeypatch)


def failure(far: Hub, wanted: HubFile = WANTED) -> str:
    with pytest.raises(DownloadError) as failed:
        pull_from_hub(wanted, far.models)
    assert "\n" not in str(failed.value)
    return str(failed.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:owner/name/file.gguf", HubFile("owner", "name", "file.gguf")),
        ("HF:o/n.m/sub/dir/F-Q4_K_M.GGUF", HubFile("o", "n.m", "sub/dir/F-Q4_K_M.GGUF")),
        ("hf:owner/name@v1.0/file.gguf", HubFile("owner", "name", "file.gguf", "v1.0")),
        ("smollm2", None),
        ("/models/hf:x.gguf", None),
    ],
)
def test_names(text: str, expected: HubFile | None) -> None:
    assert parse_hub_name(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("hf:", "hf:owner", "hf:owner/name", "hf:owner/name/file.bin", "hf:owner/../file.gguf", "hf:-x/name/f.gguf"),
        *("hf:owner/name/../../f.gguf", "hf:owner/name//f.gguf", "hf:o/n/.gguf", "hf:o/n/f\n.gguf", "hf:o/n/\x1b.gguf"),
        "hf:owner/name/" + "x" * 5000 + ".gguf",
    ],
)
def test_names_that_make_no_sense_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(DownloadError, match=r"expected hf:owner/repository/file\.gguf") as refused:
        parse_hub_name(text)
    assert str(refused.value).isprintable()


def test_without_its_package_the_way_to_get_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match="pip install huggingface_hub"):
        pull_from_hub(WANTED, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("etag", ["sha256", "git"])
def test_a_file_is_fetched_and_checked(far: Hub, etag: str) -> None:
    if etag == "git":
        far.set("ETAG", "git")
    far.serve()
    seen: list[str] = []
    path = pull_from_hub(WANTED, far.models, lambda stage, done, total: seen.append(stage))
    assert path == far.models / "owner" / "name" / "Tiny-Q4_0.gguf"
    assert path.read_bytes() == CONTENT
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert "checking" in seen
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600
    assert far.log == ["owner/name@main/sub/Tiny-Q4_0.gguf from 0"]
    pull_from_hub(WANTED, far.models)  # there already
    assert len(far.log) == 1


def test_what_was_cut_off_goes_on_where_it_was(far: Hub) -> None:
    far.serve()
    far.set("STOP_AT", "1000")
    assert "no connection to its server" in failure(far)
    far.unset("STOP_AT")
    assert pull_from_hub(WANTED, far.models).read_bytes() == CONTENT
    assert [line.rpartition(" ")[2] for line in far.log] == ["0", "1000"]


def test_a_download_is_stopped_and_goes_on(far: Hub) -> None:
    far.serve()
    far.set("STOP_AT", "1000")
    far.set("HANGS", "1")
    with pytest.raises(DownloadCancelled):
        pull_from_hub(WANTED, far.models, cancelled=lambda: bool(far.log))
    far.unset("STOP_AT")
    assert pull_from_hub(WANTED, far.models).read_bytes() == CONTENT
    assert far.log[-1].endswith("from 1000")


def test_a_file_that_became_another_one_is_fetched_anew(far: Hub) -> None:
    far.serve()
    far.set("STOP_AT", "1000")
    failure(far)
    far.unset("STOP_AT")
    far.serve(content=CONTENT[::-1])
    assert pull_from_hub(WANTED, far.models).read_bytes() == CONTENT[::-1]
    assert far.log[-1].endswith("from 0")


def test_a_file_with_another_hash_is_thrown_away(far: Hub) -> None:
    far.serve()
    far.set("ETAG", hashlib.sha256(b"other").hexdigest())
    assert "hash differs" in failure(far)
    assert not WANTED.target(far.models).exists()
    far.unset("ETAG")
    assert pull_from_hub(WANTED, far.models).read_bytes() == CONTENT


@pytest.mark.parametrize("etag", ["", "../../x", "W/abc", "A" * 64])
def test_a_hash_that_is_none_is_not_believed(far: Hub, etag: str) -> None:
    far.serve()
    far.set("ETAG", etag or " ")
    failure(far)
    assert not WANTED.target(far.models).exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("RepositoryNotFoundError", "no such repository"),
        ("GatedRepoError", "agree to its conditions"),
        ("RevisionNotFoundError", "no revision main"),
        ("EntryNotFoundError", "no file sub/Tiny-Q4_0.gguf"),
        ("OfflineModeIsEnabled", "no connection to its server"),
        ("StrangeError", "StrangeError: no way"),
    ],
)
def test_what_the_hub_refuses_is_said_in_one_line(far: Hub, error: str, said: str) -> None:
    far.set("RAISES", error)
    message = failure(far)
    assert said in message
    assert message.startswith("hf:owner/name/sub/Tiny-Q4_0.gguf: ")


def test_of_a_split_model_every_part_is_fetched(far: Hub) -> None:
    names = [f"Big-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for name in names:
        far.serve(name, name.encode())
    seen: list[Any] = []
    path = pull_from_hub(HubFile("o", "n", names[1]), far.models, lambda *progress: seen.append(progress[0]))
    assert path.name == names[0]
    assert sorted(each.name for each in path.parent.iterdir()) == names
    assert any(stage.startswith("part 3 of 3, ") for stage in seen)


def test_a_disk_that_is_too_small_is_seen_early(far: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, folder: Path, needed: int) -> None:
        raise DownloadError(f"{name}: {needed} bytes are needed")

    far.serve()
    far.set("STOP_AT", "1000")
    far.set("HANGS", "1")
    monkeypatch.setattr(hub, "require_space", refuse)
    assert f"{len(CONTENT)} bytes are needed" in failure(far) or "bytes are needed" in failure(far)
