"""Counting a draft at every key press, whatever is pasted into it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_chat.chat.draft_counter import EXACT_CHARACTERS, FRESH_CHARACTERS, DraftCounter


def test_a_short_draft_is_counted_whole() -> None:
    seen: list[str] = []
    counter = DraftCounter(lambda text: seen.append(text) or len(text))  # type: ignore[func-returns-value]
    seen.clear()
    assert counter.count("a\nb") == 3
    assert counter.count("a\nb") == 3
    assert seen == ["a\nb"]


def test_of_a_long_draft_only_what_changed_is_counted_again() -> None:
    seen: list[str] = []
    counter = DraftCounter(lambda text: seen.append(text) or len(text))  # type: ignore[func-returns-value]
    draft = "".join(f"line {number}\n" for number in range(700))
    while (tokens := counter.count(draft)) is None:
        pass
    assert tokens == len(draft)
    seen.clear()
    assert counter.count(draft + "x") == len(draft) + 1
    assert len(seen) == 1


PLAIN = r" ?\w+|\s+(?!\S)|[^\w\s]+\n*|\s+"
PREFIXED = r"▁*\w+|▁+|[^\w▁\n]+|\n"  # in a text that begins with a space, spaces being ▁


@pytest.mark.parametrize("prefixed", [False, True])
@given(st.lists(st.sampled_from(["word", " ", "\n", ".", "  ", "ß", "7", "好", "many words " * 200]), max_size=40))
def test_the_pieces_have_as_many_tokens_as_the_whole(prefixed: bool, parts: list[str]) -> None:
    def count(text: str) -> int:
        return len(re.findall(PREFIXED, "▁" + text.replace(" ", "▁")) if prefixed else re.findall(PLAIN, text))

    text = "start" + "".join(parts) + "\nend" * 500
    counter = DraftCounter(count)
    total = None
    while total is None:
        total = counter.count(text)
    assert total == count(text)


def test_white_space_around_a_draft_is_not_counted_where_the_template_leaves_it_away() -> None:
    assert DraftCounter(len, trimmed=True).count("  a\n") == 1
    assert DraftCounter(len, trimmed=True).count("  a\n" + "b" * 3000) == 3002
    assert DraftCounter(len).count("  a\n") == 4


@pytest.mark.parametrize("unit", ["x", "x\n", "\n", " \n x", "xyz" * 1000 + "\n"])
def test_a_huge_draft_is_counted_in_bounded_steps(unit: str) -> None:
    work = 0

    def count(text: str) -> int:
        nonlocal work
        work += len(text)
        return len(text)

    counter = DraftCounter(count)
    draft = unit * (10 * FRESH_CHARACTERS // len(unit))
    for _ in range(100):
        before = work
        result = counter.count(draft)
        assert work - before <= FRESH_CHARACTERS + EXACT_CHARACTERS
        if result is not None:
            break
    assert result == len(draft)
