"""The picture of the KV cache: who has how much of it, and where only some layers still have their part."""

from dataclasses import replace

from tinyllm_chat.chat.events import CacheSegment, CacheState
from tinyllm_chat.chat.scripted import model_info
from tinyllm_chat.tui.widgets.cache import CacheFigures, CachePanel, cache_map, token_cost

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


def test_only_what_changes_the_picture_is_shown_at_once(monkeypatch) -> None:
    panel = CachePanel(lambda message_id: "")
    panel._lines_width = 30
    shown: list[int] = []
    monkeypatch.setattr(panel, "renew", lambda: shown.append(panel._figures.state.used))

    def follow(*tokens: int) -> None:
        segments = tuple(CacheSegment(str(place), "user", count) for place, count in enumerate(tokens))
        panel.follow(CacheFigures(CacheState(sum(tokens), 900, 0, 0, segments)))

    panel.follow(CacheFigures())
    assert shown == []
    for used in range(100, 120):  # a cell of the map stands for ten tokens
        follow(used)
    assert shown == [100, 106, 115]
    follow(100, 19)  # another message in the same cells
    assert shown == [100, 106, 115, 119]
    panel.show(CacheFigures(CacheState(119, 900, 1, 0)))
    assert len(shown) == 5
