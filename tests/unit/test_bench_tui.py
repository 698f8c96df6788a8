"""`bench`: what it prints; and with --tui, the real screen on a pseudo-terminal."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import tiny_model
from tinyllm_chat.cli.bench import print_figures, print_profile, print_tui
from tinyllm_chat.cli.bench_tui import Round, summary
from tinyllm_chat.cli.program import program

HAS_TERMINALS = importlib.util.find_spec("pty") is not None and importlib.util.find_spec("termios") is not None


def test_summary_has_medians_and_shares_of_each_round():
    rounds = [Round(10, 90.0, 100.0, 120.0, 0.1), Round(12, 40.0, 50.0, 50.0, 0.3), Round(11, 30.0, 60.0, 40.0, 0.2)]
    found = summary(rounds)
    assert found.pop("rounds")[1] == {"tokens": 12, "chat": 40.0, "sampled": 50.0, "decode": 50.0, "screen_duty": 0.3}
    assert found == {
        "size": "160x45",
        "tokens": 11,
        "tokens_per_second": 40.0,
        "sampled_tokens_per_second": 60.0,
        "decode_tokens_per_second": 50.0,
        "of_sampled": 0.8,
        "of_decode": 0.75,
        "screen_duty": 0.2,
    }


def test_figures_of_the_screen_are_printed(capsys):
    print_tui(summary([Round(500, 270.0, 300.0, 360.0, 0.071)]))
    assert capsys.readouterr().out.splitlines() == [
        "in the chat      270.0 tokens/s  500 tokens, 160x45",
        "sampled          300.0 tokens/s  90.0 % of it in the chat",
        "decode           360.0 tokens/s  75.0 % of it in the chat",
        "screen             7.1 % of a core",
    ]


def test_figures_are_printed(capsys):
    report = {
        "prefill": {"tokens": 512, "tokens_per_second": 4000.04},
        "decode": {"tokens": 128, "tokens_per_second": 400.0, "gb_per_second": 38.6},
        "sampled": {"tokens": 128, "tokens_per_second": 390.0, "sampling_percent": 1.24},
        "first_token_seconds": 0.13,
        "depth": 64,
        "memory": {"private_mb": 120.2, "cache_mb": 11.8},
    }
    print_figures(report)
    lines = [
        "prefill         4000.0 tokens/s  512 tokens",
        "decode           400.0 tokens/s  128 tokens behind 64, 38.6 GB/s of weights",
        "sampled          390.0 tokens/s  128 tokens behind 64, each drawn: sampling takes 1.2 %",
        "first token      130.0 ms        after 512 tokens",
        "memory           120.2 MB        and 11.8 MB of KV cache",
    ]
    assert capsys.readouterr().out.splitlines() == lines
    report["sampled"]["sampling_percent"] = report["memory"]["private_mb"] = None
    print_figures(report | {"depth": 0})
    assert capsys.readouterr().out.splitlines()[2:] == [
        "sampled          390.0 tokens/s  128 tokens, each drawn",
        "first token      130.0 ms        after 512 tokens",
    ]


def test_a_profile_shows_what_was_read_or_computed(capsys):
    costs = [
        {"name": "matmul Q4_1", "seconds": 0.002, "percent": 80.0, "gb_per_second": 40.0, "gop_per_second": 300.0},
        {"name": "barrier wait", "seconds": 0.0005, "percent": 20.0, "gb_per_second": None, "gop_per_second": None},
    ]
    profile = {"tokens": 2, "seconds": 0.0025, "costs": costs}
    print_profile("decode", profile)
    print_profile("prefill", profile)
    assert [line for line in capsys.readouterr().out.splitlines() if line] == [
        "decode: 1.250 ms a token, 2 tokens; times of the first thread",
        "  matmul Q4_1        1000.0 us   80.0 %     40.0 GB/s",
        "  barrier wait        250.0 us   20.0 %",
        "prefill: 1.250 ms a token, 2 tokens; times of the first thread",
        "  matmul Q4_1        1000.0 us   80.0 %    300.0 GOP/s",
        "  barrier wait        250.0 us   20.0 %",
    ]


def test_the_screen_has_no_profile():
    ran = CliRunner().invoke(program, ["bench", "m.gguf", "--tui", "--profile"], prog_name="tinyllm-chat")
    assert ran.exit_code == 2
    assert "--tui" in ran.stderr


def bench(*arguments):
    command = [sys.executable, "-m", "tinyllm_chat", "bench", *map(str, arguments), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, stdin=subprocess.DEVNULL)


def test_profiles_are_in_the_json(tmp_path):
    path = tiny_model.write(tmp_path / "tiny.gguf")
    ran = bench(path, "-p", "16", "-n", "4", "-d", "5", "-r", "1", "-t", "1", "--profile")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["depth"] == 5
    assert report["sampled"]["tokens_per_second"] > 0
    assert {"private_mb", "cache_mb"} == report["memory"].keys()
    for name, tokens in (("prefill", 16), ("decode", 4)):
        assert report["profile"][name]["tokens"] == tokens
        assert any(cost["name"] == "matmul F32" for cost in report["profile"][name]["costs"])


@pytest.mark.skipif(not HAS_TERMINALS, reason="needs pseudo-terminals")
def test_the_chat_is_measured_on_a_terminal(tmp_path, monkeypatch):
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"TINYLLM_{name}_DIR", str(tmp_path / name.lower()))
    path = tiny_model.write(tmp_path / "tiny.gguf")
    ran = bench(path, "--tui", "-n", "24", "-r", "1", "-t", "1")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    (only,) = report["tui"]["rounds"]
    assert 16 <= only["tokens"] <= 24
    assert min(only["chat"], only["sampled"], only["decode"], only["screen_duty"]) > 0
    assert (report["threads"], report["model"]["name"]) == (1, "Tiny")
    assert not (tmp_path / "data").exists()  # the chats that were measured are nobody's


@pytest.mark.skipif(not HAS_TERMINALS, reason="needs pseudo-terminals")
def test_a_model_that_the_chat_cannot_open_is_one_line(tmp_path):
    path = tiny_model.write(tmp_path / "tiny.gguf", without=["blk.1.ffn_up.weight"])
    ran = bench(path, "--tui")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert "blk.1.ffn_up.weight" in line
    assert Path(path).name in line
