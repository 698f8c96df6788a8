"""The pushdown automaton of a grammar, over bytes.

A stack says what is still to come: on top a place in a sequence that waits for a byte or a token, below it where to go
on afterwards. All that a text may mean is a set of stacks, a configuration. Places, stacks and configurations are
numbered, and where a byte leads from a configuration is computed once: a text that was seen costs a look into a table.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.errors import GrammarError
from tinyllm_engine.grammar.rules import Characters, Item, Reference, Rules, Token
from tinyllm_engine.grammar.utf8 import DEAD, DONE, byte_automaton

MOST_STEPS = 20_000  # of finding out what can come next
MOST_CONFIGURATIONS = 20_000
NOWHERE = 0  # the configuration without stacks
COMPLETE = 0  # the stack with nothing to come
UNKNOWN = -1

# (sequence, item, count): for characters the count is the state within a character, for a repetition how many times
# it has been gone through.
Place = tuple[int, int, int]


class Automaton:
    """`start` is the configuration of the empty text."""

    def __init__(self, rules: Rules) -> None:
        rules.refuse_left_recursion()
        empty = rules.nullable()
        self._sequences: list[tuple[Item, ...]] = []
        self._alternatives: list[range] = []  # of each rule: its sequences
        for rule in rules.rules:
            first = len(self._sequences)
            self._sequences += [tuple(_relaxed(item, empty) for item in each) for each in rule.alternatives]
            self._alternatives.append(range(first, len(self._sequences)))
        automata = {
            item: byte_automaton(item.ranges)
            for each in self._sequences
            for item in each
            if isinstance(item, Characters)
        }
        # Bytes that no set of characters tells apart share a column.
        rows = np.concatenate([*automata.values(), np.zeros((1, 256), np.int32)])
        _, samples, classes = np.unique(rows, axis=1, return_index=True, return_inverse=True)
        self.classes: NDArray[np.int64] = classes.reshape(256).astype(np.int64)
        self._samples = samples
        self._automata = {item: table[:, samples].tolist() for item, table in automata.items()}
        self._forget()

    def _forget(self) -> None:
        self._places: dict[Place, int] = {}
        self._place_list: list[Place] = []
        self._stacks: dict[tuple[int, int], int] = {}
        self._stack_list: list[tuple[int, int]] = [(-1, -1)]  # (place, stack below); COMPLETE is the first one
        self._closures: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self._configurations: dict[tuple[int, ...], int] = {(): NOWHERE}
        self._configuration_list: list[tuple[int, ...]] = [()]
        self.table: NDArray[np.int32] = np.full((64, len(self._samples)), UNKNOWN, np.int32)
        self.table[NOWHERE] = NOWHERE
        stacks: set[int] = set()
        for sequence in self._alternatives[0]:
            stacks.update(self._closure(sequence, 0, COMPLETE))
        self.start = self._configuration(stacks)

    # --- what a configuration says ---

    def is_complete(self, configuration: int) -> bool:
        """Whether the text may end here."""
        return COMPLETE in self._configuration_list[configuration]

    def can_go_on(self, configuration: int) -> bool:
        return any(stack != COMPLETE for stack in self._configuration_list[configuration])

    def tokens(self, configuration: int) -> list[Token]:
        """The tokens that are asked for as such."""
        items = (self._item(stack) for stack in self._configuration_list[configuration] if stack != COMPLETE)
        return [item for item in items if isinstance(item, Token)]

    # --- where it leads ---

    def after_bytes(self, configuration: int, text: bytes) -> int:
        for byte in text:
            kind = int(self.classes[byte])
            following = int(self.table[configuration, kind])
            configuration = self.step(configuration, kind) if following == UNKNOWN else following
            if configuration == NOWHERE:
                break
        return configuration

    def after_token(self, configuration: int, id: int) -> int:
        """Where a token leads that is asked for as such."""
        stacks: set[int] = set()
        for stack in self._configuration_list[configuration]:
            item = self._item(stack) if stack != COMPLETE else None
            if isinstance(item, Token) and (item.id == id) != item.negated:
                place, below = self._stack_list[stack]
                sequence, index, _ = self._place_list[place]
                stacks.update(self._closure(sequence, index + 1, below))
        return self._configuration(stacks)

    def step(self, configuration: int, kind: int) -> int:
        """Where a byte of this class leads, which is not in the table yet."""
        stacks: set[int] = set()
        for stack in self._configuration_list[configuration]:
            item = self._item(stack) if stack != COMPLETE else None
            if not isinstance(item, Characters):
                continue
            place, below = self._stack_list[stack]
            sequence, index, state = self._place_list[place]
            following = self._automata[item][state][kind]
            if following == DONE:
                stacks.update(self._closure(sequence, index + 1, below))
            elif following != DEAD:
                stacks.add(self._stack((sequence, index, following), below))
        result = self._configuration(stacks)
        self.table[configuration, kind] = result
        return result

    def union(self, one: int, other: int) -> int:
        return self._configuration({*self._configuration_list[one], *self._configuration_list[other]})

    @property
    def is_full(self) -> bool:
        """Whether `shrink` is due."""
        return len(self._configuration_list) > MOST_CONFIGURATIONS or len(self._stack_list) > 8 * MOST_CONFIGURATIONS

    def shrink(self, configuration: int) -> int:
        """Forgets all but one configuration; returns its new number."""
        chains = []
        for stack in self._configuration_list[configuration]:
            chain = []
            while stack != COMPLETE:
                place, stack = self._stack_list[stack]
                chain.append(self._place_list[place])
            chains.append(chain)
        self._forget()
        stacks = set()
        for chain in chains:
            stack = COMPLETE
            for kept in reversed(chain):
                stack = self._stack(kept, stack)
            stacks.add(stack)
        return self._configuration(stacks)

    # --- inside ---

    def _item(self, stack: int) -> Item:
        sequence, index, _ = self._place_list[self._stack_list[stack][0]]
        return self._sequences[sequence][index]

    def _closure(self, sequence: int, index: int, below: int) -> tuple[int, ...]:
        """The stacks that wait for a byte or a token, or for nothing, at this place of a sequence."""
        key = sequence, index, below
        found = self._closures.get(key)
        if found is None:
            found = self._closures[key] = tuple(self._open(sequence, index, below))
        return found

    def _open(self, sequence: int, index: int, below: int) -> set[int]:
        found: set[int] = set()
        todo = [(sequence, index, 0, below)]
        seen = set(todo)
        repeated: set[int] = set()  # stacks to return to after one time more; returning at once would add nothing
        while todo:
            sequence, index, count, below = todo.pop()
            items = self._sequences[sequence]
            if index == len(items):
                if below == COMPLETE:
                    found.add(COMPLETE)
                    continue
                if below in repeated:
                    continue
                place, below = self._stack_list[below]
                ahead = [(*self._place_list[place], below)]
            elif isinstance(item := items[index], Reference):
                ahead = [(sequence, index + 1, 0, below)] if count >= item.least else []
                if item.most is None or count < item.most:
                    # Beyond what is needed at least nothing has to be counted, where there is no most.
                    once_more = min(count + 1, item.least) if item.most is None else count + 1
                    is_last = index + 1 == len(items) and once_more == item.most
                    back = below if is_last else self._stack((sequence, index, once_more), below)
                    if back != below and (item.least, item.most) != (1, 1):
                        repeated.add(back)
                    ahead += [(each, 0, 0, back) for each in self._alternatives[item.rule]]
            else:
                found.add(self._stack((sequence, index, 0), below))
                continue
            for each in ahead:
                if each not in seen:
                    seen.add(each)
                    todo.append(each)
            if len(seen) > MOST_STEPS:
                raise GrammarError(f"grammar: more than {MOST_STEPS} ways to go on; it is too ambiguous")
        return found

    def _stack(self, place: Place, below: int) -> int:
        if place not in self._places:
            self._places[place] = len(self._place_list)
            self._place_list.append(place)
        key = self._places[place], below
        if key not in self._stacks:
            self._stacks[key] = len(self._stack_list)
            self._stack_list.append(key)
        return self._stacks[key]

    def _configuration(self, stacks: Iterable[int]) -> int:
        key = tuple(sorted(stacks))
        if len(key) > MOST_STEPS:
            raise GrammarError(f"grammar: more than {MOST_STEPS} ways to go on; it is too ambiguous")
        number = self._configurations.get(key)
        if number is None:
            number = self._configurations[key] = len(self._configuration_list)
            self._configuration_list.append(key)
            if number == len(self.table):
                self.table = np.concatenate([self.table, np.full_like(self.table, UNKNOWN)])
        return number


def _relaxed(item: Item, empty: list[bool]) -> Item:
    """What may be empty need not be gone through at all."""
    if isinstance(item, Reference) and empty[item.rule] and (item.least, item.most) != (1, 1):
        return Reference(item.rule, 0, item.most)
    return item
