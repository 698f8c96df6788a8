"""Counting a draft at every key press, whatever is pasted into it."""

from __future__ import annotations

import pytest
from tinyllm_chat.chat.draft import EXACT_CHARACTERS, FRESH_CHARACTERS, DraftCounter


def test_a_short_draft_is_counted_whole() -> None:
    seen: list[str] = []
    counter = DraftCounter(lambda text: seen.append(text) or len(text))  # type: ignore[func-returns-value]
    assert counter.count("a\nb") == 3
    assert counter.count("a\nb") == 3
    assert seen == ["a\nb"]


def test_of_a_long_draft_only_what_changed_is_counted_again() -> None:
    seen: list[str] = []
    counter = DraftCounter(lambda text: seen.append(text) or len(text))  # type: ignore[func-returns-value]
    lines = [f"line {number}\n" for number in range(1000)]
    draft = "".join(lines)
    assert counter.count(draft) == len(draft)
    seen.clear()
    assert counter.count(draft + "x") == len(draft) + 1
    assert len(seen) == 1


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
