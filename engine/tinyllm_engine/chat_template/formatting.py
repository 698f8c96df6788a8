"""Filling in values, as in `"%s" % x` and `"{}".format(x)`, piece by piece, so that each keeps its marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from string import Formatter
from typing import Any

from tinyllm_engine.chat_template.marked_text import MarkedText, plain, wholly_marked

_CONVERSION = re.compile(
    r"%(?:\((?P<name>[^()]*)\))?[-#0 +]*(?P<width>\*|\d*)(?:\.(?P<digits>\*|\d*))?(?P<type>.)", re.S
)
_NAME = re.compile(r"[^.\[]*")


def fill_percent(template: str, values: Any) -> MarkedText:
    """`template % values`, with its errors."""
    text = plain(template) % values
    return _checked(text, lambda: _percent_parts(MarkedText(template), values), template, values)


Fill = Callable[[str, tuple[Any, ...], Mapping[str, Any]], str]


def fill_braces(template: str, fill: Fill, values: tuple[Any, ...], named: Mapping[str, Any]) -> MarkedText:
    """`template.format(*values, **named)`, with its errors; `fill` is the safe way to do that."""
    text = fill(plain(template), values, named)
    return _checked(text, lambda: _brace_parts(MarkedText(template), fill, values, named), template, values, named)


def _checked(text: str, parts: Callable[[], Iterator[str]], *sources: Any) -> MarkedText:
    """The parts, if they are that text. Where filling in has turns that are not followed here all of it is marked."""
    try:
        marked = MarkedText().join(parts())
    except (IndexError, KeyError, TypeError, ValueError):
        return wholly_marked(text, *sources)
    return marked if marked == text else wholly_marked(text, *sources)


def _percent_parts(template: MarkedText, values: Any) -> Iterator[str]:
    rest = list(values) if isinstance(values, tuple) else [values]
    start = 0
    for match in _CONVERSION.finditer(template):
        yield template[start : match.start()]
        start = match.end()
        if match["type"] == "%":
            yield "%"
        elif match["name"] is not None:
            yield _piece(match.group() % values, values[match["name"]], exact=match["type"] == "s")
        else:
            count = 1 + (match["width"] == "*") + (match["digits"] == "*")
            used, rest = rest[:count], rest[count:]
            yield _piece(match.group() % tuple(used), used[-1], exact=match["type"] == "s")
    yield template[start:]


def _brace_parts(template: MarkedText, fill: Fill, values: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[str]:
    number = 0
    for literal, field, spec, conversion in Formatter().parse(template):
        yield wholly_marked(literal, template)
        if field is None:
            continue
        name = _NAME.match(field).group()  # type: ignore[union-attr]
        if not name:
            name, field, number = str(number), f"{number}{field}", number + 1
        value = values[int(name)] if name.isdecimal() else named[name]
        piece = fill(f"{{{field}{'!' + conversion if conversion else ''}:{spec or ''}}}", values, named)
        yield _piece(piece, value, exact=field == name and not spec)


def _piece(text: str, value: Any, exact: bool) -> str:
    """exact: a text is filled in as it is."""
    return value if exact and isinstance(value, str) and value == text else wholly_marked(text, value)
