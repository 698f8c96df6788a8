"""Reads GBNF, llama.cpp's notation of grammars (its grammars/README.md describes it).

    root  ::= "yes" | "no" reason?     # the whole answer
    reason ::= ", because " [^\\n]{1,80}

Besides characters an item can be a token of the vocabulary: <|text|>, <[id]>, and with ! in front any other one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from tinyllm_engine.errors import GrammarError
from tinyllm_engine.grammar.rules import (
    HIGHEST,
    ROOT,
    Characters,
    Item,
    Reference,
    Rule,
    Rules,
    Sequence,
    Token,
    complement,
    normalized,
)

LONGEST = 1 << 20  # characters of a grammar
MOST_ITEMS = 100_000
DEEPEST = 64  # parentheses within parentheses
MOST_TIMES = 1_000_000

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_HEX = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
ANY = Characters(complement(()))


def parse_gbnf(text: str, token_of: Callable[[str], int | None] | None = None) -> Rules:
    """The rules of a grammar. Raises GrammarError with line and column.

    token_of: the id of the one token that a text is, or None; without it a grammar cannot name tokens by their texts
    """
    if len(text) > LONGEST:
        raise GrammarError(f"grammar: expected at most {LONGEST} characters, found {len(text)}")
    return _Parser(text, token_of).rules()


class _Parser:
    def __init__(self, text: str, token_of: Callable[[str], int | None] | None) -> None:
        self._text = text
        self._at = 0
        self._token_of = token_of
        self._numbers: dict[str, int] = {}  # of rules that have a name
        self._rules: list[Rule | None] = []
        self._mentioned: dict[int, int] = {}  # where a rule was named first
        self._items = 0
        self._depth = 0

    def rules(self) -> Rules:
        root = self._number(ROOT)
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._text):
            self._rule()
        if self._rules[root] is None:
            raise GrammarError(f"grammar: expected a rule named {ROOT}, found none")
        for number, rule in enumerate(self._rules):
            if rule is None:
                name = next(name for name, known in self._numbers.items() if known == number)
                self._fail(f"there is no rule {name!r}", self._mentioned[number])
        rules = Rules(tuple(rule for rule in self._rules if rule is not None))
        rules.refuse_left_recursion()
        return rules

    def _rule(self) -> None:
        name = self._match(_NAME, "the name of a rule")
        number = self._number(name)
        self._skip(_SPACE)
        self._expect("::=")
        self._skip(_SPACE_AND_LINES)
        self._rules[number] = Rule(name, self._alternatives(name, nested=False))
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            self._fail("expected the end of the line")
        self._skip(_SPACE_AND_LINES)

    def _alternatives(self, name: str, nested: bool) -> tuple[Sequence, ...]:
        found = [self._sequence(name, nested)]
        while self._next("|"):
            self._skip(_SPACE_AND_LINES)
            found.append(self._sequence(name, nested))
        return tuple(found)

    def _sequence(self, name: str, nested: bool) -> Sequence:
        space = _SPACE_AND_LINES if nested else _SPACE
        items: list[Item] = []
        last: list[Item] = []  # what a repetition would repeat
        while self._at < len(self._text):
            start = self._text[self._at]
            if start in "*+?{":
                if not last:
                    self._fail("expected something to repeat")
                least, most = self._times()
                del items[len(items) - len(last) :]
                last = [self._repeated(name, last, least, most)]
            elif start == '"':
                last = self._literal()
            elif start == "[":
                last = [self._characters()]
            elif start == ".":
                self._at += 1
                last = [ANY]
            elif start in "<!":
                last = [self._token()]
            elif start == "(":
                last = [self._group(name)]
            elif _NAME.match(start):
                place = self._at
                number = self._number(self._match(_NAME, "a name"))
                self._mentioned.setdefault(number, place)
                last = [Reference(number)]
            else:
                break
            items += last
            self._count(max(1, len(last)))
            self._skip(space)
        return tuple(items)

    def _group(self, name: str) -> Reference:
        self._at += 1
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"expected at most {DEEPEST} parentheses within each other")
        self._skip(_SPACE_AND_LINES)
        number = self._anonymous(name)
        self._rules[number] = Rule(name, self._alternatives(name, nested=True))
        if not self._next(")"):
            self._fail("expected )")
        self._depth -= 1
        return Reference(number)

    def _repeated(self, name: str, items: list[Item], least: int, most: int | None) -> Reference:
        if len(items) == 1 and items[0] == Reference(getattr(items[0], "rule", -1)):
            number = items[0].rule
        else:
            number = self._anonymous(name)
            self._rules[number] = Rule(name, (tuple(items),))
        return Reference(number, least, most)

    def _times(self) -> tuple[int, int | None]:
        sign = self._text[self._at]
        self._at += 1
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        start = self._at
        self._skip(_SPACE_AND_LINES)
        least = int(self._match(_NUMBER, "a number"))
        most: int | None = least
        self._skip(_SPACE_AND_LINES)
        if self._next(","):
            self._skip(_SPACE_AND_LINES)
            digits = _NUMBER.match(self._text, self._at)
            most = int(self._match(_NUMBER, "a number")) if digits else None
            self._skip(_SPACE_AND_LINES)
        self._expect("}")
        if least > MOST_TIMES or (most is not None and not least <= most <= MOST_TIMES):
            self._fail(f"expected from a lower to a higher number, both at most {MOST_TIMES}", start)
        return least, most

    def _literal(self) -> list[Item]:
        self._at += 1
        found: list[Item] = []
        while not self._next('"'):
            code = self._character()
            found.append(Characters(((code, code),)))
        return found

    def _characters(self) -> Characters:
        start = self._at
        self._at += 1
        inverted = self._next("^")
        ranges = []
        while not self._next("]"):
            low = high = self._character()
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._character()
            if high < low:
                self._fail("expected a range from a lower to a higher character", start)
            ranges.append((low, high))
            self._count(1)
        found = normalized(ranges)
        found = complement(found) if inverted else found
        if not ranges or not found:
            self._fail("expected at least one character", start)
        return Characters(found)

    def _character(self) -> int:
        if self._at >= len(self._text):
            self._fail("unexpected end")
        character = self._text[self._at]
        if character != "\\":
            self._at += 1
            return self._checked(ord(character), self._at - 1)
        start, kind = self._at, self._text[self._at + 1 : self._at + 2]
        if kind in _ESCAPES and kind:
            self._at += 2
            return ord(_ESCAPES[kind])
        if kind not in _HEX or not kind:
            self._fail(f"unknown escape {self._text[start : start + 2]!r}")
        digits = self._text[start + 2 : start + 2 + _HEX[kind]]
        if not re.fullmatch(f"[0-9A-Fa-f]{{{_HEX[kind]}}}", digits):
            self._fail(f"expected {_HEX[kind]} hexadecimal digits")
        self._at += 2 + _HEX[kind]
        return self._checked(int(digits, 16), start)

    def _checked(self, code: int, place: int) -> int:
        if code > HIGHEST or 0xD800 <= code <= 0xDFFF:
            self._fail(f"U+{code:04X} is no character", place)
        return code

    def _token(self) -> Token:
        start = self._at
        negated = self._next("!")
        self._expect("<")
        if self._next("["):
            id = int(self._match(_NUMBER, "a token id"))
            self._expect("]>")
            return Token(id, negated)
        end = self._text.find(">", self._at)
        if end < 0:
            self._fail("expected >")
        text = "<" + self._text[self._at : end + 1]
        found = self._token_of(text) if self._token_of is not None else None
        if found is None:
            self._fail(f"{text[:40]!r} is not one token of the vocabulary", start)
        self._at = end + 1
        return Token(found, negated)

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = self._anonymous(name)
        return self._numbers[name]

    def _anonymous(self, name: str) -> int:
        self._count(1)
        self._rules.append(None)
        return len(self._rules) - 1

    def _count(self, items: int) -> None:
        self._items += items
        if self._items > MOST_ITEMS:
            self._fail(f"the grammar has more than {MOST_ITEMS} items")

    def _skip(self, space: re.Pattern[str]) -> None:
        match = space.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _next(self, sign: str) -> bool:
        found = self._text.startswith(sign, self._at)
        self._at += len(sign) if found else 0
        return found

    def _expect(self, sign: str) -> None:
        if not self._next(sign):
            self._fail(f"expected {sign}")

    def _match(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            self._fail(f"expected {what}")
        self._at = match.end()
        return match.group()

    def _fail(self, what: str, place: int | None = None) -> NoReturn:
        place = self._at if place is None else place
        line = self._text.count("\n", 0, place) + 1
        column = place - (self._text.rfind("\n", 0, place) + 1) + 1
        found = self._text[place : place + 12]
        raise GrammarError(f"grammar: line {line}, column {column}: {what}, at {found!r}")
