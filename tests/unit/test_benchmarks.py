"""The scripts under benchmarks/: the models they write run, workers answer, and the table says what was measured."""

import importlib.util
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from gguf import GGUFReader
from support import tiny_model
from tinyllm_engine.model import Model
from tinyllm_engine.runner import Runner

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
if BENCHMARKS not in sys.path:
    sys.path.append(BENCHMARKS)

import compare  # noqa: E402
import context_plot  # noqa: E402
import machine  # noqa: E402
import make_models  # noqa: E402
from compare import OURS, Report, Result, Worker  # noqa: E402

SMALL = make_models.Shape(
    blocks=2, width=256, heads=4, kv_heads=2, feed_forward=512, vocabulary=512, context=128
)  # K-quants have blocks of 256


# Models


@pytest.mark.parametrize("type_name", make_models.OUTPUT_TYPES)
def test_random_models_run(type_name, tmp_path):
    path = tmp_path / "random.gguf"
    make_models.write_random(path, type_name, SMALL)
    model = Model.open(path)
    assert model.tensors["blk.1.ffn_down.weight"].type.name == type_name
    assert model.tensors["token_embd.weight"].type.name == type_name
    assert model.tensors["output.weight"].type.name == make_models.OUTPUT_TYPES[type_name]
    assert model.tensors["blk.0.attn_k.weight"].dims == (256, 128)
    tokens = model.tokenizer.encode("to be")
    assert model.tokenizer.decode(tokens[1:]).strip() == "to be"
    assert model.chat_template.render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    runner = Runner(model, threads=1)
    try:
        first = runner.forward(tokens)
        later = runner.forward([300])
    finally:
        runner.close()
    for logits in (first, later):
        assert np.isfinite(logits).all()
        assert 0.2 < logits.std() < 5


@pytest.mark.parametrize("type_name", make_models.OUTPUT_TYPES)
def test_random_weights_keep_the_length_of_a_vector(type_name):
    rows = make_models.random_rows(type_name, 64, 512, np.random.default_rng(3))
    quant = make_models.QUANT_TYPES[make_models.GGMLQuantizationType[type_name]]
    weights = quant.dequantize(rows.reshape(-1, quant.block_bytes))
    assert weights.std() * 512**0.5 == pytest.approx(1, rel=0.05)
    assert abs(weights.mean()) < 0.3 * weights.std()


def test_pieces_do_not_change_what_is_written(tmp_path, monkeypatch):
    make_models.write_random(tmp_path / "whole.gguf", "Q8_0", SMALL)
    monkeypatch.setattr(make_models, "CHUNK", 34 * 100)
    make_models.write_random(tmp_path / "pieces.gguf", "Q8_0", SMALL)
    readers = [GGUFReader(tmp_path / name) for name in ("whole.gguf", "pieces.gguf")]
    tables = [[(tensor.name, tensor.shape.tolist(), tensor.tensor_type) for tensor in one.tensors] for one in readers]
    assert tables[0] == tables[1]
    assert len(tables[0]) == 2 * 9 + 3


def test_vocabulary_has_no_text_twice():
    texts, types = make_models.vocabulary(32000)
    assert len(set(texts)) == len(texts) == len(types) == 32000


def test_a_file_is_written_whole_or_not_at_all(tmp_path, capsys):
    path = tmp_path / "model.gguf"

    def fails(unfinished):
        unfinished.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        make_models.made(path, fails)
    assert list(tmp_path.iterdir()) == []
    make_models.made(path, lambda unfinished: unfinished.write_bytes(b"whole"))
    make_models.made(path, fails)  # it is there: nothing is written
    assert path.read_bytes() == b"whole"
    assert "is there" in capsys.readouterr().out


# Workers


def test_a_worker_measures_our_engine(tmp_path):
    path = tiny_model.write(tmp_path / "tiny.gguf")
    with Worker(sys.executable, OURS, path, 1, 64) as worker:
        assert worker.result.facts["kv_bytes_per_token"] == 2 * 2 * (16 + 16) * 2
        for order in ("prefill 20", "decode 3", "clear", "decode 2"):
            assert worker.ask(order) >= 0
        assert worker.result.trouble == ""
        assert worker.ask("prefill 65") is None
        assert worker.result.trouble.startswith("failed: ContextFullError: ")
        assert worker.ask("clear") is None


