"""inspect, bench, perplexity, doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gguf_files, lora_files, tiny_model
from support.command_line import run, run_process, the_line
from tinyllm_engine.model import Model

GOLDEN = Path(__file__).parents[2] / "golden"


def test_inspect_json(tiny: Path) -> None:
    report = json.loads(run("inspect", tiny, "--json", "-c", "128").stdout)
    assert report["runs"] is True
    assert report["problems"] == []
    assert report["architecture"] == "llama"
    assert report["metadata"]["tokenizer.ggml.tokens"]["length"] == 258
    assert report["tensors"][0] == {"name": "token_embd.weight", "type": "F32", "dims": [64, 258], "bytes": 258 * 256}
    assert report["types"] == {"F32": {"tensors": 20, "bytes": report["memory"]["weight_bytes"]}}
    # 2 layers, 2 heads of 16 for K and V each, 2 bytes
    assert report["memory"]["cache_bytes_per_token"] == 2 * 2 * (16 + 16) * 2
    assert report["memory"]["cache_bytes"] == 128 * 256


def test_inspect_says_whether_an_adapter_fits(tiny: Path, tmp_path: Path) -> None:
    values = lora_files.pairs(Model.open(tiny), ["blk.0.attn_q.weight"], 8)
    path = lora_files.write(tmp_path / "pirate.gguf", values, lora_files.metadata("llama", 16.0))
    report = json.loads(run("inspect", tiny, "--lora", f"{path}:0.5", "--json").stdout)
    (adapter,) = report["adapters"]
    assert report["runs"]
    assert (adapter["path"], adapter["scale"], adapter["alpha"]) == (str(path), 0.5, 16.0)
    assert (adapter["ranks"], adapter["adapted"]) == ([8], 1)
    text = run("inspect", tiny, "--lora", path).stdout
    assert "of 1 tensors, rank 8, alpha 16, scale 1" in text
    assert "Pirate" in text
    other = lora_files.write(tmp_path / "other.gguf", values, lora_files.metadata("qwen2", 16.0))
    report = json.loads(run("inspect", tiny, "--lora", other, "--json").stdout)
    assert not report["runs"]
    assert report["problems"][0].startswith(f"{other}: expected an adapter for 'llama' models")
    assert "Runs: no" in run("inspect", path).stdout


def test_inspect_says_when_a_full_cache_does_not_fit_into_memory(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tinyllm_chat.cli.inspect import command

    monkeypatch.setattr("tinyllm_chat.chat.memory.free_memory", lambda: 1 << 20)
    command([str(tiny), "-c", "8000"], standalone_mode=False)
    assert "a full cache of 8000 tokens takes 2 MB, 1 MB of memory are free: -c 4096 fits" in capsys.readouterr().out


def test_inspect_shows_everything_as_text(tiny: Path) -> None:
    text = run("inspect", tiny).stdout
    for part in ("general.name", "blk.0.attn_q.weight", "64 x 258", "F32", "KV cache", "Runs: yes"):
        assert part in text


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"extra": {"general.architecture": "mystery"}}, "mystery"),
        ({"without": ["blk.1.ffn_down.weight"]}, "blk.1.ffn_down.weight"),
    ],
)
def test_inspect_says_why_a_model_does_not_run(tmp_path: Path, model: dict[str, Any], said: str) -> None:
    result = run("inspect", tiny_model.write(tmp_path / "bad.gguf", **model), "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["runs"] is False
    assert any(said in problem for problem in report["problems"])


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"general.architecture": "clip"}, "this is a projector for images"),
        ({"general.architecture": "bert"}, "this is a model for embeddings"),
        ({"general.architecture": "llama", "general.type": "adapter"}, "this is a LoRA adapter for 'llama' models"),
    ],
)
def test_inspect_says_what_is_no_language_model(tmp_path: Path, metadata: dict[str, Any], said: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_files.build(metadata, [gguf_files.Tensor.of("x", np.ones(4, np.float32))]))
    report = json.loads(run("inspect", path, "--json").stdout)
    assert not report["runs"]
    (problem,) = report["problems"]
    assert problem.startswith(said)
    result = run(path, "-p", "Hi")
    assert result.exit_code == 1
    assert said in the_line(result.stderr)


def test_inspect_of_a_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(gguf_files.build(tiny_model.metadata()))
    report = json.loads(run("inspect", path, "--json").stdout)
    assert report["runs"] is False
    assert any("a vocabulary without weights" in problem for problem in report["problems"])


def test_inspect_prints_no_control_characters_and_valid_json(tmp_path: Path) -> None:
    extra = {
        "general.author": "evil\x1b]0;title\x07\nline",
        "general.license": b"bad \xff utf-8",
        "x.nan": float("nan"),
    }
    path = tiny_model.write(tmp_path / "evil.gguf", extra=extra)
    text = run("inspect", path).stdout
    assert "\x1b" not in text
    assert "evil]0;title line" in text
    report = json.loads(run("inspect", path, "--json").stdout)
    assert report["metadata"]["x.nan"] is None


def test_inspect_names_a_tensor_type_that_cannot_be_computed_with() -> None:
    report = json.loads(run("inspect", GOLDEN / "quants" / "llama-IQ1_S.gguf", "--json").stdout)
    assert any("IQ1_S" in problem for problem in report["problems"])
    assert report["types"]["IQ1_S"]["tensors"] > 0


def test_inspect_needs_no_compiler(tiny: Path) -> None:
    source = (
        "import sys\n"
        "sys.modules['numba'] = sys.modules['llvmlite'] = None\n"
        "from tinyllm_chat.cli.program import program\n"
        f"program(['inspect', {str(tiny)!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert "KV cache" in ran.stdout
    assert "the compiler is missing" in ran.stdout


def test_bench_json(tiny: Path) -> None:
    ran = run_process("bench", tiny, "-p", "16", "-n", "8", "-r", "2", "-t", "2", "--json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["prefill"]["tokens_per_second"] > 0
    assert report["decode"]["tokens_per_second"] > 0
    assert report["decode"]["gb_per_second"] > 0
    assert report["first_token_seconds"] > 0
    assert report["threads"] == 2
    assert report["model"]["path"] == str(tiny)
    assert report["simd"]
    assert report["cpu"]


def test_perplexity_json(tiny: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 12)
    ran = run_process("perplexity", tiny, text, "-c", "128", "--json")
    assert ran.code == 0, ran.err
    assert 1 < json.loads(ran.out)["perplexity"] < 1e6


def test_doctor_says_what_a_bug_report_needs(folders: Path) -> None:
    ran = run_process("doctor")
    assert ran.code == 0
    assert "failed" not in ran.out
    for part in ("numba", "processor", "simd", "threads", "kernel cache", str(folders / "config"), "smollm2"):
        assert part in ran.out
