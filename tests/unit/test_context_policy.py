"""What is left out when a chat outgrows the context: from token counts alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.context_policy import comfortable, oldest_turns, summary_tokens, surely_fits, turns_to_condense

TURN = ["user", "assistant"]


@pytest.mark.parametrize(
    ("roles", "tokens", "keep", "chosen"),
    [
        (["system", *TURN, *TURN, "user"], [10, 20, 30, 20, 30, 10], 0, range(1, 3)),
        ([*TURN, *TURN, "user"], [20, 30, 20, 30, 10], 0, range(0, 2)),
        # A quarter is to be free: one turn may not be enough.
        ([*TURN, *TURN, *TURN, "user"], [10, 10, 10, 10, 10, 30, 30], 0, range(0, 4)),
        # Turns that begin within the first tokens stay.
        (["system", *TURN, *TURN, "user"], [10, 20, 30, 20, 30, 10], 11, range(3, 5)),
        (["system", *TURN, *TURN, "user"], [10, 20, 30, 20, 30, 10], 10, range(1, 3)),
        # A quarter cannot be had, an answer fits all the same.
        ([*TURN, "user"], [10, 10, 85], 0, range(0, 2)),
        ([*TURN, "user"], [10, 10, 95], 0, None),
        # The last turn is the one that is answered.
        (["system", "user", "assistant"], [10, 20, 80], 0, None),
        ([], [], 0, None),
    ],
)
def test_the_oldest_turns_go(roles: list[str], tokens: list[int], keep: int, chosen: range | None) -> None:
    assert oldest_turns(roles, tokens, 100, keep) == chosen


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=12), st.integers(0, 40))
def test_what_goes_is_whole_turns_and_no_more_of_them_than_needed(turns: list[tuple[int, int]], system: int) -> None:
    roles = ["system", *TURN * len(turns)]
    tokens = [system, *(count for turn in turns for count in turn)]
    chosen = oldest_turns(roles, tokens, 200)
    if chosen is None:
        assert len(turns) == 1 or system + sum(turns[-1]) > comfortable(200)
        return
    assert chosen.start == 1
    assert roles[chosen.stop] == "user"
    left = sum(tokens) - sum(tokens[chosen.start : chosen.stop])
    if left > 150:
        assert chosen.stop == len(roles) - 2
    elif len(chosen) > 2:
        assert left + sum(tokens[chosen.stop - 2 : chosen.stop]) > 150


def test_half_of_the_older_turns_is_condensed() -> None:
    roles = ["system", *TURN * 4]
    assert turns_to_condense(roles, [10, *[40] * 8], 1000) == range(1, 5)
    assert turns_to_condense(roles, [10, *[40] * 8], 1000, keep=11) == range(3, 7)
    assert turns_to_condense(roles[:3], [10, 40, 40], 1000) is None


def test_no_more_is_condensed_than_the_model_can_read_at_once() -> None:
    assert summary_tokens(400) == 50
    assert turns_to_condense(TURN * 4, [100] * 8, 400) == range(0, 2)
    assert turns_to_condense(TURN * 4, [200] * 8, 400) is None


def test_little_text_needs_no_counting() -> None:
    short = [PromptMessage("a", "user", "é" * 100)]
    assert surely_fits(short, 1000)
    assert not surely_fits(short, 700)
    assert not surely_fits([PromptMessage("a", "assistant", "", ids=tuple(range(500)))], 1000)
    assert not surely_fits([PromptMessage("a", "assistant", "", reasoning="x" * 500)], 1000)
