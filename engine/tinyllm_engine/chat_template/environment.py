"""The Jinja environment of chat templates: a sandbox with limits, in which text keeps its marks.

Templates are written for Hugging Face's `apply_chat_template`; what they find here is what they find there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

from tinyllm_engine.chat_template.filters import Filters
from tinyllm_engine.chat_template.formatting import fill_braces, fill_percent
from tinyllm_engine.chat_template.limits import Limits
from tinyllm_engine.chat_template.marked_text import MarkedText, plain, wholly_marked

# Methods of str that lead around the marks, and that no template needs.
_HIDDEN_METHODS = frozenset({"encode", "format_map", "maketrans", "translate"})
_ADDED_BY_JINJA = frozenset({"_loop_vars", "_block_vars"})  # arguments of a call within a loop or block
_WIDENING_METHODS = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})


class RaisedByTemplate(Exception):
    """The template called `raise_exception`; the message is its own."""


class _Generator(CodeGenerator):
    """Compiles what Jinja has no hook for: the operator ~, loops, and displays of lists, tuples and dictionaries."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.join_text((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        node.iter = nodes.Call(nodes.EnvironmentAttribute("counted"), [node.iter], [], None, None)
        super().visit_For(node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._write_contained(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._write_contained(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._write_contained(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def _write_contained(self, visit: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write("environment.contained(")
        visit(node, frame)
        self.write(")")


class _GenerationTag(Extension):
    """{% generation %} marks what the model shall learn to write. For answering it is as if it were not there."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """limits: of the rendering that goes on; renewed for each, and there is one at a time."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        self.limits = Limits()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, _GenerationTag],
            finalize=self.printed,
        )
        self.concat = self.join_text  # type: ignore[method-assign]
        self.filters = Filters(lambda: self.limits, self.printed).by_name()
        self.globals.pop("lipsum")
        self.globals.update(dict=self._dict, raise_exception=self._raise_exception, strftime_now=self._strftime_now)

    def printed(self, value: Any) -> str:
        """A value as text: what `str` makes of it, marked."""
        self.limits.step()
        if isinstance(value, str):
            return value
        self.limits.printed(value)
        return wholly_marked(str(value), value)

    def join_text(self, parts: Iterable[Any]) -> MarkedText:
        """The joining function of Jinja's output, and the operator ~."""
        return MarkedText().join(self.limits.pieces(map(self.printed, parts)))

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        return self.limits.counted(values)

    def contained(self, value: Any) -> Any:
        """A new container. One that holds a thing twice that holds another twice, and so on, is endless to read."""
        self.limits.contained(value)
        return value

    def getattr(self, obj: Any, attribute: str) -> Any:
        return super().getattr(_marked(obj), attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(_marked(obj), argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and (attr in _HIDDEN_METHODS or not hasattr(str, attr)):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None or value.__name__ in _HIDDEN_METHODS:
            return None
        template: str = value.__self__

        def fill(*values: Any, **named: Any) -> MarkedText:
            self.limits.filled(template, "{", [*values, *named.values()])
            return fill_braces(template, SandboxedFormatter(self).vformat, values, named)

        return fill

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self.limits.step()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, MarkedText):
            named = {key: value for key, value in kwargs.items() if key not in _ADDED_BY_JINJA}
            args = __self._announce(owner, __obj.__name__, args, named)
        return super().call(__context, __obj, *args, **kwargs)

    def _announce(
        self, text: MarkedText, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Checks what a method of str is going to make. Returns the arguments to call it with."""
        if method in _WIDENING_METHODS:
            self.limits.width([*args, *kwargs.values()])
        elif method == "join" and args:
            parts = list(args[0])
            self.limits.text(sum(len(part) + len(text) for part in parts if isinstance(part, str)))
            args = (parts, *args[1:])
        elif method == "replace" and len(args) > 1 and all(isinstance(arg, str) for arg in args[:2]):
            self.limits.text(len(text) + text.count(args[0]) * len(args[1]))
        elif method in ("split", "rsplit", "splitlines"):
            self.limits.items(len(getattr(plain(text), method)(*args, **kwargs)))
        return args

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.limits.step()
        if operator == "+":
            self._announce_sum(left, right)
        elif operator == "*":
            self._announce_product(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            self.limits.bits(left.bit_length() * abs(right))
        elif operator == "%" and isinstance(left, str):
            self.limits.filled(left, "%", list(right) if isinstance(right, tuple) else [right])
            return fill_percent(left, right)
        return super().call_binop(context, operator, left, right)

    def _announce_sum(self, left: Any, right: Any) -> None:
        if isinstance(left, str) and isinstance(right, str):
            self.limits.text(len(left) + len(right))
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            self.limits.items(len(left) + len(right))

    def _announce_product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int):
            self.limits.bits(left.bit_length() + right.bit_length())
        for sequence, count in ((left, right), (right, left)):
            if isinstance(count, int) and isinstance(sequence, str):
                self.limits.text(len(sequence) * max(count, 0))
            elif isinstance(count, int) and isinstance(sequence, (list, tuple)):
                self.limits.items(len(sequence) * max(count, 0))

    def _dict(self, *values: Any, **named: Any) -> Any:
        return self.contained(dict(*values, **named))

    def _raise_exception(self, message: Any) -> NoReturn:
        raise RaisedByTemplate(self.printed(message))

    def _strftime_now(self, format: str) -> MarkedText:
        self.limits.filled(format, "%", [])
        return wholly_marked(datetime.now().strftime(format), format)


def _marked(value: Any) -> Any:
    """Methods of a template's own text may be given text from outside."""
    return MarkedText(value) if type(value) is str else value
