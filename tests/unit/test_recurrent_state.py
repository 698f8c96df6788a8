"""The state of recurrent layers: passes that write in turn, checkpoints that nothing writes again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine import recurrent_state
from tinyllm_engine.errors import OutOfMemoryError
from tinyllm_engine.memory import array_at
from tinyllm_engine.recurrent_state import RecurrentState, StatePool


class Following:
    """A state whose passes write the number of tokens so far into every place of a block."""

    def __init__(self, pool):
        self.pool, self.state, self.position = pool, RecurrentState(pool), 0

    def passes(self, count):
        """Tokens one by one, as several in one native call: addresses are asked for once."""
        source, target, other = self.state.addresses()
        for _ in range(count):
            self.written(source, target)
            source, target, other = target, other, target
        self.state.advance(count)
        self.position += count

    def cancelled(self):
        """A pass that is given up after it has written something."""
        source, target, _ = self.state.addresses()
        assert source != target
        self.floats(target)[: self.floats(target).size // 2] = -1

    def written(self, source, target):
        before = self.floats(source)[0]
        self.floats(target)[:] = before + 1

    def floats(self, address):
        return array_at(address, np.float32, self.pool.block_bytes // 4)

    def check(self):
        source, target, other = self.state.addresses()
        assert len({source, target}) == len({target, other}) == 2
        assert (self.floats(source) == self.position).all()
        assert not self.pool.beginning.any()
        assert len(self.state.positions) <= self.pool.checkpoints
        assert self.pool.blocks == 2 + len(self.state.positions)


STEPS = st.lists(
    st.tuples(st.sampled_from(["one pass", "passes", "cancelled", "keep", "go back"]), st.integers(0, 40)), max_size=40
)


@given(STEPS)
def test_the_state_is_always_that_of_its_position(steps):
    following = Following(StatePool([3, 0, 20]))
    for step, number in steps:
        positions = following.state.positions
        match step:
            case "one pass":
                following.passes(1)
            case "passes":
                following.passes(number)
            case "cancelled":
                following.cancelled()
            case "keep":
                following.state.keep(following.position)
                assert following.position in {0, *following.state.positions}
            case "go back":
                if number < following.position:
                    following.position = following.state.go_back(number)
                    assert following.position == max([0, *(p for p in positions if p <= number)])
        following.check()


def test_checkpoints_are_few_and_the_last_ones_stay(monkeypatch):
    """The one that goes is the one that costs least to read again."""
    monkeypatch.setattr(recurrent_state, "MOST_CHECKPOINTS", 8)
    pool = StatePool([8])
    following = Following(pool)
    for tokens in (5, 100, 3, 50, 60, 70, 80, 90, 10, 1):
        following.passes(tokens)
        following.state.keep(following.position)
    assert following.state.positions == [105, 158, 218, 288, 368, 458, 468, 469]
    assert pool.checkpoints == 8
    following.check()


def test_large_states_have_fewer_checkpoints(monkeypatch):
    monkeypatch.setattr(recurrent_state, "CHECKPOINT_BYTES", 4096)
    assert [StatePool([count]).checkpoints for count in (16, 256, 5000)] == [32, 4, 2]
    assert StatePool([256]).most_bytes == 6 * 1024


def test_layers_lie_apart_at_cache_lines():
    pool = StatePool([0, 3, 16, 17, 1])
    assert pool.offsets == [0, 0, 64, 128, 256]
    assert (pool.block_bytes, pool.bytes_in_use) == (320, 0)
    RecurrentState(pool).addresses()
    assert pool.bytes_in_use == 640


def test_a_model_without_such_layers_has_nothing_to_keep():
    state = RecurrentState(StatePool([0, 0]))
    assert state.addresses() == (0, 0, 0)
    state.advance(3)
    state.keep(3)
    assert state.go_back(2) == 2
    assert (state.positions, state.pool.most_bytes) == ([], 0)


def test_memory_that_the_system_refuses():
    with pytest.raises(OutOfMemoryError, match="recurrent state: the system refuses"):
        StatePool([1 << 60])
