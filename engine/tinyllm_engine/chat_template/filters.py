"""The filters of chat templates: those of Jinja that templates have a use for, made to keep marks and limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from jinja2 import Environment
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.utils import pass_environment

from tinyllm_engine.chat_template.formatting import fill_percent
from tinyllm_engine.chat_template.json_text import JsonStyle, json_parts
from tinyllm_engine.chat_template.limits import LimitError, Limits
from tinyllm_engine.chat_template.marked_text import MarkedText, wholly_marked

Filter = Callable[..., Any]

_OF_TEXT = ("capitalize", "center", "e", "escape", "lower", "title", "trim", "truncate", "upper", "wordcount")
_OF_VALUES = (
    *("abs", "batch", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last"),
    *("length", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "select", "selectattr"),
    *("slice", "sort", "sum", "unique"),
)
_COUNTING = frozenset({"batch", "center", "round", "slice", "truncate"})
_MAX_INDENT = 64


class Filters:
    """limits: gives those of the rendering that goes on

    printed: makes text of a value
    """

    def __init__(self, limits: Callable[[], Limits], printed: Callable[[Any], str]) -> None:
        self._limits = limits
        self._printed = printed

    def by_name(self) -> dict[str, Filter]:
        jinja = {name: self._guarded(name, FILTERS[name]) for name in (*_OF_TEXT, *_OF_VALUES)}
        own = (self.string, self.safe, self.join, self.replace, self.indent, self.format, self.tojson)
        return jinja | {function.__name__: function for function in own}

    def _guarded(self, name: str, function: Filter) -> Filter:
        """Counted, and what comes out as plain text is marked by what went in."""
        first = 1 if hasattr(function, "jinja_pass_arg") else 0  # the value comes after the environment or context

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            values = list(args)
            if name in _OF_TEXT:
                values[first] = self._printed(values[first])
            self._check(name, values[first], [*values[first + 1 :], *kwargs.values()])
            result = function(*values, **kwargs)
            if isinstance(result, str) and not isinstance(result, MarkedText):
                return wholly_marked(result, values[first:], kwargs)
            return result

        return guarded

    def _check(self, name: str, value: Any, arguments: list[Any]) -> None:
        limits = self._limits()
        limits.step()
        if name in _COUNTING:
            limits.width(arguments)
        elif name == "list" and isinstance(value, str):
            limits.items(len(value))
        elif name == "sum" and any(isinstance(argument, (list, tuple)) for argument in arguments):
            raise LimitError("it adds up lists")

    def string(self, value: Any) -> str:
        return self._printed(value)

    def safe(self, value: Any) -> str:
        """Nothing is escaped by itself here, so nothing needs to be declared safe."""
        return self._printed(value)

    @pass_environment
    def join(self, environment: Environment, values: Any, d: Any = "", attribute: str | int | None = None) -> str:
        if attribute is not None:
            values = map(make_attrgetter(environment, attribute), values)
        separator = MarkedText(self._printed(d))
        parts = [self._printed(value) for value in values]
        self._limits().text(sum(len(part) + len(separator) for part in parts))
        return separator.join(parts)

    def replace(self, value: Any, old: Any, new: Any, count: int | None = None) -> str:
        value, old, new = MarkedText(self._printed(value)), self._printed(old), self._printed(new)
        self._limits().text(len(value) + value.count(old) * len(new))
        return value.replace(old, new, -1 if count is None else count)

    def indent(self, value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        """All lines but the first, and those that are blank, unless told otherwise."""
        self._limits().width([width])
        margin = width if isinstance(width, str) else " " * width
        lines = (MarkedText(self._printed(value)) + "\n").splitlines()
        self._limits().text(sum(len(line) + len(margin) for line in lines))
        indented = [line if number == 0 or not (line or blank) else margin + line for number, line in enumerate(lines)]
        return MarkedText(margin if first else "") + MarkedText("\n").join(indented)

    def format(self, value: Any, *args: Any, **kwargs: Any) -> str:
        template = self._printed(value)
        values = kwargs or args
        self._limits().filled(template, "%", [*args, *kwargs.values()])
        return fill_percent(template, values)

    def tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        limits = self._limits()
        if isinstance(indent, int):
            if indent > _MAX_INDENT:
                raise LimitError(f"it indents by more than {_MAX_INDENT}")
            indent = " " * indent
        item_separator, key_separator = separators or (", " if indent is None else ",", ": ")
        style = JsonStyle(ensure_ascii, indent, item_separator, key_separator, sort_keys)
        return MarkedText().join(limits.pieces(limits.counted(json_parts(value, style))))
