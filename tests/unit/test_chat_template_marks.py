"""Text keeps its marks through whatever a template does to it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plain_jinja import render_plainly
from support.tiny_vocabularies import byte_level
from tinyllm_engine.chat_template import ChatTemplate, MarkedText
from tinyllm_engine.chat_template.json_text import JsonStyle, json_parts
from tinyllm_engine.chat_template.marked_text import OUTSIDE, marks_of, message_index, message_mark, wholly_marked
from tinyllm_engine.tokenizer import Tokenizer

ALPHABET = "ab \nßİ,"


@st.composite
def marked_texts(draw):
    text = draw(st.text(ALPHABET, max_size=8))
    return MarkedText(text, draw(st.text("\0\2\3", min_size=len(text), max_size=len(text))))


def pairs(text):
    """Each character with its mark."""
    return list(zip(str.__str__(text), marks_of(text), strict=True))


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(item in rest for item in part)


SPLITS = [
    lambda text: text.split(),
    lambda text: text.split(None, 1),
    lambda text: text.split(","),
    lambda text: text.split("a ", 1),
    lambda text: text.split("aab"),
    lambda text: text.rsplit(None, 1),
    lambda text: text.rsplit(",", 1),
    lambda text: text.splitlines(),
    lambda text: text.splitlines(True),
    lambda text: text.partition("a"),
    lambda text: text.rpartition("b"),
    lambda text: [text.strip(), text.lstrip(), text.rstrip("b")],
    lambda text: [text.removeprefix("a"), text.removesuffix("b")],
    lambda text: [text[1:], text[::2], text[:-1], text[-2:]],
    list,
]


@pytest.mark.parametrize("cut", SPLITS)
@given(text=marked_texts())
def test_parts_keep_their_characters_marks(cut, text):
    parts = cut(text)
    assert list(parts) == list(cut(str.__str__(text)))
    for part in parts:
        assert isinstance(part, MarkedText)
        assert is_subsequence(pairs(part), pairs(text))


@given(marked_texts(), st.sampled_from([",", "a", "b "]))
def test_splitting_and_joining_loses_the_marks_of_the_separators_only(text, sep):
    at, expected = 0, pairs(text)
    while (at := text.find(sep, at)) >= 0:
        expected[at : at + len(sep)] = pairs(sep)
        at += len(sep)
    assert pairs(MarkedText(sep).join(text.split(sep))) == expected


@given(marked_texts(), marked_texts(), st.text(ALPHABET, max_size=5))
def test_sums(left, right, plain):
    assert pairs(left + right) == pairs(left) + pairs(right)
    assert pairs(left + plain) == pairs(left) + pairs(plain)
    assert pairs(plain + left) == pairs(plain) + pairs(left)
    assert pairs(left * 2) == pairs(2 * left) == pairs(left) * 2
    assert pairs(left.join([plain, right, plain])) == pairs(plain) + pairs(left) + pairs(right) + pairs(left) + pairs(
        plain
    )


@given(marked_texts(), st.sampled_from(["a", "ab", ",", ""]), marked_texts(), st.integers(-1, 4))
def test_replacing(text, old, new, count):
    replaced = text.replace(old, new, count)
    assert replaced == str.__str__(text).replace(old, str.__str__(new), count)
    kept = [pair for pair in pairs(text) if pair[0] not in old]
    assert is_subsequence(kept, pairs(replaced))
    if new and replaced.count(new) == 1 and text.count(old) == 1 and not text.count(new):
        assert is_subsequence(pairs(new), pairs(replaced))


@given(marked_texts(), st.sampled_from(["upper", "lower", "swapcase", "casefold"]))
def test_changing_case(text, method):
    changed = getattr(text, method)()
    assert changed == getattr(str.__str__(text), method)()
    assert list(changed.marks) == [mark for char, mark in pairs(text) for _ in getattr(char, method)()]


@given(marked_texts(), st.sampled_from(["title", "capitalize"]))
def test_capitals(text, method):
    changed = getattr(text, method)()
    assert changed == getattr(str.__str__(text), method)()
    assert changed.marks == text.marks if len(changed) == len(text) else set(changed.marks) <= {*text.marks, OUTSIDE}


@given(
    marked_texts(), st.sampled_from([("center", 12), ("ljust", 12), ("rjust", 12), ("zfill", 12), ("expandtabs", 3)])
)
def test_ways_that_are_not_followed_mark_it_all(text, call):
    method, argument = call
    result = getattr(text, method)(argument)
    assert result == getattr(str.__str__(text), method)(argument)
    assert set(result.marks) <= ({"\0"} if set(text.marks) <= {"\0"} else {OUTSIDE, "\2", "\3"})


def test_a_mixture_has_the_mark_of_the_one_message_in_it():
    one, other = MarkedText("a", message_mark(0)), MarkedText("b", message_mark(1))
    assert wholly_marked("xy", one, "plain", [1, {"k": None}]).marks == message_mark(0) * 2
    assert wholly_marked("xy", one, {"k": [other]}).marks == OUTSIDE * 2
    assert wholly_marked("xy", "plain", 5, {"k": [True]}).marks == "\0\0"
    assert wholly_marked("xy", object()).marks == OUTSIDE * 2


def test_marks_of_messages():
    assert [message_index(message_mark(index)) for index in (0, 1, 54000)] == [0, 1, 54000]
    assert message_index("\0") is message_index(OUTSIDE) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=4), values, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans(), st.sampled_from([None, 0, 2, "\t"]), st.sampled_from([None, (",", ":")]), st.booleans())
def test_json_is_that_of_json_dumps(value, ensure_ascii, indent, separators, sort_keys):
    item, key = separators or (", " if indent is None else ",", ": ")
    margin = " " * indent if isinstance(indent, int) else indent
    text = "".join(json_parts(value, JsonStyle(ensure_ascii, margin, item, key, sort_keys)))
    assert text == json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def test_json_of_other_keys_and_values():
    value = {1: 2, None: [], False: {}, 1.5: ()}
    assert "".join(json_parts(value, JsonStyle())) == json.dumps(value)
    for bad in ({(1, 2): 3}, {"a": object()}):
        with pytest.raises(TypeError):
            "".join(json_parts(bad, JsonStyle()))


CONTENT = "①②③ ④"
RENDERINGS = [
    "a{{ m }}b",
    "{{ '<' ~ m ~ 1 ~ '>' }}",
    "{{ 'x' + m + 'y' }}",
    "{{ m | trim | upper }}{{ m | lower | capitalize | title }}",
    "{{ ['x', m] | join(', ') }}{{ [{'k': m}] | join('|', attribute='k') }}",
    "{{ 'a,b'.replace(',', m) }}{{ 'a,b' | replace(',', m) }}{{ m | replace('②', 'x') }}",
    "{{ 'a%sb%%' % m }}{{ 'a%sb%03d' % (m, 7) }}{{ '%(k)s|' % {'k': m} }}{{ 'a%s' | format(m) }}",
    "{{ 'a{}b'.format(m) }}{{ '{1}{0}{k}'.format(m, 'x', k=m) }}{{ '{{}}{:>3}'.format(7) }}",
    "{{ {'k': m} | tojson }}{{ [m] | tojson(indent=2) }}",
    "{% for part in m.split(' ') %}[{{ part }}]{% endfor %}",
    "{% for char in m %}{{ char }}.{% endfor %}{{ m | list | length }}{{ m | first }}{{ m | last }}",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(m) }}{{ f(m) | upper }}",
    "{% set z %}i{{ m }}j{% endset %}{{ z }}",
    "{% filter upper %}q{{ m }}{% endfilter %}",
    "{% macro f() %}{{ caller(m) }}{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}{{ m }}",
    "{% generation %}{{ m }}{% endgeneration %}",
    "{{ m[::-1] }}{{ m | reverse }}{{ m[1:] }}{{ m[0] }}",
    "{{ m | indent(2, true) }}{{ m | safe }}{{ m | string }}{{ m | default('x') }}{{ nothing | default(m) }}",
    "{% set ns = namespace(s='') %}{% for c in m %}{% set ns.s = ns.s + c %}{% endfor %}{{ ns.s }}",
    "{% for c in m %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ c }}{% endfor %}",
    "{{ [m, m] | map('upper') | list | join }}{{ [m] | first }}{{ {'a': m}.items() | list | first | last }}",
    "{{ m | int(5) }}{{ m | length }}{{ m is string }}{{ '①' in m }}{{ m.startswith('①') }}",
    "{{ m * 2 }}{{ 2 * m }}{{ ', '.join([m, m]) }}{{ m.rstrip('④') }}",
]


@pytest.mark.parametrize("source", RENDERINGS)
def test_a_rendering_is_plain_jinjas_and_its_marks_are_right(source):
    tokenizer = Tokenizer.from_metadata(byte_level())
    source = "{% set m = messages[0].content %}" + source
    messages = [{"role": "user", "content": CONTENT}]
    text = ChatTemplate(source, tokenizer).prompt(messages).text
    assert text == render_plainly(source, messages=messages)
    assert [mark != "\0" for char, mark in pairs(text) if char != " "] == [
        char in CONTENT for char in str(text) if char != " "
    ]


@pytest.mark.parametrize(
    "source",
    [
        "{{ [messages[0].content] }}",
        "{{ messages }}",
        "{{ '%10s' % messages[0].content }}",
        "{{ '{:{}}'.format(messages[0].content, 12) }}",
        "{{ '%r' % messages[0].content }}",
        "{{ messages[0].content | center(20) }}",
        "{{ messages[0].content | e }}",
        "{{ messages[0].content | truncate(8, true) }}",
        "{{ messages[0] | string }}",
        "{{ (messages[0].content, 1) ~ '' }}",
        "{{ messages[0].items() }}",
    ],
)
def test_where_marks_are_not_followed_all_is_content(source):
    tokenizer = Tokenizer.from_metadata(byte_level())
    messages = [{"role": "user", "content": CONTENT + "<&>" + CONTENT}]
    text = ChatTemplate(source, tokenizer).prompt(messages).text
    assert "①" in text
    assert all(mark != "\0" for char, mark in pairs(text) if char in CONTENT + "<&>")


@pytest.mark.parametrize("source", ["{{ m.marks }}", "{{ m.encode }}", "{{ m['translate'] }}", "{{ m.format_map }}"])
def test_there_is_no_way_around_the_marks(source):
    tokenizer = Tokenizer.from_metadata(byte_level())
    source = "{% set m = messages[0].content %}" + source
    assert ChatTemplate(source, tokenizer).prompt([{"role": "user", "content": CONTENT}]).text == ""
