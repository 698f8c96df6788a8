"""The parts of streaming that need no screen: which text is finished, and Markdown that is appended to."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content
from tinyllm_chat.tui.blocks import BlockStream
from tinyllm_chat.tui.widgets.answer import Answer
from tinyllm_chat.tui.widgets.markdown import MarkdownText
from tinyllm_chat.tui.widgets.table import column_widths

LINES = st.lists(
    st.sampled_from(
        [
            "text",
            "more text",
            "",
            "",
            "- item",
            "  - nested",
            "1. one",
            "```python",
            "```",
            "~~~",
            "x = 1",
            "# Title",
            "| a | b |",
            "|---|---|",
            "> quote",
            "---",
            "    indented",
            "* star",
            "- ",
        ]
    ),
    max_size=20,
).map("\n".join)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    points = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(points)]


def shown(pieces) -> str:
    return "\n".join(line.plain.rstrip() for piece in pieces for line in [*[Content()] * piece.gap, *piece.lines(50)])


@given(LINES, st.integers(8, 60))
def test_markdown_that_gets_another_width_is_as_if_it_had_had_it(text, width):
    before, after = MarkdownText(), MarkdownText()
    before.append(text)
    after.append(text)
    shown(before.pieces)
    for one, other in zip(before.pieces, after.pieces, strict=True):
        assert all(a.is_same(b) for a, b in zip(one.lines(width), other.lines(width), strict=True))


@given(LINES, st.lists(st.integers(0, 300), max_size=12))
def test_all_text_comes_out_once_and_in_order(text, cuts):
    stream, out = BlockStream(), ""
    for piece in pieces_of(text, cuts):
        out += stream.feed(piece)
        assert out + stream.rest == text[: len(out) + len(stream.rest)]
    assert out + stream.flush() == text


@given(LINES, st.lists(st.integers(0, 300), max_size=12))
def test_what_is_finished_does_not_depend_on_how_it_came(text, cuts):
    whole, parts = BlockStream(), BlockStream()
    finished = whole.feed(text)
    assert "".join(map(parts.feed, pieces_of(text, cuts))) == finished
    assert (whole.rest, whole.fence, whole.joins_list) == (parts.rest, parts.fence, parts.joins_list)


@given(LINES, st.lists(st.integers(0, 300), max_size=12))
def test_appending_gives_what_rendering_at_once_gives(text, cuts):
    whole = MarkdownText()
    whole.append(text)
    stream, streamed = BlockStream(), MarkdownText()
    for piece in pieces_of(text, cuts):
        streamed.append(stream.feed(piece))
    streamed.append(stream.flush())
    assert shown(streamed.pieces) == shown(whole.pieces)


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("para", ""),
        ("para\n", ""),
        ("para\n\nnext", "para\n\n"),
        ("# Title\nnext", "# Title\n"),
        ("- one\n- two", ""),
        ("- one\n- two\n- thr", "- one\n"),
        ("intro\n- one\n", "intro\n"),
        ("```py\nx = 1\ny =", "```py\nx = 1\n"),
        ("~~~\n```\nx\n~~~\ny", "~~~\n```\nx\n~~~\n"),
        ("| a |\n|---|\n| b |\n", ""),
    ],
)
def test_what_is_finished(text, finished):
    stream = BlockStream()
    assert stream.feed(text) == finished
    assert stream.rest == text[len(finished) :]


def lines(text: str, width: int = 40) -> list[str]:
    document = MarkdownText()
    document.append(text)
    return shown(document.pieces).split("\n")


def test_blocks_as_lines():
    assert lines("# Title\n\nSome *text*\nthat `wraps`.") == ["Title", "", "Some text that wraps."]
    assert lines("- a\n- b\n  - c\n    - d") == ["• a", "• b", "  ◦ c", "    ▪ d"]
    assert lines("9. a\n10. b") == [" 9. a", "10. b"]
    assert lines("- a\n\n- b") == ["• a", "", "• b"]
    assert lines("> a\n>\n> - b") == ["▌ a", "▌", "▌ • b"]
    assert lines("```py\nx = 1\n\ny\n```\nafter") == ["  x = 1", "", "  y", "", "after"]
    assert lines("---") == ["─" * 50]
    assert lines("| a | bb |\n|---|---|\n| ccc | d |") == ["a     bb", "───   ──", "ccc   d"]
    assert lines("line  \nbreak") == ["line", "break"]


def test_long_code_lines_are_folded_not_lost():
    text = "x" * 120
    assert "".join(line.strip() for line in lines(f"```\n{text}\n```")) == text


@given(st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=6), min_size=1, max_size=6), st.integers(1, 300))
def test_columns_never_grow_beyond_their_content_and_fit_where_they_can(cells, room):
    widths = column_widths(cells, room)
    for column, width in enumerate(widths):
        assert 1 <= width <= max(1, *(row[column] for row in cells if column < len(row)))
    assert sum(widths) <= max(room, 4 * len(widths))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_answer_is_painted_at_most_ten_times_a_second():
    clock = Clock()
    answer = Answer(clock)
    painted = 0
    for _ in range(300):  # three seconds, a token every 10 ms
        clock.now += 0.01
        answer.feed("word ")
        painted += answer.paint()
    assert 25 <= painted <= 31
    assert not answer.paint()  # nothing new


def test_the_unfinished_rest_is_plain_and_stands_where_its_block_will():
    clock = Clock()
    answer = Answer(clock)
    for text in ["- **one**\n", "- two\n", "- **three"]:
        answer.feed(text)
        clock.now += 1
        answer.paint()
    assert shown(answer.pieces).split("\n") == ["• one", "• two", "• **three"]
    answer.feed("**\n\n```py\nx = 1\ny = ")
    clock.now += 1
    answer.paint()
    assert shown(answer.pieces).split("\n") == ["• one", "• two", "• three", "", "  x = 1", "  y ="]
    answer.feed("2\n\nz")
    answer.paint()
    answer._next_write = float("inf")  # what follows waits to be rendered
    clock.now += 1
    answer.feed(" = 3\n\n\nlast")
    clock.now += 1
    answer.paint()
    assert shown(answer.pieces).split("\n")[-6:] == ["  y = 2", "", "  z = 3", "", "", "  last"]
    answer.finish()
    assert shown(answer.pieces).split("\n")[-6:] == ["  y = 2", "", "  z = 3", "", "", "  last"]


def test_rendering_waits_when_it_takes_too_much_of_the_time(monkeypatch):
    clock = Clock()
    answer = Answer(clock)
    append = MarkdownText.append

    def slow(self, text):
        clock.now += 0.1
        append(self, text)

    monkeypatch.setattr(MarkdownText, "append", slow)
    rendered = []
    for number in range(40):  # four seconds of other work
        clock.now += 0.1
        answer.feed(f"Paragraph {number}.\n\n")
        before = clock.now
        answer.paint()
        rendered.append(clock.now > before)
    assert 2 <= sum(rendered) <= 5
    assert "Paragraph 39." in shown(answer.pieces)
