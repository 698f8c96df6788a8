"""JSON schemas as grammars: what an answer that obeys the schema looks like.

The usual part of the language: types, properties in the order they are listed, required and additional ones, enum and
const, arrays, lengths, simple patterns, ranges of integers, oneOf and anyOf, allOf of objects, references within the
schema. As in llama.cpp an object has no other properties than those listed, unless additionalProperties says so.
Whatever else narrows down what is valid is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from tinyllm_engine.errors import GrammarError
from tinyllm_engine.grammar.json_text import ANY_CHARACTER, class_of, integers, literal, pattern_to_gbnf
from tinyllm_engine.grammar.rules import ROOT

LONGEST = 1 << 20  # characters of a schema
DEEPEST = 64  # schemas within schemas
MOST_COUNT = 100_000  # of characters or items

EMPTY = '""'  # an alternative that says nothing: behind a last | the next line would be read

Schema = dict[str, Any]

_SHARED = {
    "ws": r'([ \t] | "\n" [ \t]{0,20})?',
    "char": ANY_CHARACTER,
    "string": r'"\"" char* "\""',
    "integral": '"0" | [1-9] [0-9]{0,15}',
    "fraction": '("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
    "number": '"-"? integral fraction',
    "integer": '"-"? integral',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" ws (pair ("," ws pair)*)? "}" ',
    "pair": 'string ws ":" ws value ws',
    "array": '"[" ws (value ws ("," ws value ws)*)? "]"',
    "date": '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])',
    "time": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})? zone',
    "zone": '"Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]',
    "hex": "[0-9a-fA-F]",
}
_FORMATS = {
    "date": "date",
    "time": "time",
    "date-time": 'date "T" time',
    "uuid": 'hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}',
}
# fmt: off
_UNSUPPORTED = (
    "not", "if", "then", "else", "patternProperties", "propertyNames", "dependencies", "dependentRequired",
    "dependentSchemas", "contains", "minContains", "maxContains", "multipleOf", "minProperties", "maxProperties",
    "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef", "additionalItems",
)
# fmt: on
_OF_TYPE = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties"),
    "boolean": (),
    "null": (),
}


def json_schema_to_gbnf(schema: str | Schema | bool) -> str:
    """The grammar, in GBNF, of what obeys a schema. Raises GrammarError, which names the place."""
    if isinstance(schema, str):
        if len(schema) > LONGEST:
            raise GrammarError(f"JSON schema: expected at most {LONGEST} characters, found {len(schema)}")
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise GrammarError(f"JSON schema: it is not JSON: {error}") from error
        except RecursionError:
            raise GrammarError("JSON schema: nested too deeply") from None
    return _Converter(schema).gbnf()


class _Converter:
    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._rules: dict[str, str] = {}
        self._references: dict[str, str] = {}  # of each place that is referred to: its rule
        self._depth = 0

    def gbnf(self) -> str:
        self._references["#"] = ROOT
        self._rules[ROOT] = ""  # the name is taken
        self._rules[ROOT] = self._body(self._schema, "#")
        return "".join(f"{name} ::= {body}\n" for name, body in self._rules.items())

    def _shared(self, text: str) -> str:
        """The text, with the shared rules it names defined."""
        for name in re.findall(r"[a-z]+", re.sub(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]', " ", text)):
            if name in _SHARED and name not in self._rules:
                self._rules[name] = _SHARED[name]
                self._shared(_SHARED[name])
        return text

    def _rule(self, body: str, place: str) -> str:
        """A rule of its own for this body, named after the place."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", place.rpartition("/")[2]).strip("-")[:40].lower() or "part"
        name, number = f"s-{words}", 1
        while name in self._rules:
            number += 1
            name = f"s-{words}-{number}"
        self._rules[name] = body
        return name

    def _part(self, schema: Any, place: str) -> str:
        """An item that stands for a schema."""
        body = self._body(schema, place)
        return body if re.fullmatch(r"[A-Za-z0-9-]+", body) else self._rule(body, place)

    def _body(self, schema: Any, place: str) -> str:
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(place, f"expected at most {DEEPEST} schemas within each other")
        try:
            return self._alternatives(schema, place)
        finally:
            self._depth -= 1

    def _alternatives(self, schema: Any, place: str) -> str:
        if schema is True or schema == {}:
            return self._shared("value")
        if not isinstance(schema, dict):
            self._fail(place, f"expected a schema that something can obey, found {json.dumps(schema)[:40]}")
        for keyword in _UNSUPPORTED:
            if keyword in schema:
                self._fail(place, f"{keyword} is not supported")
        if schema.get("uniqueItems"):
            self._fail(place, "uniqueItems is not supported")
        if "$ref" in schema:
            return self._reference(schema["$ref"], place)
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                return self._choice(schema, keyword, place)
        if "allOf" in schema:
            return self._body(self._merged(schema, place), place)
        if "const" in schema:
            return literal(_compact(schema["const"]))
        if "enum" in schema:
            values = schema["enum"]
            if not isinstance(values, list) or not values:
                self._fail(place, "enum: expected a list of values")
            return " | ".join(literal(_compact(value)) for value in values)
        types = schema.get("type") or self._implied(schema)
        if isinstance(types, list) and types:
            return " | ".join(self._part({**schema, "type": kind}, f"{place}/{kind}") for kind in types)
        return self._of_type(types, schema, place)

    def _implied(self, schema: Schema) -> Any:
        """The type that keywords of one type alone speak of."""
        for kind in ("object", "array", "string"):
            if any(keyword in schema for keyword in _OF_TYPE[kind]):
                return kind
        return "number" if any(keyword in schema for keyword in _OF_TYPE["number"]) else None

    def _of_type(self, kind: Any, schema: Schema, place: str) -> str:
        makers: dict[str, Callable[[Schema, str], str]] = {
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "array": self._array,
            "object": self._object,
        }
        if kind in ("boolean", "null"):
            return self._shared(kind)
        if kind is None:
            return self._shared("value")
        if not isinstance(kind, str) or kind not in makers:
            self._fail(place, f"type: expected one of {', '.join(_OF_TYPE)}; found {json.dumps(kind)[:40]}")
        return makers[kind](schema, place)

    # --- what refers to other schemas ---

    def _reference(self, target: Any, place: str) -> str:
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            self._fail(place, f"$ref: expected a place in this schema (#/...), found {json.dumps(target)[:60]}")
        if target not in self._references:
            found = self._find(target, place)
            self._references[target] = self._rule("", target)  # it may refer to itself
            self._rules[self._references[target]] = self._body(found, target)
        return self._references[target]

    def _find(self, target: str, place: str) -> Any:
        found = self._schema
        for step in target[2:].split("/") if target != "#" else ():
            key = step.replace("%25", "%").replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                self._fail(place, f"$ref: there is no {target[:60]}")
        return found

    def _choice(self, schema: Schema, keyword: str, place: str) -> str:
        choices = schema[keyword]
        if not isinstance(choices, list) or not choices:
            self._fail(place, f"{keyword}: expected a list of schemas")
        shared = {name: value for name, value in schema.items() if name == "type"}
        beside = [name for name in schema if any(name in words for words in _OF_TYPE.values())]
        if beside:
            self._fail(place, f"{beside[0]} beside {keyword} is not supported")
        parts = [
            self._part(shared | each if isinstance(each, dict) else each, f"{place}/{keyword}/{number}")
            for number, each in enumerate(choices)
        ]
        return " | ".join(parts)

    def _merged(self, schema: Schema, place: str) -> Schema:
        """allOf of objects: the properties of all of them."""
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        parts = schema["allOf"]
        if not isinstance(parts, list) or not parts:
            self._fail(place, "allOf: expected a list of schemas")
        kinds = {"properties", "required", "type", "additionalProperties", "title", "description", "default"}
        merged: Schema = {"type": "object", "properties": {}, "required": []}
        seen = 0
        todo = [*parts, *([rest] if kinds & rest.keys() - {"title", "description", "default"} else [])]
        while todo:
            part = todo.pop(0)
            seen += 1
            if isinstance(part, dict) and "$ref" in part and seen < DEEPEST:
                todo.insert(0, self._find(part["$ref"], place) if isinstance(part["$ref"], str) else None)
                continue
            if len(parts) == 1 and not merged["properties"] and not todo:
                return part
            if not isinstance(part, dict) or not part.keys() <= kinds or part.get("type", "object") != "object":
                self._fail(place, "allOf is supported for objects with properties only")
            merged["properties"] |= part.get("properties", {})
            merged["required"] += part.get("required", [])
            if "additionalProperties" in part:
                merged["additionalProperties"] = part["additionalProperties"]
        return merged

    # --- one type each ---

    def _string(self, schema: Schema, place: str) -> str:
        least, most = self._counts(schema, "minLength", "maxLength", place)
        if "pattern" in schema:
            if (least, most) != (0, None):
                self._fail(place, "pattern beside a length is not supported")
            if not isinstance(schema["pattern"], str):
                self._fail(place, "pattern: expected a text")
            try:
                body = pattern_to_gbnf(schema["pattern"])
            except GrammarError as error:
                self._fail(place, f"pattern: {error}")
            return self._shared(rf'"\"" {body} "\""')
        if schema.get("format") in _FORMATS:
            return self._shared(rf'"\"" {_FORMATS[schema["format"]]} "\""')
        if (least, most) == (0, None):
            return self._shared("string")
        return self._shared(rf'"\"" char{_times(least, most)} "\""')

    def _integer(self, schema: Schema, place: str) -> str:
        low, high = self._bound(schema, "minimum", 1, place), self._bound(schema, "maximum", -1, place)
        if low is None and high is None:
            return self._shared("integer")
        if low is not None and high is not None and low > high:
            self._fail(place, f"no integer lies between {low} and {high}")
        return integers(low, high)

    def _bound(self, schema: Schema, keyword: str, step: int, place: str) -> int | None:
        """The lowest or highest integer allowed."""
        found: list[int] = []
        for name, exclusive in ((keyword, False), (f"exclusive{keyword.capitalize()}", True)):
            value = schema.get(name)
            if value is None or value is False:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 10**15:
                self._fail(place, f"{name}: expected a number, found {json.dumps(value)[:40]}")
            whole = -(-value // 1) if step > 0 else value // 1
            found.append(int(whole) + step * (exclusive and whole == value))
        if not found:
            return None
        return max(found) if step > 0 else min(found)

    def _number(self, schema: Schema, place: str) -> str:
        bounds = {name: schema[name] for name in _OF_TYPE["number"] if name in schema}
        if bounds in ({"minimum": 0}, {"minimum": 0.0}):
            return self._shared("integral fraction")
        if bounds:
            self._fail(place, f"{next(iter(bounds))} of a number that is no integer is not supported (but minimum 0)")
        return self._shared("number")

    def _array(self, schema: Schema, place: str) -> str:
        least, most = self._counts(schema, "minItems", "maxItems", place)
        items = schema.get("items", True)
        first = schema.get("prefixItems", items if isinstance(items, list) else [])
        if not isinstance(first, list):
            self._fail(place, "prefixItems: expected a list of schemas")
        if isinstance(items, list) or ("prefixItems" in schema and "items" not in schema):
            items = False
        self._shared("ws")
        if first:
            return self._tuple(first, items, least, most, place)
        if items is False or most == 0:
            return '"[" ws "]"'
        item = self._part(items, f"{place}/items")
        body = f'{item} ws ("," ws {item} ws){_times(max(0, least - 1), None if most is None else most - 1)}'
        return f'"[" ws ({body})? "]"' if least == 0 else f'"[" ws {body} "]"'

    def _tuple(self, first: list[Any], items: Any, least: int, most: int | None, place: str) -> str:
        """An array whose first items have schemas of their own, all of them there."""
        if least > len(first) and items is False:
            self._fail(place, f"minItems: there are only {len(first)} items")
        if most is not None and most < len(first):
            first, items = first[:most], False
        parts = [self._part(each, f"{place}/prefixItems/{number}") for number, each in enumerate(first)]
        body = ' "," ws '.join(f"{part} ws" for part in parts)
        if items is not False:
            more = None if most is None else most - len(first)
            item = self._part(items, f"{place}/items")
            body += f' ("," ws {item} ws){_times(max(0, least - len(first)), more)}'
        return f'"[" ws {body} "]"'

    def _object(self, schema: Schema, place: str) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            self._fail(place, "expected properties by name and a list of required names")
        properties = dict(properties)
        more = schema.get("additionalProperties", not properties and not required)
        for name in required:
            if not isinstance(name, str):
                self._fail(place, "required: expected a list of names")
            if name not in properties:
                properties[name] = more if isinstance(more, dict) else True
        self._shared("ws")
        if not properties and (more is True or more == {}):
            return self._shared("object")
        return f'"{{" ws {self._properties(properties, set(required), more, place)} "}}"'

    def _properties(self, properties: Schema, required: set[str], more: Any, place: str) -> str:
        """What stands between the braces: the properties in their order, the optional ones or not, then others."""
        if more is False:
            first_more, later_more = "", ""
        else:
            key = self._other_key(list(properties), place)
            pair = f'{key} ws ":" ws {self._part(more, f"{place}/additionalProperties")} ws'
            name = self._rule(pair, f"{place}/additional")
            first_more, later_more = f'({name} ("," ws {name})*)?', f'("," ws {name})*'
        # What may follow where no property has come yet, and where one has.
        first, later = first_more, later_more
        for name in reversed(properties):
            where = f"{place}/properties/{name}"
            pair = f'{literal(_compact(name))} ws ":" ws {self._part(properties[name], where)} ws'
            pair = self._rule(f"{pair} {later}".strip(), where)
            if name in required:
                first, later = pair, f'"," ws {pair}'
            else:
                first, later = f"{pair} | {first or EMPTY}", f'("," ws {pair} | {later or EMPTY})'
                first = self._rule(first, f"{place}/from-{name}") if first.count("|") > 1 else f"({first})"
                later = self._rule(later, f"{place}/after-{name}")
        return first

    def _other_key(self, names: list[str], place: str) -> str:
        """A key that is none of these names; what is escaped in it does not count as a beginning of them."""
        if not names:
            return self._shared("string")
        self._shared("char")
        trie: dict[str, Any] = {}
        for name in names:
            node = trie
            for character in _compact(name)[1:-1]:
                node = node.setdefault(character, {})
            node[""] = {}

        def rest(node: dict[str, Any], depth: int) -> str:
            if depth > 200:
                self._fail(place, "a name is too long to be told from other ones")
            following = [character for character in node if character]
            others = class_of([(ord(c), ord(c)) for c in [*following, '"', "\\"]] + [(0, 31), (127, 127)], True)
            ways = [f"{others} char*", r'"\\" ["\\/bfnrt] char*' if "\\" not in following else ""]
            ways += [f"{literal(c)} {self._rule(rest(node[c], depth + 1), 'key')}" for c in following]
            ways += [] if "" in node else ['""']  # the key may end here, unless that makes it one of the names
            return " | ".join(way for way in ways if way)

        return self._rule(rf'"\"" {self._rule(rest(trie, 0), "key")} "\""', "key")

    # --- small things ---

    def _counts(self, schema: Schema, low: str, high: str, place: str) -> tuple[int, int | None]:
        least, most = schema.get(low, 0), schema.get(high)
        for name, value in ((low, least), (high, most)):
            valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT
            if not valid and value is not None:
                self._fail(place, f"{name}: expected a number from 0 to {MOST_COUNT}, found {json.dumps(value)[:40]}")
        if most is not None and least > most:
            self._fail(place, f"{low} is above {high}")
        return least, most

    def _fail(self, place: str, what: str) -> NoReturn:
        raise GrammarError(f"JSON schema: {place[:120]}: {what}")


def _times(least: int, most: int | None) -> str:
    if most is None:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return f"{{{least},{most}}}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
