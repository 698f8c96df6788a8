"""A grammar as data: rules of alternatives of items."""

from __future__ import annotations

from dataclasses import dataclass

from tinyllm_engine.errors import GrammarError

HIGHEST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
ROOT = "root"

Ranges = tuple[tuple[int, int], ...]  # code points, first and last of each range; disjoint and rising


@dataclass(frozen=True, slots=True)
class Characters:
    """Any one of these characters."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Token:
    """This token of the vocabulary as a whole, whatever its text; or any but this one."""

    id: int
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What a rule says, from `least` to `most` times; most None: without end."""

    rule: int
    least: int = 1
    most: int | None = 1


Item = Characters | Token | Reference
Sequence = tuple[Item, ...]


@dataclass(slots=True)
class Rule:
    name: str
    alternatives: tuple[Sequence, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a grammar, which names rule 0 its root."""

    rules: tuple[Rule, ...]

    def nullable(self) -> list[bool]:
        """Of each rule: may it be empty?"""
        empty = [False] * len(self.rules)

        def may_be_empty(item: Item) -> bool:
            return isinstance(item, Reference) and (item.least == 0 or empty[item.rule])

        waiting = True
        while waiting:
            waiting = False
            for number, rule in enumerate(self.rules):
                if not empty[number] and any(all(map(may_be_empty, each)) for each in rule.alternatives):
                    empty[number] = waiting = True
        return empty

    def refuse_left_recursion(self) -> None:
        """Raises GrammarError for a rule that can begin with itself: there is no end of trying it."""
        empty = self.nullable()
        first: list[set[int]] = []  # rules that each rule can begin with
        for rule in self.rules:
            begins: set[int] = set()
            for sequence in rule.alternatives:
                for item in sequence:
                    if not isinstance(item, Reference):
                        break
                    if item.most != 0:
                        begins.add(item.rule)
                        if item.least > 0 and not empty[item.rule]:
                            break
            first.append(begins)
        done: set[int] = set()
        for start in range(len(self.rules)):
            path: list[tuple[int, list[int]]] = [(start, sorted(first[start]))] if start not in done else []
            on_path = {start}
            while path:
                number, ahead = path[-1]
                if not ahead:
                    path.pop()
                    on_path.discard(number)
                    done.add(number)
                    continue
                following = ahead.pop()
                if following in on_path:
                    raise GrammarError(f"grammar: the rule {self.rules[following].name!r} begins with itself")
                if following not in done:
                    on_path.add(following)
                    path.append((following, sorted(first[following])))


def normalized(ranges: list[tuple[int, int]]) -> Ranges:
    """Disjoint, rising, joined where they touch, without surrogates."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(_without_surrogates(ranges)):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """All other characters but NUL, which ends texts elsewhere."""
    found, low = [], 1
    for first, last in ranges:
        if low < first:
            found.append((low, first - 1))
        low = max(low, last + 1)
    if low <= HIGHEST:
        found.append((low, HIGHEST))
    return normalized(found)


def _without_surrogates(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept = []
    for low, high in ranges:
        if low < SURROGATES[0]:
            kept.append((low, min(high, SURROGATES[0] - 1)))
        if high > SURROGATES[1]:
            kept.append((max(low, SURROGATES[1] + 1), high))
    return kept
