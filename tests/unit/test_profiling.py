"""Clocks are turned on and off in the middle of an answer, and tell about the tokens between."""

from types import SimpleNamespace

from tinyllm_chat.chat.events import OpProfile
from tinyllm_chat.chat.profiling import INTERVAL, Clocks, Profiling
from tinyllm_chat.tui.widgets.profile import summed


class Runner:
    def __init__(self):
        self.turned = []

    def profile(self, on):
        self.turned.append(on)

    def written_profile(self, tokens, seconds):
        costs = [SimpleNamespace(name="attention", percent=75.0), SimpleNamespace(name="norm", percent=25.0)]
        return SimpleNamespace(costs=costs)


def test_nothing_is_measured_that_nobody_wants_to_see():
    runner, events = Runner(), []
    clocks = Clocks(Profiling(), runner, "a", events.append)
    for second in range(5):
        clocks.token(float(second))
    clocks.end(5.0)
    assert (runner.turned, events) == ([], [])


def test_clocks_run_from_one_token_to_another():
    runner, events, wanted = Runner(), [], Profiling()
    clocks = Clocks(wanted, runner, "a", events.append)
    clocks.token(1.0)
    wanted.on = True
    clocks.token(2.0)
    assert runner.turned == [True]
    clocks.token(2.0 + INTERVAL / 2)
    assert events == []
    clocks.token(2.0 + INTERVAL)
    clocks.token(2.0 + INTERVAL + 0.5)
    clocks.end(2.0 + INTERVAL + 0.75)
    shares = (("attention", 0.75), ("norm", 0.25))
    assert events == [OpProfile("a", 2, INTERVAL, shares), OpProfile("a", 3, INTERVAL + 0.75, shares)]
    assert runner.turned == [True, False]


def test_clocks_stop_where_the_panel_is_closed():
    runner, events, wanted = Runner(), [], Profiling()
    wanted.on = True
    clocks = Clocks(wanted, runner, "a", events.append)
    clocks.token(1.0)
    wanted.on = False
    clocks.token(1.5)
    clocks.end(3.0)
    assert (runner.turned, events) == ([True, False], [])


def test_small_shares_are_one_line():
    shares = (("a", 0.5), ("b", 0.2), ("c", 0.2), ("d", 0.1))
    assert summed(shares, 4) == list(shares)
    assert summed(shares, 3) == [("a", 0.5), ("b", 0.2), ("everything else", 0.30000000000000004)]
