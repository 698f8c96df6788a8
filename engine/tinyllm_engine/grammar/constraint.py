"""Which tokens of a vocabulary may come next, as a grammar says."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.errors import GrammarError
from tinyllm_engine.grammar.automaton import NOWHERE, UNKNOWN, Automaton
from tinyllm_engine.grammar.gbnf import parse_gbnf
from tinyllm_engine.grammar.pieces import Pieces, trie_of

KEPT_MASKS = 32

_tries: WeakKeyDictionary[Any, Pieces] = WeakKeyDictionary()


def pieces_of(tokenizer: Any) -> Pieces:
    """The trie of a tokenizer's vocabulary, built once."""
    if tokenizer not in _tries:
        _tries[tokenizer] = trie_of([tokenizer.piece(id) for id in range(tokenizer.vocab_size)])
    return _tries[tokenizer]


class Grammar:
    """A grammar for one vocabulary; what it finds out it keeps for all answers. Raises GrammarError.

    text: GBNF

    >>> grammar = Grammar('root ::= "yes" | "no"', model.tokenizer)
    >>> events = generate(runner.sequence(), prompt, SamplingParams(), grammar=grammar)
    >>> "".join(event.text for event in events if isinstance(event, Token)) in ("yes", "no")
    True
    """

    def __init__(self, text: str, tokenizer: Any) -> None:
        def token_of(text: str) -> int | None:
            ids = tokenizer.encode(text, parse_special=True, add_bos=False)
            return ids[0] if len(ids) == 1 else None

        self.text = text
        self.pieces = pieces_of(tokenizer)
        self.eog_ids = np.array(sorted(tokenizer.eog_ids), np.int64)
        self.automaton = Automaton(parse_gbnf(text, token_of))
        self.eog = frozenset(tokenizer.eog_ids)
        self._masks: OrderedDict[int, NDArray[np.bool_]] = OrderedDict()

    def constraint(self) -> GrammarConstraint:
        """For one answer, from its beginning."""
        return GrammarConstraint(self)

    def following(self, configuration: int, id: int) -> int:
        """Where a token leads that does not end the answer."""
        automaton, pieces = self.automaton, self.pieces.pieces
        piece = pieces[id] if 0 <= id < len(pieces) else b""
        after = automaton.after_bytes(configuration, piece) if piece else NOWHERE
        if automaton.tokens(configuration):
            after = automaton.union(after, automaton.after_token(configuration, id))
        return after

    def mask(self, configuration: int) -> NDArray[np.bool_]:
        """bool [vocabulary]: the tokens that may come next. Not to be changed."""
        mask = self._masks.get(configuration)
        if mask is None:
            mask = self._masks[configuration] = self._walk(configuration)
            while len(self._masks) > KEPT_MASKS:
                self._masks.popitem(last=False)
        self._masks.move_to_end(configuration)
        return mask

    def tidy(self, configuration: int) -> int:
        """Keeps memory bounded; returns the configuration's number, which may be another one now."""
        if not self.automaton.is_full:
            return configuration
        self._masks.clear()
        return self.automaton.shrink(configuration)

    def _walk(self, configuration: int) -> NDArray[np.bool_]:
        """All pieces at once, a level of the trie at a time, as long as the grammar can follow."""
        automaton, pieces = self.automaton, self.pieces
        alive = np.zeros(pieces.last_byte.size, np.bool_)
        kinds = automaton.classes[pieces.last_byte]  # [nodes]
        nodes, at = np.zeros(1, np.int64), np.array([configuration])
        while nodes.size:
            counts = pieces.children[nodes]
            ends = np.cumsum(counts)
            total = int(ends[-1])
            children = np.repeat(pieces.first_child[nodes] - (ends - counts), counts) + np.arange(total)
            at = _steps(automaton, np.repeat(at, counts), kinds[children])
            going_on = at != NOWHERE
            nodes, at = children[going_on], at[going_on]
            alive[nodes] = True
        mask = alive[pieces.node]
        for token in automaton.tokens(configuration):
            others = np.ones(mask.size, np.bool_) if token.negated else np.zeros(mask.size, np.bool_)
            if token.id < mask.size:
                others[token.id] = not token.negated
            mask |= others
        mask[self.eog_ids[self.eog_ids < mask.size]] = automaton.is_complete(configuration)
        return mask


def _steps(automaton: Automaton, at: NDArray[np.int64], kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where bytes of these classes lead from these configurations."""
    found = automaton.table[at, kinds]
    unknown = np.flatnonzero(found == UNKNOWN)
    if unknown.size:
        width = automaton.table.shape[1]
        for pair in np.unique(at[unknown] * width + kinds[unknown]).tolist():
            automaton.step(*divmod(pair, width))
        found = automaton.table[at, kinds]
    return found.astype(np.int64)


class GrammarConstraint:
    """A grammar along one answer: a Constraint of the sampler."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._at = grammar.automaton.start
        self._ended = False

    def allows(self, id: int) -> bool:
        if id in self.grammar.eog:
            return self.grammar.automaton.is_complete(self._at)
        return self.grammar.following(self._at, id) != NOWHERE

    def mask(self) -> NDArray[np.bool_]:
        """Raises GrammarError where no token can come next."""
        mask = self.grammar.mask(self._at)
        if not mask.any():
            raise GrammarError("grammar: no token of the vocabulary can come next")
        return mask

    def accept(self, id: int) -> None:
        if id in self.grammar.eog:
            self._ended = True
            return
        self._at = self.grammar.tidy(self.grammar.following(self._at, id))

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow."""
        return self._ended or not self.grammar.automaton.can_go_on(self._at)
