"""Several chats and branches in one cache: which sequence a prompt goes on from, and who gives way when it is full.

The cache has as many pages as one full context needs, whatever it is used for: what a user was told a full cache costs
is what all branches together cost at most. A chat that leaves room keeps its earlier branches, and other chats; one
that does not takes their pages, those of the least recently used first, from its end on.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids
from pathlib import Path

from tinyllm_engine.cached_types import PAGE
from tinyllm_engine.generation import common_prefix
from tinyllm_engine.runner import Runner, Sequence
from tinyllm_engine.saved_state import load

MOST = 32  # sequences: each is compared with every prompt
MOST_STATES = 2  # what recurrent states may take, in terms of what one sequence may have


class Branches:
    """The sequences of one runner. It makes room for whichever of them is in use."""

    def __init__(self, runner: Runner):
        self.runner = runner
        self.current: Sequence | None = runner.sequence()  # never gives way
        self.kept = [runner.sequence()]  # the least recently used first
        runner.cache.make_room = self._make_room

    def select(self, ids: Ids[int], shifted: bool = False) -> Sequence:
        """The sequence in which a prompt has least to be evaluated; it is the one in use from now on.

        Its tokens begin with what can be reused, and what they go on with is no loss: a branch that differs in what
        follows is kept, and another sequence shares its beginning. At least the last id is left to be evaluated.
        `shifted`: rows that `remove` has moved count too.
        """
        best = max(reversed(self.kept), key=lambda sequence: self._worth(sequence, ids, shifted))
        usable = _usable(best, ids, shifted)
        if usable < best.position and len(ids) <= self.runner.context_length:
            best = best.fork(min(usable, len(ids) - 1))
        self.use(best)
        return best

    def continued(self, ids: Ids[int]) -> Sequence | None:
        """The sequence that goes on with the rest of these ids if it does that as it is, nothing left out of it; it
        is the one in use from now on. None: there is none, or what goes on with them has all of them.
        """
        best = max(reversed(self.kept), key=lambda sequence: self._worth(sequence, ids, False))
        shared, gain = self._worth(best, ids, False)
        if not shared or gain < 0:
            return None
        self.use(best)
        return best

    def recall(self, path: Path, model: str, ids: Ids[int]) -> Sequence | None:
        """Takes in a saved sequence if a prompt has more of it than of those that are here; None if not.

        Raises SavedStateError for what cannot be used.
        """
        here = max(self._worth(sequence, ids, False)[0] for sequence in self.kept)
        before, self.current = self.current, None  # what is in use now may give way, too
        try:
            found = load(self.runner, path, model, lambda saved: common_prefix(saved, ids[:-1]) > here)
        finally:
            self.current = before
        if found is not None:
            self.use(found)
        return found

    def use(self, sequence: Sequence) -> None:
        """Makes a sequence, one of these or a new one, the one in use."""
        others = [kept for kept in self.kept if kept is not sequence]
        for kept in others:
            if not kept.position:
                kept.close()
        self.kept = [*(kept for kept in others if kept.position), sequence]
        self.current = sequence
        states = self.runner.cache.states
        while len(self.kept) > MOST or (states.bytes_in_use > MOST_STATES * states.most_bytes and len(self.kept) > 1):
            self.kept.pop(0).close()

    def _worth(self, sequence: Sequence, ids: Ids[int], shifted: bool) -> tuple[int, int]:
        """(tokens of a prompt that need not be evaluated, minus those that would be lost for it)"""
        usable = _usable(sequence, ids, shifted)
        return sequence.kept_by_truncating(min(usable, len(ids) - 1)), usable - sequence.position

    def _make_room(self) -> bool:
        """Takes the last page of the least recently used sequence away."""
        for sequence in self.kept:
            if sequence is not self.current and sequence.position:
                sequence.truncate((sequence.position - 1) // PAGE * PAGE)
                return True
        return False


def _usable(sequence: Sequence, ids: Ids[int], shifted: bool) -> int:
    """So many tokens of a prompt are in the sequence."""
    return min(common_prefix(sequence.tokens, ids), sequence.position if shifted else sequence.exact)
