"""Bench counts what it says."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from support.golden import write_toy_model
from tinyllm_engine.context_curve import context_curve
from tinyllm_engine.decode import Drawn
from tinyllm_engine.errors import EngineError
from tinyllm_engine.measure import bench, private_bytes, profiles, weight_bytes_per_token
from tinyllm_engine.model import Model
from tinyllm_engine.program import Program
from tinyllm_engine.reference import ReferenceRunner


class Clocked:
    """A runner that takes one second for each token, on a clock of its own. Its programs are empty."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.context_length = 64
        tensors = {"token_embd.weight": SimpleNamespace(rows=100, row_bytes=10, nbytes=1000)}
        self.model = SimpleNamespace(tensors=tensors | {"blk.0.attn_q.weight": SimpleNamespace(nbytes=5000)})
        self.state = SimpleNamespace(max_rows=4, outputs_address=0)
        self.cache = SimpleNamespace(bytes_in_use=2_000_000)
        self.evaluated = []
        monkeypatch.setattr("tinyllm_engine.measure.time.perf_counter", lambda: self.now)

    def sequence(self):
        return self

    def truncate(self, n):
        self.evaluated.append([])

    def forward(self, ids):
        self.evaluated[-1].append(len(ids))
        return self.work(len(ids))

    def decode(self, last, sampler, tokens, eog, count, cancel):
        assert tokens[-1] == last
        assert not eog.any()
        self.evaluated[-1].append(f"{count} drawn")
        self.work(count)
        return Drawn([7] * count, [0.0] * count)

    def work(self, tokens):
        self.now += tokens
        return np.zeros(100, np.float32)

    def profile(self, on):
        return [(Program(), np.zeros((0, 2), np.int64))] * 2


def test_bench_gives_medians_of_runs_from_an_empty_cache(monkeypatch):
    clocked = Clocked(monkeypatch)
    found = bench(clocked, prompt=8, predict=19, runs=2)
    ones = [1] * 19
    drawn = ["16 drawn", "3 drawn"]
    assert clocked.evaluated == [[8], *[[8], ones, drawn, [8]] * 2, drawn]
    private = found.memory.private_mb
    assert private is None or private > 0
    assert dataclasses.asdict(found) == {
        "prefill": {"tokens": 8, "tokens_per_second": 1.0, "runs": (1.0, 1.0)},
        "decode": {"tokens": 19, "tokens_per_second": 1.0, "gb_per_second": 6000 / 1e9, "runs": (1.0, 1.0)},
        "sampled": {"tokens": 19, "tokens_per_second": 1.0, "sampling_percent": None, "runs": (1.0, 1.0)},
        "first_token_seconds": 8.0,
        "depth": 0,
        "weight_bytes_per_token": 6000,
        "memory": {"private_mb": private, "cache_mb": 2.0},
    }


def test_bench_writes_behind_what_is_in_the_cache(monkeypatch):
    clocked = Clocked(monkeypatch)
    found = bench(clocked, prompt=2, predict=3, runs=1, depth=20)
    assert clocked.evaluated == [[2], [2], [20, 1, 1, 1], [20, "3 drawn"], [2], [20, "3 drawn"]]
    assert found.decode.runs == found.sampled.runs == (1.0,)  # the 20 are not timed


def test_bench_reports_its_stages(monkeypatch):
    seen = []
    bench(Clocked(monkeypatch), prompt=4, predict=2, runs=1, progress=lambda *said: seen.append(said))
    assert seen == [("reading", 1, 4), ("writing", 2, 4), ("drawing", 3, 4), ("first token", 4, 4)]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"prompt": 0}, "prompt from 1 to 64"),
        ({"predict": 65}, "found 65"),
        ({"runs": 0}, "at least one run"),
        ({"depth": 64}, "depth from 0 to 63 tokens, found 64"),
        ({"depth": 61}, "predict from 1 to 3 tokens, found 4"),
    ],
)
@pytest.mark.parametrize("measure", [bench, profiles])
def test_bench_refuses_what_does_not_fit(monkeypatch, measure, numbers, message):
    with pytest.raises(EngineError, match=message):
        measure(Clocked(monkeypatch), **{"prompt": 4, "predict": 4, **numbers})


def test_profiles_need_clocks(monkeypatch):
    with pytest.raises(EngineError, match="no clock"):
        profiles(Clocked(monkeypatch), prompt=4, predict=4)


def test_one_token_reads_one_row_of_an_embedding_that_is_not_the_output(monkeypatch):
    model = Clocked(monkeypatch).model
    assert weight_bytes_per_token(model) == 6000
    model.tensors["output.weight"] = SimpleNamespace(nbytes=700)
    assert weight_bytes_per_token(model) == 5710


def test_private_memory_is_what_the_system_says(tmp_path):
    status = tmp_path / "status"
    assert private_bytes(status) is None
    status.write_text("VmRSS:\t  300 kB\nRssAnon:\t  120 kB\nRssFile:\t  180 kB\n")
    assert private_bytes(status) == 120 * 1024
    status.write_text("VmRSS:\t  300 kB\n")
    assert private_bytes(status) is None


def test_a_curve_of_contexts(tmp_path_factory):
    path = write_toy_model(tmp_path_factory.mktemp("curve"), "llama-gqa", context_length=300)
    runner = ReferenceRunner(Model.open(path))
    runner.vocab_size, runner.cache = 128, SimpleNamespace(bytes_in_use=128_000)
    seen = []
    points = context_curve(runner, 8192, runs=2, progress=lambda *stage: seen.append(stage))
    assert [point.tokens for point in points] == [128, 256, 300]
    assert [point.cache_mb for point in points] == [0.128, 0.128, 0.128]
    assert points[0].added_ms == 0
    assert points[0].prefill_tokens_per_second == points[0].last_tokens_per_second > 0
    assert seen[-1] == ("measuring", 6, 6)
    with pytest.raises(EngineError, match="more than 128 tokens, found 128"):
        context_curve(runner, 128)
