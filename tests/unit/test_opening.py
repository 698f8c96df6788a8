"""What is decided when a model is opened: its context, its name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tinyllm_chat.chat.adapters import adapter_files
from tinyllm_chat.chat.opening import ModelOptions, cache_bytes_per_token, choose_context, display_name


@pytest.mark.parametrize(
    ("file_name", "general_name", "shown"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Smollm2 135M 8k Mix1", "SmolLM2-135M-Instruct"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "x", "qwen2.5-0.5b-instruct"),
        ("a-BF16-00001-of-00003.gguf", "x", "a"),
        ("b-UD-IQ2_XXS.gguf", "x", "b"),
        ("model.gguf", "Tiny Chat", "Tiny Chat"),
        ("ggml-model-f16.gguf", "\x1b[31mA\nB", "[31mA B"),
        ("sha256-" + "0a" * 32, "Llama 3", "Llama 3"),
        ("model.gguf", "x" * 500, "x" * 80),
        ("model.gguf", "\x00", "model.gguf"),
        ("\n.gguf", "x", "\n.gguf".strip()),
    ],
)
def test_the_name_is_one_printable_line(file_name: str, general_name: str, shown: str) -> None:
    assert display_name(Path(file_name), general_name) == shown


def test_an_adapter_is_a_file_and_perhaps_a_scale(tmp_path: Path) -> None:
    odd = tmp_path / "a:2"
    odd.touch()
    texts = ["a.gguf", "a.gguf:0.5", "C:\\a.gguf", "C:\\a.gguf:-1", str(odd), f"{odd}:3", "a:b", ":1"]
    assert [(str(path), scale) for path, scale in adapter_files(texts)] == [
        ("a.gguf", 1.0),
        ("a.gguf", 0.5),
        ("C:\\a.gguf", 1.0),
        ("C:\\a.gguf", -1.0),
        (str(odd), 1.0),
        (str(odd), 3.0),
        ("a:b", 1.0),
        (":1", 1.0),
    ]


CONFIG = SimpleNamespace(context_length=8192, head_count_kv=(3,) * 30, key_length=64, value_length=64)


@pytest.mark.parametrize(
    ("asked", "memory", "length", "notes"),
    [
        (0, None, 8192, 0),
        (0, 8 << 30, 8192, 0),
        (0, 2 * 8192 * 23040, 8192, 0),
        (0, 2 * 8192 * 23040 - 1, 7936, 1),
        (0, 100 << 20, 2048, 1),
        (0, 0, 512, 1),
        (100, 8 << 30, 100, 0),
        (100_000, 8 << 30, 100_000, 1),
        (8192, 1 << 20, 8192, 1),
        (100_000, 1 << 20, 100_000, 2),
    ],
)
def test_the_context_fits_half_of_the_free_memory(asked: int, memory: int | None, length: int, notes: int) -> None:
    assert cache_bytes_per_token(CONFIG, "f16") == 23040
    found = choose_context(CONFIG, ModelOptions(context_length=asked), memory)
    assert (found[0], len(found[1])) == (length, notes)


def test_a_short_model_is_not_called_capped() -> None:
    short = SimpleNamespace(context_length=128, head_count_kv=(1,), key_length=8, value_length=8)
    assert choose_context(short, ModelOptions(), 0) == (128, [])
