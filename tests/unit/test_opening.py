"""What is decided when a model is opened: its context, its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tinyllm_chat.chat.adapters import adapter_files
from tinyllm_chat.chat.cache_types import bytes_per_token, cached_shapes, full_bytes, lasting_bytes_per_token
from tinyllm_chat.chat.opening import choose_context, display_name
from tinyllm_engine.kv_cache import KVCache, LayerShape
from tinyllm_engine.windows import Windows


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


LAYER = LayerShape(3, 64, 64)
PER_TOKEN = 23040  # of thirty such layers
FULL = 8192 * PER_TOKEN


def full_of_thirty(length: int) -> int:
    return full_bytes([LAYER] * 30, "f16", "f16", length)


def test_layers_with_windows_keep_them_and_a_few_places() -> None:
    narrow = replace(LAYER, window=512)
    shapes = [narrow] * 25 + [LAYER] * 5
    assert lasting_bytes_per_token(shapes, "f16", "f16", 32768) == PER_TOKEN // 6
    assert lasting_bytes_per_token(shapes, "f16", "f16", 512) == PER_TOKEN
    assert lasting_bytes_per_token([narrow] * 30, "f16", "f16", 32768) == 0
    kept = 64 * Windows((512,)).most_pages(512)
    assert 3 * 512 < kept < 10 * 512
    assert full_bytes(shapes, "f16", "f16", 32768) == (32768 + 5 * kept) * PER_TOKEN // 6
    assert full_bytes([narrow] * 30, "f16", "f16", 1 << 20) == kept * PER_TOKEN
    cache = KVCache(shapes, 32768)
    assert full_bytes(shapes, "f16", "f16", 32768) == 512 * cache.bytes_of_page(windowed=False) + (
        cache.most_windowed_pages * (cache.bytes_of_page(windowed=True) - cache.bytes_of_page(windowed=False))
    )
    lengths = [full_bytes(shapes, "f16", "f16", length) for length in range(64, 8192, 64)]
    assert lengths == sorted(lengths)


def test_a_token_costs_what_the_layers_cache() -> None:
    assert bytes_per_token([LAYER] * 30, "f16", "f16") == PER_TOKEN
    assert bytes_per_token([LAYER] * 30, "f32", "f32") == 2 * PER_TOKEN
    # Blocks that remember a sequence as a whole cache nothing of a token.
    mixed = [LayerShape(0, 0, 0)] * 20 + [LAYER] * 10
    model = SimpleNamespace(weights=SimpleNamespace(cached=mixed))
    assert bytes_per_token(cached_shapes(model), "f16", "f16") == PER_TOKEN // 3


@pytest.mark.parametrize(
    ("asked", "memory", "length", "notes"),
    [
        (0, None, 8192, []),
        (0, FULL, 8192, []),
        (0, FULL - 1, 8192, ["a full cache of 8192 tokens takes 189 MB, 189 MB of memory are free: -c 7936 fits"]),
        (0, 0, 8192, ["a full cache of 8192 tokens takes 189 MB, 0 MB of memory are free"]),
        (100, 8 << 30, 100, []),
        (100_000, 8 << 30, 100_000, ["a context of 100000 tokens is longer than the 8192 that the model was made for"]),
        (8192, 1 << 20, 8192, ["a full cache of 8192 tokens takes 189 MB, 1 MB of memory are free"]),
    ],
)
def test_a_full_cache_that_does_not_fit_is_told_before_it_is_full(
    asked: int, memory: int | None, length: int, notes: list[str]
) -> None:
    assert choose_context(8192, asked, full_of_thirty, memory, lazy=True) == (length, notes)


@pytest.mark.parametrize(
    ("memory", "length", "notes"),
    [(2 * FULL, 8192, 0), (2 * FULL - 1, 8064, 1), (100 << 20, 2176, 1), (0, 512, 1), (None, 8192, 0)],
)
def test_where_memory_is_taken_at_once_the_cache_takes_half_of_it(memory: int | None, length: int, notes: int) -> None:
    found = choose_context(8192, 0, full_of_thirty, memory, lazy=False)
    assert (found[0], len(found[1])) == (length, notes)
    assert choose_context(8192, 8192, full_of_thirty, memory, lazy=False)[0] == 8192
