"""A machine without memory: the answer stops with a reason, what was written stays, and the chat lives on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tiny_model import write
from support.waiting import wait_until
from tinyllm_chat.chat.answering import Answer
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_engine.errors import ContextFullError, OutOfMemoryError
from tinyllm_engine.kv_cache import PAGE, SPARE_BYTES, UNASKED_BYTES, KVCache, LayerShape, PageTable

SHAPES = [LayerShape(2, 64, 64)]
GREEDY = {"temperature": 0.0, "max_tokens": 150}


def test_pages_are_taken_as_long_as_there_is_memory():
    cache, free = KVCache(SHAPES, 10 * PAGE), [1 << 40]
    cache.free_memory = lambda: free[0]
    table = PageTable(cache, 10 * PAGE)
    page = PAGE * cache.bytes_per_token
    free[0] = SPARE_BYTES + page
    table.grow(PAGE)
    free[0] -= 1
    with pytest.raises(OutOfMemoryError, match=rf"KV cache: 64 more tokens take {page / 1e6:.1f} MB, .* MB .* free"):
        table.grow(2 * PAGE)
    assert table.count == cache.pages_in_use == 1
    free[0] += 1
    table.grow(2 * PAGE)
    assert table.count == 2


def test_others_give_way_before_memory_ends():
    cache, free = KVCache(SHAPES, 10 * PAGE), [1 << 40]
    cache.free_memory = lambda: free[0]
    other, table = PageTable(cache, 10 * PAGE), PageTable(cache, 10 * PAGE)
    other.grow(3 * PAGE)
    page = PAGE * cache.bytes_per_token
    cache._granted, free[0] = 0, SPARE_BYTES

    def make_room() -> bool:
        free[0] += page
        other.shrink((other.count - 1) * PAGE)
        return True

    cache.make_room = make_room
    table.grow(PAGE)
    assert (other.count, table.count) == (2, 1)


def test_the_system_is_asked_once_in_many_pages():
    cache, asked = KVCache(SHAPES, 100 * PAGE), []
    cache.free_memory = lambda: asked.append(None) or 1 << 40
    PageTable(cache, 100 * PAGE).grow(100 * PAGE)
    assert len(asked) == -(-100 * PAGE * cache.bytes_per_token // UNASKED_BYTES)


def test_a_system_that_does_not_tell_is_believed():
    cache = KVCache(SHAPES, PAGE)
    PageTable(cache, 2 * PAGE).grow(PAGE)
    with pytest.raises(ContextFullError):
        PageTable(cache, 2 * PAGE).grow(PAGE)


class Machine:
    """A session with a real model, whose memory is what a test says."""

    def __init__(self, folder: Path) -> None:
        self.free: int | None = 1 << 40
        self.backend = LocalBackend(free=lambda: self.free)
        self.session = Session(self.backend, None, Settings().with_layer(CONFIG, GREEDY))
        self.session.open_model(write(folder / "tiny.gguf", context_length=512))
        self.wait(lambda: self.session.model is not None)

    def wait(self, condition) -> None:
        wait_until(lambda: (self.session.drain(), condition())[1])

    def ask(self, text: str):
        self.session.send(text)
        self.wait(lambda: not self.session.busy)
        return self.session.conversation.leaf

    def empty(self) -> None:
        """There is no memory left, however much was promised."""
        self.free = 0
        self.backend._opened.runner.cache._granted = 0


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.session.close()


def test_an_answer_that_finds_no_memory_stops_and_the_chat_lives_on(machine):
    whole = machine.ask("question")
    machine.session.new_chat()
    machine.empty()
    failed = machine.ask("a question that is longer than one page of the cache " * 3)
    assert "MB of memory are free" in failed.error
    machine.free = 1 << 40
    machine.session.new_chat()
    assert machine.ask("question").ids == whole.ids


def test_an_answer_that_runs_out_of_memory_keeps_what_it_has(machine, monkeypatch):
    whole = machine.ask("question")
    machine.session.new_chat()
    token = Answer.sampling_change
    written = []

    def run_out(self, seen):
        written.append(seen)
        if len(written) == 40:
            raise MemoryError
        return token(self, seen)

    with monkeypatch.context() as full:
        full.setattr(Answer, "sampling_change", run_out)
        failed = machine.ask("question")
    assert failed.error.endswith("not enough memory")
    assert 30 < len(failed.ids) < len(whole.ids)
    assert failed.ids == whole.ids[: len(failed.ids)]
    assert machine.ask("question").error is None
    machine.session.new_chat()
    assert machine.ask("question").ids == whole.ids


@pytest.mark.parametrize(
    "place", ["tinyllm_engine.generation.AnswerText.feed", "tinyllm_chat.chat.answering._Writer.token"]
)
def test_whatever_fails_in_the_worker_the_next_answer_is_as_without(machine, monkeypatch, place):
    whole = machine.ask("question")
    machine.session.new_chat()
    with monkeypatch.context() as broken:
        broken.setattr(place, lambda *_: 1 / 0)
        assert "ZeroDivisionError" in machine.ask("question").error
    machine.session.new_chat()
    assert machine.ask("question").ids == whole.ids