def test_a_model_that_cannot_be_opened_is_trouble(tmp_path):
    (tmp_path / "empty.gguf").touch()
    with Worker(sys.executable, OURS, tmp_path / "empty.gguf", 1, 64) as worker:
        assert worker.result.trouble.startswith("failed: ")


def test_a_worker_that_dies_leaves_its_last_words(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "HERE", tmp_path)
    (tmp_path / "worker.py").write_text("import sys\nprint('{}', flush=True)\ninput()\nsys.exit('bad\\nassertion')")
    with Worker(sys.executable, OURS) as worker:
        assert worker.ask("prefill 1") is None
        assert worker.result.trouble == "failed: exit code 1, assertion"


def test_an_interpreter_that_is_not_there_is_an_absent_engine(tmp_path):
    with Worker(str(tmp_path / "python"), "llama.cpp", "m.gguf", 1, 64) as worker:
        assert worker.result.trouble.startswith("absent: ")
        assert worker.ask("prefill 1") is None


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed here")
def test_an_engine_that_is_not_installed_is_absent():
    with Worker(sys.executable, "llama.cpp", "m.gguf", 1, 64) as worker:
        assert worker.result.trouble == "absent: No module named 'llama_cpp'"


# The machine


def test_all_memory_is_read_and_all_products_are_made(monkeypatch):
    monkeypatch.setattr(machine, "READ_BYTES", 1 << 20)
    monkeypatch.setattr(machine, "FMA_ROUNDS", 100)
    monkeypatch.setattr(machine, "SIZE", 64)
    measured = machine.Machine(2)
    lanes = measured._out.reshape(2, 16)[:, : machine.LANES]  # of each thread
    for order in ("read", "fma", "sgemm"):
        assert measured.orders[order]() > 0
        if order == "read":
            assert lanes.sum() == (1 << 20) / 4  # of ones
        elif order == "fma":
            assert np.allclose(lanes, machine.CHAINS)  # each chain comes to 1
    assert measured.facts["blas"]
    measured._team.close()


# The table


def report(context=0, **results):
    facts = {"cpu": "A Processor", "cores": 2, "simd": "avx2", "blas": "OpenBLAS Haswell", "version": "numpy 2"}
    found = Result(facts, {"read": [40.0, 50.0, 45.0], "fma": [500.0], "sgemm": [400.0]})
    return Report("compare.py m.gguf", 2, context, compare.tests_of(512, 128, context), found, {"m.gguf": results})


def ours(prefill, decode, file_type="Q8_0", **more):
    facts = {
        "version": "0.1",
        "file_type": file_type,
        "weight_bytes_per_token": 90_000_000,
        "kv_bytes_per_token": 22_500,
        "block_weights": 100_000_000,
    }
    return Result(facts, {"prefill 512": prefill, "decode 128": decode} | more)


