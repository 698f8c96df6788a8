"""A sequence in a file: it comes back as it was, and nothing that is damaged or belongs elsewhere is believed."""

import json
import os
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import recurrent_model, windowed_model
from support.golden import GOLDEN
from tinyllm_engine.errors import ContextFullError, SavedStateError
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner
from tinyllm_engine.saved_state import HEAD, MAGIC, load, save, saved_bytes

CONTEXT = 256
NAME = "the model"
QUANTIZED = GOLDEN / "quants" / "llama-Q4_0.gguf"


def ids_of(count, seed=1):
    return np.random.default_rng(seed).integers(0, 128, count).tolist()


def written(sequence, path, model=NAME):
    with open(path, "wb") as file:
        save(sequence, file.write, model)
    return path


@pytest.fixture(scope="module", params=["attention", "recurrent", "windowed", "hybrid"])
def runner(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("m") / "m.gguf"
    if request.param == "attention":
        path = QUANTIZED
    elif request.param == "recurrent":
        recurrent_model.write(path)
    else:
        windowed_model.write(path, request.param)
    made = Runner(Model.open(path), context_length=2 * CONTEXT, threads=2)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_is_lost(request):
    yield
    if "runner" in request.fixturenames:
        cache = request.getfixturevalue("runner").cache
        assert cache.pages_in_use == cache.windowed_pages_in_use == cache.states.blocks == 0


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A saved sequence of 70 tokens, its runner, and its bytes."""
    made = Runner(Model.open(QUANTIZED), context_length=CONTEXT, threads=2)
    sequence = made.new_sequence()
    sequence.forward(ids_of(70))
    path = written(sequence, tmp_path_factory.mktemp("saved") / "saved.kv")
    sequence.close()
    yield made, path.read_bytes()
    made.close()


@pytest.mark.parametrize("count", [1, 64, 150])
def test_it_comes_back_as_it_was(runner, tmp_path, count):
    sequence = runner.new_sequence()
    if count > 100:
        sequence.forward(ids_of(100))
    sequence.forward(ids_of(count - sequence.position))
    path = written(sequence, tmp_path / "saved.kv")
    assert 0 < path.stat().st_size - saved_bytes(sequence) < 1000
    back = load(runner, path, NAME)
    assert (back.tokens, back.exact) == (sequence.tokens, count)
    assert back.recurrent.positions == sequence.recurrent.positions
    assert np.array_equal(back.forward([3, 4]), sequence.forward([3, 4]))
    if count > 100:
        assert back.truncate(100) == sequence.truncate(100) == 100
        assert np.array_equal(back.forward([5]), sequence.forward([5]))
    sequence.close()
    back.close()


def test_of_windows_only_what_is_held_is_written(runner, tmp_path, monkeypatch):
    windowed_model.poison(monkeypatch)
    sequence, cache = runner.new_sequence(), runner.cache
    sequence.forward(ids_of(400))
    for id in ids_of(30, 2):
        sequence.forward([id])
    path = written(sequence, tmp_path / "saved.kv")
    assert saved_bytes(sequence) < path.stat().st_size < saved_bytes(sequence) + 1000
    held = int(sequence.pages.held[: sequence.pages.count].sum())
    assert held == (3 if cache.windows.sizes else 7)
    rows = 7 * cache.bytes_of_page(windowed=False) + held * (cache.bytes_of_page(True) - cache.bytes_of_page(False))
    states = len(sequence.recurrent.positions) * cache.states.block_bytes
    assert saved_bytes(sequence) == 4 * 430 + rows + states
    rows, places = sequence.held_rows, sequence.places.positions
    found = sequence.forward([3, 4]), sequence.truncate(399), sequence.forward([5])
    sequence.close()
    back = load(runner, path, NAME)
    assert (back.held_rows, back.places.positions) == (rows, places)
    assert np.array_equal(back.forward([3, 4]), found[0])
    assert back.truncate(399) == found[1] == (0 if cache.states.block_bytes else 399)
    assert np.array_equal(back.forward([5]), found[2])
    back.close()


def test_what_was_shifted_stays_marked(small, tmp_path):
    runner, _ = small
    sequence = runner.new_sequence()
    sequence.forward(ids_of(100))
    sequence.remove(20, 40)
    back = load(runner, written(sequence, tmp_path / "saved.kv"), NAME)
    assert (back.exact, back.position) == (20, 80)
    assert np.array_equal(back.forward([3]), sequence.forward([3]))
    sequence.close()
    back.close()


def fails(runner, path, why, model=NAME):
    with pytest.raises(SavedStateError, match=why) as caught:
        load(runner, path, model)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).isprintable()
    assert runner.cache.pages_in_use == 0


@given(st.data())
def test_a_byte_that_changed_is_found(small, tmp_path_factory, data):
    runner, saved = small
    at = data.draw(st.one_of(st.integers(0, 500), st.integers(0, len(saved) - 1)))
    changed = bytearray(saved)
    changed[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "changed.kv"
    path.write_bytes(changed)
    fails(runner, path, None)


@given(st.data())
def test_a_file_that_ends_early_or_late_is_found(small, tmp_path_factory, data):
    runner, saved = small
    path = tmp_path_factory.getbasetemp() / "cut.kv"
    path.write_bytes(data.draw(st.sampled_from([saved[: data.draw(st.integers(0, len(saved) - 1))], saved + b"\0"])))
    fails(runner, path, None)


def described(saved, **changes):
    """The file with another description, its checksum right."""
    magic, version, length, _ = HEAD.unpack(saved[: HEAD.size])
    text = json.dumps(json.loads(saved[HEAD.size : HEAD.size + length]) | changes).encode()
    return HEAD.pack(magic, version, len(text), zlib.crc32(text)) + text + saved[HEAD.size + length :]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cache": "f32"}, "cache: expected 'f16', found 'f32'"),
        ({"layers": [[2, 64, 64, 0]] * 3}, "layers: expected"),
        ({"rotation": "0"}, "rotation: expected"),
        ({"state": 64}, "state: expected 0, found 64"),
        ({"tokens": 1 << 60}, "tokens: expected 1 to 256, found 1152921504606846976"),
        ({"tokens": 0}, "tokens: expected 1 to 256"),
        ({"tokens": True}, "tokens: expected 1 to 256"),
        ({"tokens": 200, "held": [[0, 4]]}, r"expected \d+ bytes, found"),
        ({"exact": 71}, "exact: expected 0 to 70, found 71"),
        ({"checkpoints": [70]}, "checkpoints: expected"),
        ({"checkpoints": "\x1b[31m"}, "checkpoints: expected"),
        ({"held": []}, r"held: expected the pages 0 to 2, found \[\]"),
        ({"held": None}, "held: expected the pages 0 to 2, found None"),
        ({"held": [[0, 1]]}, "held: expected the pages 0 to 2"),
        ({"held": [[0, 3]]}, r"held: expected pages within 0 to 2, found \[0, 3\]"),
        ({"held": [[0, 1], [0, 2]]}, r"held: expected pages within 1 to 2, found \[0, 2\]"),
        ({"held": [[-1, 2]]}, "held: expected pages within 0 to 2"),
        ({"held": [[0, True]]}, "held: expected pages within 0 to 2"),
        ({"held": [2]}, "held: expected pages within 0 to 2"),
        ({"places": [70] * 9}, "places: expected at most 8"),
        ({"places": [257]}, "places: expected at most 8"),
        ({"places": [0]}, "places: expected at most 8"),
        ({"places": "70"}, "places: expected at most 8"),
    ],
)
def test_descriptions_that_do_not_fit(small, tmp_path, changes, why):
    runner, saved = small
    path = tmp_path / "saved.kv"
    path.write_bytes(described(saved, **changes))
    fails(runner, path, why)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no saved state"),
        (b"GGUF" + bytes(100), "no saved state"),
        (HEAD.pack(MAGIC, 2, 2, 0) + b"{}", "version: expected 3, found 2"),
        (HEAD.pack(MAGIC, 3, 1 << 31, 0), "description: expected at most 1048576 bytes"),
        (HEAD.pack(MAGIC, 3, 2, 5) + b"{}", "description is damaged"),
        (HEAD.pack(MAGIC, 3, 2, zlib.crc32(b"[]")) + b"[]", "description is damaged"),
        (HEAD.pack(MAGIC, 3, 50000, zlib.crc32(b"[" * 50000)) + b"[" * 50000, "description is damaged"),
    ],
)
def test_what_is_no_saved_state(small, tmp_path, content, why):
    path = tmp_path / "saved.kv"
    path.write_bytes(content)
    fails(small[0], path, why)


def test_ids_outside_the_vocabulary(small, tmp_path):
    """Their checksum is right."""
    runner, saved = small
    start = len(saved) - 4 - 2 * (64 * runner.kv_bytes_per_token + 4) - 4 * 70
    ids = struct.pack("<i", 128) + saved[start + 4 : start + 280]
    path = tmp_path / "saved.kv"
    path.write_bytes(saved[:start] + ids + struct.pack("<I", zlib.crc32(ids)) + saved[start + 284 :])
    fails(runner, path, "token ids: expected 0 to 127")


def test_another_model_or_another_context(small, tmp_path):
    runner, saved = small
    path = tmp_path / "saved.kv"
    path.write_bytes(saved)
    fails(runner, path, "model: expected 'another', found 'the model'", "another")
    short = Runner(Model.open(QUANTIZED), context_length=64, threads=2)
    fails(short, path, "tokens: expected 1 to 64, found 70")
    short.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs links and pipes")
def test_only_files_are_opened(small, tmp_path):
    runner, saved = small
    real, link, pipe = (tmp_path / name for name in ("real.kv", "link.kv", "pipe.kv"))
    real.write_bytes(saved)
    link.symlink_to(real)
    os.mkfifo(pipe)
    fails(runner, link, "expected a file, found a link")
    fails(runner, pipe, "expected a file of this user's own")
    fails(runner, tmp_path, None)
    fails(runner, tmp_path / "missing.kv", "No such file")


def test_pages_that_are_not_to_be_had(small, tmp_path):
    runner, saved = small
    path = tmp_path / "saved.kv"
    path.write_bytes(saved)
    other = runner.new_sequence()
    other.forward(ids_of(200))
    with pytest.raises(ContextFullError):
        load(runner, path, NAME)
    assert runner.cache.pages_in_use == 4
    other.close()
    load(runner, path, NAME).close()
