"""Mapped files that lose their end or are written to: an error that names the file, and the program lives on."""

import mmap
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from support import lora_files, tiny_model
from tinyllm_engine import Model, Runner, SamplingParams, generate
from tinyllm_engine.errors import GGUFError
from tinyllm_engine.generation import Token
from tinyllm_engine.lora import open_adapter
from tinyllm_engine.vanishing import Guard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="guarded on Linux only")

PAGES = 64


@pytest.fixture
def mapped(tmp_path):
    """A file of ones, and a mapping of it."""
    path = tmp_path / "ones"
    path.write_bytes(b"\1" * (PAGES * mmap.PAGESIZE))
    with open(path, "rb") as file:
        yield path, np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def test_what_a_file_has_lost_reads_as_zeros_in_every_thread(mapped):
    path, memory = mapped
    guard = Guard(memory)
    assert memory.sum() == memory.size
    assert not guard.lost
    os.truncate(path, 10 * mmap.PAGESIZE)
    sums = []
    threads = [threading.Thread(target=lambda: sums.append(int(memory.sum()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [10 * mmap.PAGESIZE] * 4
    assert guard.lost


def test_a_slot_that_was_given_back_serves_again(mapped):
    path, memory = mapped
    first = Guard(memory)
    os.truncate(path, 0)
    assert memory.sum() == 0
    assert first.lost
    first.close()
    second = Guard(np.zeros(100, np.uint8))
    assert second._slot == first._slot
    assert not second.lost


def test_a_fault_anywhere_else_is_what_it_was():
    """The process of its own dies of the signal, as it would have without a guard somewhere."""
    program = (
        "import mmap, os, sys, tempfile, numpy as np\n"
        "from tinyllm_engine.vanishing import Guard\n"
        "guard = Guard(np.zeros(100, np.uint8))\n"
        "file = tempfile.TemporaryFile(); file.write(bytes(100000)); file.flush()\n"
        "memory = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)\n"
        "os.ftruncate(file.fileno(), 0)\n"
        "print('reading', flush=True)\n"
        "print(memory.sum(), flush=True)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout == "reading\n"
    assert done.returncode != 0


@pytest.fixture
def model(tmp_path):
    return Model.open(tiny_model.write(tmp_path / "tiny.gguf"))


@pytest.fixture
def runner(model):
    made = Runner(model, context_length=64, threads=2)
    yield made
    made.close()


def ask(runner, count=20):
    return list(generate(runner.sequence(), [1, 2, 3], SamplingParams(temperature=0), max_tokens=count))


def until_lost(model, runner, when):
    """The events up to the error that comes of a file cut short after an event."""
    seen = []

    def run():
        for event in generate(runner.sequence(), [1, 2, 3], SamplingParams(temperature=0), max_tokens=20):
            seen.append(event)
            if when(event):
                os.truncate(model.path, 4096)

    with pytest.raises(GGUFError, match="has become shorter or cannot be read any more"):
        run()
    return seen


@pytest.mark.parametrize("at", ["before the prompt", "while it writes"])
@pytest.mark.parametrize("left", [0, 4096])
def test_an_answer_ends_with_an_error_when_the_file_is_cut_short(model, runner, at, left):
    events = generate(runner.sequence(), [1, 2, 3], SamplingParams(temperature=0), ["never"], max_tokens=20)
    if at == "while it writes":
        for _ in range(5):
            next(events)
    kept = list(runner.sequence().tokens)
    os.truncate(model.path, left)
    with pytest.raises(GGUFError, match=r"tiny\.gguf: has .*: open the model again") as caught:
        list(events)
    assert str(caught.value).isprintable()
    assert runner.sequence().tokens == kept
    with pytest.raises(GGUFError, match="open the model again"):  # and so do all that follow
        ask(runner)


def test_what_a_pass_made_of_lost_weights_is_thrown_away(model, runner, monkeypatch):
    """Nothing drawn from zeros is ever seen: the pass is over before the error can be known."""
    monkeypatch.setattr(model, "check_unchanged", lambda: None)
    seen = until_lost(model, runner, lambda event: True)  # before any of the prompt is evaluated
    assert len(seen) == 1
    assert runner.sequence().tokens == []


def test_tokens_drawn_at_once_from_lost_weights_are_thrown_away(model, runner):
    seen = until_lost(model, runner, lambda event: getattr(event, "done", 0) == 3)
    assert isinstance(seen[-1], Token)  # the one that the prompt's logits gave
    assert runner.sequence().tokens == [1, 2, 3]


def test_a_file_that_was_written_to_is_noticed_at_the_next_answer(model, runner):
    before = ask(runner)
    with open(model.path, "r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(b"0123456789")
    os.utime(model.path, ns=(0, 1))
    with pytest.raises(GGUFError, match=r"tiny\.gguf: has changed since it was opened: open the model again"):
        ask(runner)
    assert before


def test_a_file_that_was_removed_or_replaced_stays_in_use(model, runner, tmp_path):
    before = ask(runner)
    replacement = tmp_path / "new"
    replacement.write_bytes(b"another file")
    os.replace(replacement, model.path)
    assert ask(runner)[-1].reason == before[-1].reason
    os.unlink(model.path)
    assert ask(runner)[-1].reason == before[-1].reason


def test_an_adapter_is_guarded_too(model, tmp_path):
    values = lora_files.pairs(model, ["blk.0.attn_q.weight", "blk.1.ffn_up.weight"], rank=40)
    path = lora_files.write(tmp_path / "pirate.gguf", values, lora_files.metadata("llama", 40.0))
    model.adapt(open_adapter(path))
    runner = Runner(model, context_length=64, threads=1)
    assert ask(runner)
    os.truncate(path, 4096)
    with pytest.raises(GGUFError, match=r"pirate\.gguf: has .*: open the model again"):
        ask(runner)
    runner.close()