def rows(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_table_of_medians_and_ratios():
    text = compare.markdown(
        report(
            **{
                OURS: ours([3000.0, 1000.0, 2000.0], [400.0]),
                "llama.cpp": Result({"version": "1"}, {"prefill 512": [1000.0], "decode 128": [99.94]}),
                "ik_llama.cpp": Result({"version": "2"}, {"prefill 512": [500.0], "decode 128": [200.0]}),
            }
        )
    )
    assert rows(text) == [
        ["model", "test", OURS, "llama.cpp", "ik_llama.cpp", "to the better", ""],
        ["---", "---", "---:", "---:", "---:", "---:", "---"],
        ["m", "prefill 512", "2000", "1000", "500", "2.00x", "400 GOP/s in the matrices"],
        ["", "decode 128", "400", "99.9", "200", "2.00x", "36.0 GB/s of weights, 80 % of the plain read"],
    ]
    assert "A Processor, 2 cores, avx2, 2 threads. Plain read 45.0 GB/s, float32 FMA peak 500 GFLOP/s" in text
    assert "sgemm 400 GFLOP/s (OpenBLAS Haswell kernel)" in text
    assert "    compare.py m.gguf\n" in text
    assert "tinyllm-chat 0.1, llama.cpp 1, ik_llama.cpp 2; numpy 2." in text


def test_floats_are_compared_with_the_peak():
    text = compare.markdown(
        report(**{OURS: ours([2000.0], [400.0], "F16"), "llama.cpp": Result(), "ik_llama.cpp": Result()})
    )
    assert rows(text)[2][-1] == "400 GOP/s in the matrices, 80 % of the FMA peak"


def test_long_context_is_compared_with_reading_the_cache():
    more = {"prefill 8000": [1500.0], "decode 128 at 8000": [125.0]}  # 8 ms where 2.5 ms were without it
    text = compare.markdown(
        report(8000, **{OURS: ours([2000.0], [400.0], **more), "llama.cpp": Result(), "ik_llama.cpp": Result()})
    )
    assert rows(text)[5][1] == "decode 128 at 8000"
    assert rows(text)[5][-1] == "adds 5.50 ms, reading K and V takes 4.00 ms: 1.38x"


def test_what_is_absent_or_failed_is_said():
    text = compare.markdown(
        report(
            **{
                OURS: ours([2000.0], [400.0]),
                "llama.cpp": Result(trouble="absent: No module named 'llama_cpp'"),
                "ik_llama.cpp": Result({"version": "2"}, {"prefill 512": [500.0]}, "failed: exit code -6, assert"),
            }
        )
    )
    assert rows(text)[2][2:6] == ["2000", "absent", "500", "4.00x"]
    assert rows(text)[3][2:6] == ["400", "absent", "failed", ""]
    assert "llama.cpp absent, ik_llama.cpp 2;" in text
    assert "* llama.cpp, m.gguf: absent: No module named 'llama_cpp'" in text
    assert "* ik_llama.cpp, m.gguf: failed: exit code -6, assert" in text


def test_without_our_engine_and_the_machine_there_still_is_a_table():
    alone = {
        OURS: Result(trouble="failed: x"),
        "llama.cpp": Result({}, {"decode 128": [10.0]}),
        "ik_llama.cpp": Result(),
    }
    found = report(**alone)
    found.machine = Result(trouble="failed: y")
    text = compare.markdown(found)
    assert rows(text)[3][1:] == ["decode 128", "failed", "10.0", "–", "", ""]
    assert "not known (failed: y)" in text


def test_everybody_begins_once():
    assert [compare.turn(("a", "b", "c"), number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert sorted(compare.turn(("a", "b", "c"), 2)) == ["a", "b", "c"]


def test_the_command_names_no_folders():
    found = compare.command_line(["/models/a b.gguf", "--python", "/opt/x/bin/python", "-r", "3"])
    assert found == "python benchmarks/compare.py 'a b.gguf' --python python -r 3"


def test_blas_chooses_for_itself(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("KEPT", "1")
    environment = compare.plain_environment(3)
    assert "OPENBLAS_CORETYPE" not in environment
    assert environment["OPENBLAS_NUM_THREADS"] == "3"
    assert environment["KEPT"] == "1"


# Pictures


def test_a_curve_is_drawn_with_all_its_points():
    points = [{"tokens": 128 << i, "prefill_tokens_per_second": 900.0 - i, "decode_ms": 8.1 + i} for i in range(7)]
    model = {"name": "A & B", "file_type": "Q4_1"}
    svg = context_plot.drawn({"context": points, "model": model, "cache_type": "f16", "threads": 2})
    root = ElementTree.fromstring(svg)
    circles = [(float(e.get("cx")), float(e.get("cy"))) for e in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(circles) == 14
    assert all(0 < x < float(root.get("width")) and 0 < y < float(root.get("height")) for x, y in circles)
    assert circles[7:] == sorted(circles[7:], key=lambda at: (at[0], -at[1]))  # later and slower


@pytest.mark.parametrize(("top", "step"), [(0.7, 0.1), (7, 1), (12, 2), (95, 20), (363, 50), (1000, 200), (8192, 2000)])
def test_steps_are_round_and_few(top, step):
    assert context_plot.nice_step(top) == step
