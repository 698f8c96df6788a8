"""Models where other programs keep them, and what the list says of each file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support import tiny_model
from tinyllm_chat.chat import places
from tinyllm_chat.chat.describing import Describer
from tinyllm_chat.chat.errors import ModelNotFoundError
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.places import RecentModels, find_everywhere
from tinyllm_chat.cli.models import model_path

DIGEST = "a" * 64


class Machine:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.paths = Paths(*(folder / name for name in ("config", "data", "state", "cache")))
        self.env: dict[str, str] = {}

    def file(self, *parts: str, content: bytes = b"GGUF") -> Path:
        path = self.home.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def ollama(self, manifest: Any, *parts: str) -> None:
        self.file(".ollama", "models", "manifests", *parts, content=json.dumps(manifest).encode())

    @property
    def found(self) -> list[tuple[str, str]]:
        return [(model.name, model.place) for model in find_everywhere(self.paths, self.env, self.home)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def layer(digest: str = f"sha256:{DIGEST}", kind: str = "application/vnd.ollama.image.model") -> dict[str, Any]:
    return {
        "layers": [
            {"mediaType": "application/vnd.ollama.image.license", "digest": "x"},
            {"mediaType": kind, "digest": digest},
        ]
    }


def test_an_empty_machine_has_none(machine: Machine) -> None:
    assert machine.found == []


def test_every_place_is_looked_at(machine: Machine) -> None:
    folder = machine.paths.models
    folder.mkdir(parents=True)
    (folder / "mine.gguf").write_bytes(b"GGUF")
    blob = machine.file(".cache", "huggingface", "hub", "models--owner--name", "blobs", "abc", content=b"GGUF hub")
    snapshot = blob.parents[1] / "snapshots" / "1234" / "sub"
    snapshot.mkdir(parents=True)
    (snapshot / "hub.gguf").symlink_to(blob)
    machine.file(".lmstudio", "models", "owner", "name", "studio.gguf")
    machine.file(".lmstudio", "models", "owner", "name", "mmproj-studio.gguf")
    machine.file(".ollama", "models", "blobs", f"sha256-{DIGEST}")
    machine.ollama(layer(), "registry.ollama.ai", "library", "llama3", "8b")
    machine.env["LLAMA_CACHE"] = str(machine.file("llama", "owner_name_cpp.gguf").parent)
    assert machine.found == [
        ("mine", "in the models folder"),
        ("hub", "in the Hugging Face cache"),
        ("studio", "of LM Studio"),
        ("llama3:8b", "of Ollama"),
        ("owner_name_cpp", "of llama.cpp"),
    ]


def test_a_file_that_several_have_is_listed_once(machine: Machine) -> None:
    blob = machine.file(".cache", "huggingface", "hub", "models--o--n", "blobs", "abc")
    for revision in ("1", "2"):
        snapshot = blob.parents[1] / "snapshots" / revision
        snapshot.mkdir(parents=True)
        (snapshot / "hub.gguf").symlink_to(blob)
    assert machine.found == [("hub", "in the Hugging Face cache")]


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_the_environment_moves_the_hugging_face_cache(machine: Machine, variable: str) -> None:
    hub = ("hub",) if variable == "HF_HOME" else ()
    machine.file("elsewhere", *hub, "models--o--n", "snapshots", "1", "hub.gguf")
    machine.env[variable] = str(machine.home / "elsewhere")
    assert machine.found == [("hub", "in the Hugging Face cache")]


def test_names_of_ollama_are_those_that_it_shows(machine: Machine) -> None:
    for number, parts in enumerate(
        [
            ("registry.ollama.ai", "library", "gemma", "latest"),
            ("registry.ollama.ai", "someone", "tuned", "q4"),
            ("hf.co", "owner", "name", "Q4_K_M"),
        ]
    ):
        digest = str(number) * 64
        machine.ollama(layer(f"sha256:{digest}"), *parts)
        machine.file(".ollama", "models", "blobs", f"sha256-{digest}")
    assert sorted(name for name, _ in machine.found) == ["gemma:latest", "owner/name:Q4_K_M", "someone/tuned:q4"]


@pytest.mark.parametrize(
    "manifest",
    [
        3,
        [],
        {"layers": 3},
        {"layers": [3, {}]},
        layer("sha256:../../../etc/passwd"),
        layer("sha256:" + "b" * 64),  # not there
        layer(kind="application/vnd.ollama.image.adapter"),
    ],
)
def test_hostile_manifests_name_no_file(machine: Machine, manifest: Any) -> None:
    machine.file(".ollama", "models", "blobs", f"sha256-{DIGEST}")
    machine.ollama(manifest, "registry.ollama.ai", "library", "llama3", "8b")
    machine.file(".ollama", "models", "manifests", "registry.ollama.ai", "short", content=b"[" * 10_000)
    assert machine.found == []


def test_folders_without_end_are_left_early(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.file(".lmstudio", "models", *"abcdefgh", "deep.gguf")
    loop = machine.home / ".lmstudio" / "models" / "loop"
    loop.symlink_to(loop.parent, target_is_directory=True)
    assert machine.found == []
    monkeypatch.setattr(places, "MOST_ENTRIES", 5)
    for number in range(20):
        machine.file(".lmstudio", "models", f"{number:02}.gguf")
    assert len(machine.found) <= 5


def test_of_a_split_model_the_first_part_stands_for_all(machine: Machine) -> None:
    for number in (1, 2):
        machine.file(".lmstudio", "models", f"big-{number:05}-of-00002.gguf", content=b"GGUF" * 10)
    (found,) = find_everywhere(machine.paths, machine.env, machine.home)
    assert (found.name, found.size) == ("big-00001-of-00002", 80)


def test_what_was_opened_lately_comes_first(machine: Machine) -> None:
    models = [machine.file("somewhere", f"{number}.gguf") for number in range(15)]
    recent = RecentModels(machine.paths)
    for model in models:
        recent.add(model)
    recent.add(models[3])
    models[14].unlink()
    assert [path.name for path in recent.paths()][:3] == ["3.gguf", "13.gguf", "12.gguf"]
    assert len(recent.paths()) <= places.MOST_RECENT
    assert machine.found[0] == ("3", "opened lately")


def test_what_was_opened_lately_keeps_the_name_that_it_has_elsewhere(machine: Machine) -> None:
    blob = machine.file(".ollama", "models", "blobs", f"sha256-{DIGEST}")
    machine.ollama(layer(), "registry.ollama.ai", "library", "llama3", "8b")
    RecentModels(machine.paths).add(blob)
    assert machine.found == [("llama3:8b", "opened lately")]


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[1, null, {}]", b'["\\u0000"]', b"[" * 5000, b"\xff"])
def test_a_damaged_list_of_recent_models_is_an_empty_one(machine: Machine, content: bytes) -> None:
    machine.paths.state.mkdir()
    (machine.paths.state / "recent-models.json").write_bytes(content)
    assert RecentModels(machine.paths).paths() == []


def test_a_name_that_only_another_program_knows_is_its_model(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.file("ollama", "blobs", f"sha256-{DIGEST}")
    manifest = json.dumps(layer()).encode()
    machine.file("ollama", "manifests", "registry.ollama.ai", "library", "llama3", "8b", content=manifest)
    monkeypatch.setenv("OLLAMA_MODELS", str(machine.home / "ollama"))
    monkeypatch.setenv("HOME", str(machine.home))
    assert model_path("llama3:8b", machine.paths).name == f"sha256-{DIGEST}"
    with pytest.raises(ModelNotFoundError, match="llama3:7b"):
        model_path("llama3:7b", machine.paths)


# What is in a file


def describer(free: int | None = 1 << 40, **options: Any) -> Describer:
    return Describer(ModelOptions(**options), lambda: free)


def test_a_file_that_runs(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "tiny.gguf")
    facts = describer().describe(path)
    assert facts.problem is None
    assert facts.architecture == "llama"
    assert facts.file_type
    assert facts.memory > path.stat().st_size
    assert not facts.tight
    assert describer(free=1000).describe(path).tight
    assert describer(context_length=7).describe(path).context_length == 7
    assert describer(context_length=7).describe(path).memory < facts.memory


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "GGUF"), (b"GGUF", "GGUF"), (b"not a model", "GGUF"), (None, "No such file")],
)
def test_a_file_that_does_not_run_says_why_in_one_line(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "bad.gguf"
    if content is not None:
        path.write_bytes(content)
    facts = describer().describe(path)
    assert facts.problem is not None
    assert "\n" not in facts.problem
    assert str(tmp_path) not in facts.problem


def test_another_kind_of_file_is_named(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "other.gguf", extra={"general.type": "adapter"})
    assert "adapter" in (describer().describe(path).problem or "")


def test_each_state_of_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_model.write(tmp_path / "tiny.gguf")
    described = describer()
    read: list[Path] = []
    original = described._read
    monkeypatch.setattr(Describer, "_read", lambda self, path: (read.append(path), original(path))[1])
    assert described.describe(path) == described.describe(path)
    os.utime(path, (1, 1))
    described.describe(path)
    assert len(read) == 2
