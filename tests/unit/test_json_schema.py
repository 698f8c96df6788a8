"""JSON schemas: texts that obey are allowed, others are not, and what cannot be done is refused by name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine.errors import GrammarError
from tinyllm_engine.grammar import json_schema_to_gbnf, parse_gbnf
from tinyllm_engine.grammar.automaton import Automaton

LIST = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"],
        }
    },
    "$ref": "#/$defs/node",
}
BASE = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def automaton_of(schema):
    return Automaton(parse_gbnf(json_schema_to_gbnf(schema)))


def accepts(automaton, text):
    return automaton.is_complete(automaton.after_bytes(automaton.start, text.encode()))


def obj(properties, *required, **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


INTEGER, STRING = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({}, ["1", '"a"', "{}", '{"a": [1,{"b":null}]}', "-1.5e10", '"\\u00e9日"'], ["", "01", "{a}", "[1,]", "+1"]),
        (True, ["null"], ["nul"]),
        (
            obj({"a": INTEGER, "b": STRING, "c": {"type": "boolean"}}, "b"),
            ['{"b":"x"}', '{"a":1,"b":"x"}', '{"a": 1, "b": "x", "c": true}', '{\n  "b": ""\n}'],
            ["{}", '{"a":1}', '{"b":"x",}', '{"b":"x","a":1}', '{"b":1}', '{"b":"x","d":1}'],
        ),
        (obj({"a": {}, "b": {}}), ["{}", '{"a":1}', '{"b":1}', '{"a":1,"b":2}'], ['{"b":1,"a":1}', '{,"b":1}']),
        (
            obj({"a": INTEGER}, additionalProperties=STRING),
            ["{}", '{"a":1}', '{"a":1,"b":"c"}', '{"b":"c"}', '{"ab":"c","":"d"}', '{"b":"c","d":"e"}'],
            ['{"a":"x"}', '{"b":1}', '{"b":"x","a":1}'],
        ),
        (obj({"a": INTEGER}, "a", additionalProperties=True), ['{"a":1,"z":[2]}'], ['{"z":[2]}', '{"a":"b"}']),
        (obj({}, "n"), ['{"n":[]}'], ["{}"]),
        ({"type": "object"}, ["{}", '{"x":1}'], ["[]"]),
        ({"enum": ["a", 1, None, {"x": [1]}]}, ['"a"', "1", "null", '{"x":[1]}'], ['"b"', '{"x": [1]}']),
        ({"const": 'q"\\\n'}, [json.dumps('q"\\\n')], ['"q"']),
        ({"items": INTEGER, "minItems": 2, "maxItems": 3}, ["[1,2]", "[1, 2, 3]"], ["[1]", "[1,2,3,4]"]),
        ({"type": "array", "items": INTEGER, "maxItems": 2}, ["[]", "[1]", "[1,2]"], ["[1,2,3]"]),
        ({"type": "array", "items": INTEGER, "minItems": 1}, ["[1]", "[1,2,3]"], ["[]"]),
        ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
        ({"prefixItems": [STRING, INTEGER]}, ['["a",1]'], ['["a"]', '["a",1,2]']),
        ({"prefixItems": [STRING], "items": INTEGER, "minItems": 2}, ['["a",1]', '["a",1,2]'], ['["a"]', '["a","b"]']),
        ({"items": [STRING, INTEGER]}, ['["a",1]'], ["[]"]),
        ({"minLength": 2, "maxLength": 3}, ['"ab"', '"日本"', '"\\n\\u00e9"'], ['"a"', '"abcd"']),
        ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2024-13-01"', '"x"']),
        ({"type": "string", "format": "date-time"}, ['"2024-01-31T23:59:59Z"'], ['"2024-01-31"']),
        ({"type": "string", "format": "uuid"}, ['"123e4567-e89b-12d3-a456-426614174000"'], ['"x"']),
        ({"type": "string", "format": "whatever"}, ['"x"'], ["1"]),
        ({"anyOf": [STRING, {"type": "null"}]}, ['"a"', "null"], ["1"]),
        ({"oneOf": [{"const": 1}, obj({"k": STRING}, "k")]}, ["1", '{"k":"v"}'], ["2", "{}"]),
        ({"type": ["string", "integer"], "minimum": 3}, ['"a"', "12"], ["null", "2"]),
        (LIST, ['{"v":1,"next":null}', '{"v":1,"next":{"v":2,"next":null}}'], ['{"v":1}', '{"v":1,"next":1}']),
        (obj({"kids": {"items": {"$ref": "#"}}}, "kids"), ['{"kids":[]}', '{"kids":[{"kids":[]}]}'], ["{}"]),
        ({"allOf": [BASE, obj({"y": INTEGER}, "y")]}, ['{"x":1,"y":2}'], ['{"x":1}', '{"y":1}']),
        ({"allOf": [{"$ref": "#/a"}], "a": STRING}, ['"s"'], ["1"]),
        ({"type": "number"}, ["0", "-1.50", "2e-3"], [".5", "1.", "--1"]),
        ({"type": "number", "minimum": 0}, ["0", "1.5"], ["-1"]),
        ({"title": "t", "description": "d", "default": 1, "x-mine": 2, "type": "null"}, ["null"], ["1"]),
    ],
)  # fmt: skip
def test_texts(schema, right, wrong):
    automaton = automaton_of(schema)
    for text in right:
        json.loads(text)
        assert accepts(automaton, text), text
    for text in wrong:
        assert not accepts(automaton, text), text


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        ("^[a-c]+\\d{2,3}$", ["a12", "abc123"], ["12", "a1", "a1234", "xa12"]),
        ("^(foo|ba[rz])?-.*$", ["-", "foo-x", "baz-"], ["foo", "bat-"]),
        ("(?:ab|c)+", ["ab", "xxccyy"], ["xx"]),
        ("^a", ["a", "abc"], ["ba"]),
        ("a$", ["a", "cba"], ["ab"]),
        ('^(?:"|\\\\|\\n|\\x41|\\u00e9|\\.)$', ['"', "\\", "\n", "A", "é", "."], ["n", "x", ""]),
        ("^[^a]$", ["b", '"', "é", "\\"], ["a", "bb"]),
        ("^\\w\\W\\s\\S[\\d-]$", ["a! x5", "_- y-"], ["aa x5"]),
        ("^a{2}b{1,}c{0,2}$", ["aab", "aabbcc"], ["ab", "aabccc"]),
    ],
)
def test_patterns(pattern, right, wrong):
    automaton = automaton_of({"type": "string", "pattern": pattern})
    for text in right:
        assert accepts(automaton, json.dumps(text, ensure_ascii=False)), text
    for text in wrong:
        assert not accepts(automaton, json.dumps(text, ensure_ascii=False)), text


bounds = st.none() | st.integers(-2000, 2000)


@given(bounds, bounds, st.lists(st.integers(-3000, 3000), max_size=30))
def test_integers_within_bounds(low, high, others):
    if low is not None and high is not None and low > high:
        low, high = high, low
    schema = {"type": "integer"}
    schema |= {"minimum": low} if low is not None else {}
    schema |= {"exclusiveMaximum": high + 1} if high is not None else {}
    automaton = automaton_of(schema)
    near = [end + step for end in (low, high) if end is not None for step in (-1, 0, 1)]
    for value in [*others, *near, 0, 10**9, -(10**9)]:
        expected = (low is None or value >= low) and (high is None or value <= high)
        assert accepts(automaton, str(value)) == expected, value
    assert not accepts(automaton, "007")
    assert not accepts(automaton, "")


def nested(depth):
    schema = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "integer", "multipleOf": 2}, "JSON schema: #: multipleOf is not supported"),
        (obj({"a": {"not": {}}}), "JSON schema: #/properties/a: not is not supported"),
        ({"type": "number", "minimum": 1}, "minimum of a number that is no integer is not supported"),
        ({"$ref": "http://x"}, "expected a place in this schema"),
        ({"$ref": "#/nope"}, "there is no #/nope"),
        ({"$ref": 5}, "expected a place in this schema"),
        ({"type": "foo"}, "type: expected one of string, integer"),
        ({"type": "string", "pattern": "(?=a)"}, "pattern: only plain groups are supported"),
        ({"type": "string", "pattern": "a*?"}, "lazy and possessive repetitions"),
        ({"type": "string", "pattern": "^a|b$"}, "an anchor within an alternative"),
        ({"type": "string", "pattern": "\\bx"}, "is not supported"),
        ({"type": "string", "pattern": "["}, "expected ]"),
        ({"type": "string", "pattern": "a{2"}, "expected something to repeat"),
        ({"type": "string", "pattern": "(" * 100}, "at most 32 groups"),
        ({"type": "string", "pattern": "a" * 5000}, "expected at most 4096 characters"),
        ({"type": "string", "pattern": 3}, "pattern: expected a text"),
        (False, "expected a schema that something can obey, found false"),
        (5, "expected a schema that something can obey, found 5"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems is not supported"),
        ({"enum": []}, "enum: expected a list of values"),
        ({"minLength": -1}, "minLength: expected a number from 0 to 100000"),
        ({"minLength": 3, "maxLength": 2}, "minLength is above maxLength"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "no integer lies between 5 and 3"),
        ({"type": "integer", "minimum": "x"}, "minimum: expected a number"),
        (obj([1]), "expected properties by name"),
        ({"oneOf": 3}, "oneOf: expected a list of schemas"),
        ({"oneOf": [{}], "properties": {}}, "properties beside oneOf is not supported"),
        ({"allOf": [{"type": "string"}, BASE]}, "allOf is supported for objects"),
        (nested(70), "at most 64 schemas within each other"),
        ("{bad", "it is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        (" " * ((1 << 20) + 1), "expected at most 1048576 characters"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(schema, message):
    with pytest.raises(GrammarError, match=message) as caught:
        json_schema_to_gbnf(schema)
    assert "\n" not in str(caught.value)


def test_a_schema_that_means_itself_is_refused():
    with pytest.raises(GrammarError, match="begins with itself"):
        automaton_of({"$ref": "#"})
