"""Pieces of JSON in GBNF: literals, ranges of integers, and texts that match a regular expression."""

from __future__ import annotations

import re
from typing import NoReturn

from tinyllm_engine.errors import GrammarError
from tinyllm_engine.grammar.rules import HIGHEST, Ranges, complement, normalized

ANY_CHARACTER = r'[^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})'
DEEPEST = 32  # groups within groups of a pattern
LONGEST_PATTERN = 4096

DIGITS: Ranges = ((48, 57),)
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACES: Ranges = ((9, 13), (32, 32), (160, 160), (0x2028, 0x2029), (0xFEFF, 0xFEFF))
_SHORTHANDS = {"d": DIGITS, "w": WORD, "s": SPACES}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11}
_ESCAPED = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}  # code: what follows the backslash in JSON


def literal(text: str) -> str:
    """A text, in the quotes of GBNF."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(c, c if c.isprintable() else f"\\U{ord(c):08X}") for c in text) + '"'


def class_of(ranges: list[tuple[int, int]], inverted: bool = False) -> str:
    """A set of characters in the brackets of GBNF."""

    def shown(code: int) -> str:
        return chr(code) if chr(code).isalnum() and code < 128 else f"\\U{code:08X}"

    parts = [shown(low) if low == high else f"{shown(low)}-{shown(high)}" for low, high in normalized(ranges)]
    return f"[{'^' if inverted else ''}{''.join(parts)}]"


def integers(low: int | None, high: int | None) -> str:
    """The integers from low to high; None: no bound."""
    ways = []
    if low is None or low < 0:
        lowest = 1 if high is None or high >= 0 else -high
        ways.append(f'"-" ({_naturals(lowest, None if low is None else -low)})')
    if high is None or high >= 0:
        ways.append(_naturals(max(0, low or 0), high))
    return " | ".join(ways)


def _naturals(low: int, high: int | None) -> str:
    """Digits of the numbers from low (0 or more) to high."""
    ways = []
    length = len(str(low))
    while high is None or length <= len(str(high)):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = 10**length - 1 if high is None else min(high, 10**length - 1)
        ways.append(_same_length(str(first), str(last)))
        length += 1
        if high is None:
            if length <= 16:
                ways.append(f"[1-9] [0-9]{{{length - 1},15}}")
            break
    return " | ".join(ways)


def _same_length(low: str, high: str) -> str:
    """Numbers of equally many digits from low to high."""
    if low == high:
        return literal(low)
    if len(low) == 1:
        return f"[{low}-{high}]"
    if low[0] == high[0]:
        return f"{literal(low[0])} ({_same_length(low[1:], high[1:])})"
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    ways = []
    if low[1:] != "0" * rest:
        ways.append(f"{literal(low[0])} ({_same_length(low[1:], '9' * rest)})")
        first += 1
    end = []
    if high[1:] != "9" * rest:
        end.append(f"{literal(high[0])} ({_same_length('0' * rest, high[1:])})")
        last -= 1
    if first <= last:
        ways.append(f"[{first}-{last}] [0-9]{{{rest}}}")
    return " | ".join(ways + end)


def pattern_to_gbnf(pattern: str) -> str:
    """The inside of a JSON string that a regular expression finds a match in. Raises GrammarError."""
    if len(pattern) > LONGEST_PATTERN:
        raise GrammarError(f"expected at most {LONGEST_PATTERN} characters, found {len(pattern)}")
    return _Pattern(pattern).whole()


class _Pattern:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> str:
        from_start = self._next("^")
        to_end = self._text.endswith("$") and not self._text.endswith("\\$")
        if to_end:
            self._text = self._text[:-1]
        body = self._alternatives()
        if self._at < len(self._text):
            self._fail("unexpected )")
        if (from_start or to_end) and self._splits(body):
            self._fail("an anchor within an alternative is not supported")
        return f"{'' if from_start else 'char* '}({body}){'' if to_end else ' char*'}"

    def _splits(self, body: str) -> bool:
        """Whether the outermost level has alternatives: ^a|b$ anchors only one end of each."""
        plain = re.sub(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]', "", body)
        depth = 0
        for sign in plain:
            depth += (sign == "(") - (sign == ")")
            if sign == "|" and depth == 0:
                return True
        return False

    def _alternatives(self) -> str:
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"expected at most {DEEPEST} groups within each other")
        ways = [self._sequence()]
        while self._next("|"):
            ways.append(self._sequence())
        self._depth -= 1
        return " | ".join(ways)

    def _sequence(self) -> str:
        items = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            items.append(self._item() + self._times())
        return " ".join(items) or '""'

    def _item(self) -> str:
        sign = self._text[self._at]
        if sign == "(":
            self._at += 1
            if self._next("?") and not self._next(":"):
                self._fail("only plain groups are supported")
            body = self._alternatives()
            if not self._next(")"):
                self._fail("expected )")
            return f"({body})"
        if sign in "^$":
            self._fail(f"{sign} within a pattern is not supported")
        if sign in "*+?{":
            self._fail("expected something to repeat")
        if sign == ".":
            self._at += 1
            return self._set(complement(normalized([(10, 10), (13, 13), (0x2028, 0x2029)])))
        if sign == "[":
            return self._set(self._class())
        return self._set(self._character())

    def _times(self) -> str:
        match = re.compile(r"[*+?]|\{[0-9]{1,6}(,[0-9]{0,6})?\}").match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        if self._text[self._at : self._at + 1] in ("?", "+"):
            self._fail("lazy and possessive repetitions are not supported")
        return match.group()

    def _class(self) -> Ranges:
        self._at += 1
        inverted = self._next("^")
        ranges: list[tuple[int, int]] = []
        while not self._next("]"):
            if self._at >= len(self._text):
                self._fail("expected ]")
            low = self._character(within=True)
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._character(within=True)
                if len(low) != 1 or low[0][0] != low[0][1] or len(high) != 1 or high[0][0] < low[0][0]:
                    self._fail("expected a range from a lower to a higher character")
                ranges.append((low[0][0], high[0][0]))
            else:
                ranges += low
        return complement(normalized(ranges)) if inverted else normalized(ranges)

    def _character(self, within: bool = False) -> Ranges:
        sign = self._text[self._at]
        self._at += 1
        if sign != "\\":
            return ((ord(sign), ord(sign)),)
        kind = self._text[self._at : self._at + 1]
        self._at += 1
        if kind.lower() in _SHORTHANDS and kind:
            found = _SHORTHANDS[kind.lower()]
            return found if kind.islower() else complement(found)
        if kind in _CONTROLS and kind:
            return ((_CONTROLS[kind], _CONTROLS[kind]),)
        if kind in ("x", "u"):
            size = 2 if kind == "x" else 4
            digits = self._text[self._at : self._at + size]
            if not re.fullmatch(f"[0-9a-fA-F]{{{size}}}", digits):
                self._fail(f"expected {size} hexadecimal digits")
            self._at += size
            return ((int(digits, 16), int(digits, 16)),)
        if not kind or kind.isalnum():
            self._fail(f"\\{kind} is not supported")
        return ((ord(kind), ord(kind)),)

    def _set(self, ranges: Ranges) -> str:
        """One of these characters, as JSON writes it."""
        plain = [each for each in ranges if each[1] >= 32]
        plain = _without([(max(low, 32), high) for low, high in plain], (34, 92, 127))
        escaped = "".join(sign for code, sign in _ESCAPED.items() if any(low <= code <= high for low, high in ranges))
        ways = [class_of(plain)] if plain else []
        if escaped:
            ways.append(f'"\\\\" {class_of([(ord(sign), ord(sign)) for sign in escaped])}')
        if not ways:
            self._fail("expected at least one character")
        return ways[0] if len(ways) == 1 and not escaped else f"({' | '.join(ways)})"

    def _next(self, sign: str) -> bool:
        found = self._text.startswith(sign, self._at)
        self._at += len(sign) if found else 0
        return found

    def _fail(self, what: str) -> NoReturn:
        raise GrammarError(f"{what}, at {self._text[self._at : self._at + 12]!r}")


def _without(ranges: list[tuple[int, int]], codes: tuple[int, ...]) -> list[tuple[int, int]]:
    for code in codes:
        ranges = [
            part
            for low, high in ranges
            for part in ((low, min(high, code - 1)), (max(low, code + 1), high))
            if part[0] <= part[1] <= HIGHEST
        ]
        ranges = sorted(set(ranges))
    return ranges
