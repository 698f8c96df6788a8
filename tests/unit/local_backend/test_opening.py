"""Opening models: stages, errors, what is recommended, what does not fit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.backend_events import events_until, opened
from support.toy_engine import Toy
from tinyllm_chat.chat.backend import Backend
from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_chat.chat.events import (
    ModelFailed,
    ModelLoading,
    ModelReady,
)
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_engine.errors import GGUFError


def test_it_is_a_backend(backend: LocalBackend) -> None:
    protocol: Backend = backend
    assert protocol.drain() == []
    assert protocol.count_tokens("x") is None


def test_opening_reports_its_stages_and_the_model(backend: LocalBackend, file: Path) -> None:
    backend.open(str(file))
    events = events_until(backend, ModelReady)
    stages = [event.stage for event in events if isinstance(event, ModelLoading)]
    assert list(dict.fromkeys(stages)) == [
        "starting the engine",
        "opening",
        "reading weights",
        "compiling kernels",
        "warming up",
    ]
    ready = events[-1]
    assert isinstance(ready, ModelReady)
    info = ready.info
    assert (info.name, info.path, info.file_type, info.file_bytes) == ("toy", str(file), "Q4_1", 104)
    assert (info.context_length, info.model_context_length, info.cache_bytes_per_token) == (4096, 4096, 128)
    assert info.notes == ("the vocabulary is a toy",)
    assert backend.count_tokens("four") == 4


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GGUFError("x.gguf: magic: expected GGUF, found 'text'"), "x.gguf: magic: expected GGUF, found 'text'"),
        (MemoryError(), "not enough memory"),
        (GGUFError("two\nlines \x1b[31m"), "two lines [31m"),
        (PermissionError(13, "Permission denied", "x.gguf"), "x.gguf: Permission denied"),
    ],
)
def test_a_model_that_cannot_be_opened_says_why_in_one_line(
    toy: Toy, backend: LocalBackend, file: Path, error: Exception, message: str
) -> None:
    toy.open_error = error
    backend.open(str(file))
    failed = events_until(backend, ModelFailed, ModelReady)[-1]
    assert isinstance(failed, ModelFailed)
    assert message in failed.message
    assert failed.message.isprintable()
    toy.open_error = None
    assert opened(backend, file).name == "toy"


def test_what_nobody_foresaw_goes_to_the_log(
    toy: Toy, backend: LocalBackend, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    toy.open_error = ZeroDivisionError("1/0")
    backend.open(str(file))
    failed = events_until(backend, ModelFailed, ModelReady)[-1]
    assert isinstance(failed, ModelFailed)
    assert "unexpected error" in failed.message
    assert "ZeroDivisionError" in failed.message
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("name", ["nothing.gguf", ".", "\x00.gguf"])
def test_what_is_no_file_is_a_line(backend: LocalBackend, tmp_path: Path, name: str) -> None:
    backend.open(str(tmp_path / name))
    failed = events_until(backend, ModelFailed, ModelReady)[-1]
    assert isinstance(failed, ModelFailed)
    assert failed.message.isprintable()


def test_the_engine_that_does_not_start_is_a_line(file: Path) -> None:
    def load() -> EngineApi:
        raise ImportError("numba is broken")

    backend = LocalBackend(load=load)
    backend.open(str(file))
    failed = events_until(backend, ModelFailed)[-1]
    assert isinstance(failed, ModelFailed)
    assert "numba is broken" in failed.message
    backend.close()


def test_another_model_takes_the_place_of_the_first(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    opened(backend, file)
    first, second = toy.runners
    assert (first.closed, second.closed) == (True, False)
    backend.close()
    assert second.closed


def test_a_model_that_is_no_longer_wanted_is_not_reported(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.opening_gate = threading.Event()
    backend.open(str(file))
    events_until(backend, ModelLoading)
    other = file.with_name("other.gguf")
    other.write_bytes(b"GGUF")
    backend.open(str(other))
    toy.opening_gate.set()
    events = events_until(backend, ModelReady, ModelFailed)
    (ready,) = [event for event in events if isinstance(event, ModelReady)]
    assert ready.info.path == str(other)
    assert len(toy.runners) == 1


def test_recommended_sampling_is_taken_by_our_names(toy: Toy, backend: LocalBackend, file: Path) -> None:
    toy.model_changes = {
        "metadata": {
            "general.sampling.temp": 0.699999988079071,
            "general.sampling.top_k": 20,
            "general.sampling.sequence": "top_k;temp",
            "general.sampling.mirostat": 7,
            "general.sampling.xtc_probability": 0.5,
            "general.sampling.top_p": 7.0,
            "general.sampling.min_p": "x\x1b",
        }
    }
    info = opened(backend, file)
    assert info.sampling == {
        "temperature": 0.7,
        "top_k": 20,
        "samplers": ("top_k;temp",),
        "xtc_probability": 0.5,
    }
    assert sum("general.sampling" in note for note in info.notes) == 3
    assert all(note.isprintable() for note in info.notes)


def test_a_model_larger_than_memory_is_said_and_not_read_ahead(toy: Toy, file: Path) -> None:
    backend = LocalBackend(load=toy.api, free=lambda: 50)
    info = opened(backend, file)
    assert any("answers will be slow" in note for note in info.notes)
    assert toy.read_ahead is False
    backend.close()
