"""The picture of the KV cache: who has how much of it, and where only some layers still have their part."""

from dataclasses import replace

from tinyllm_chat.chat.events import CacheSegment, CacheState
from tinyllm_chat.chat.scripted import model_info
from tinyllm_chat.tui.widgets.cache import cache_map, token_cost

STATE = CacheState(
    used=60,
    total=100,
    bytes_now=0,
    bytes_full=0,
    segments=(CacheSegment("a", "user", 20, reused=True), CacheSegment("b", "assistant", 40)),
)


def drawn(held, rows=1, width=20):
    return [line.plain for line in cache_map(replace(STATE, held=held), width, rows)]


def test_without_windows_every_line_is_thick():
    assert drawn(None) == ["┅┅┅┅━━━━━━━━········"]
    assert drawn(None, rows=2, width=10) == ["┅┅┅┅━━━━━━", "━━········"]


def test_lines_are_thin_where_layers_with_a_window_have_nothing():
    assert drawn(()) == ["┄┄┄┄────────········"]
    assert drawn(((0, 60),)) == drawn(None)
    assert drawn(((10, 30), (50, 60))) == ["┄┄┅┅━━────━━········"]
    assert drawn(((40, 60),), rows=2, width=10) == ["┄┄┄┄────━━", "━━········"]


def test_what_a_token_takes():
    model = model_info("m.gguf")
    assert token_cost(model) == "23.0 kB a token"
    assert token_cost(replace(model, lasting_bytes_per_token=3840)) == "23.0 kB a token, 3.8 kB stay"
