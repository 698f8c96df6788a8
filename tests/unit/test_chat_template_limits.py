"""A template is a program of whoever made the file: it gets so much time and memory and no more."""

import gc
import sys

import pytest
from support.tiny_vocabularies import byte_level
from tinyllm_engine.chat_template import ChatTemplate, limits
from tinyllm_engine.errors import TemplateError
from tinyllm_engine.tokenizer import Tokenizer

TOKENIZER = Tokenizer.from_metadata(byte_level())
GROW = "{% set ns = namespace(s=START) %}{% for i in range(64) %}{% set ns.s = STEP %}{% endfor %}{{ ns.s USE }}"


def grow(start, step, use=""):
    return GROW.replace("START", start).replace("STEP", step).replace("USE", use)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(30) recursive %}{% if loop.depth < 4 %}{{ loop(range(30)) }}{% endif %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        grow("[1]", "[ns.s, ns.s]"),
        grow("[1]", "[ns.s, ns.s]", "| tojson"),
        grow("[1]", "[ns.s, ns.s]", "| title"),
        grow("[1]", "(ns.s, ns.s)", "== 1"),
        grow("[1]", "{'a': ns.s, 'b': ns.s}", "is none"),
        grow("[1]", "dict(a=ns.s, b=ns.s)", "is none"),
        grow("[1]", "[ns.s] * 2", "is none"),
    ],
)
def test_steps(source, monkeypatch):
    monkeypatch.setattr(limits, "_MAX_STEPS", 10_000)
    with pytest.raises(TemplateError, match="was stopped: it takes more than 10000 steps"):
        ChatTemplate(source, TOKENIZER).render([])


def test_time(monkeypatch):
    monkeypatch.setattr(limits.time, "monotonic", iter(range(1000)).__next__)
    source = "{% for i in range(100) %}{% endfor %}"
    with pytest.raises(TemplateError, match="was stopped: it takes longer than 5 seconds"):
        ChatTemplate(source, TOKENIZER).render([])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ 'a' * 1000000000 }}", "texts of more than"),
        (grow("'ab'", "ns.s + ns.s"), "texts of more than"),
        (grow("'ab'", "ns.s ~ ns.s"), "texts of more than"),
        (grow("'ab'", "ns.s.replace('', ns.s)"), "texts of more than"),
        (grow("'ab'", "ns.s | replace('', ns.s)"), "texts of more than"),
        (grow("'ab'", "ns.s.join([ns.s, ns.s, ns.s])"), "texts of more than"),
        (grow("'ab'", "[ns.s, ns.s] | join(ns.s)"), "texts of more than"),
        (grow("'a{}b'", "'{0}{0}'.format(ns.s)"), "texts of more than"),
        (grow("'ab'", "'%s%s' % (ns.s, ns.s)"), "texts of more than"),
        (grow("'ab'", "'%s%s' | format(ns.s, ns.s)"), "texts of more than"),
        ("{{ ('a\n' * 1000) | indent(10000) }}", "texts of more than"),
        (grow("[1]", "ns.s + ns.s"), "lists of more than"),
        (grow("[1]", "ns.s * 9"), "lists of more than"),
        ("{{ ('a' * 1000000) | list }}", "lists of more than"),
        ("{{ ('a ' * 1000000).split() }}", "lists of more than"),
        ("{{ [[1], [2]] | sum(start=[]) }}", "adds up lists"),
        (grow("2", "ns.s * ns.s"), "numbers of more than"),
        ("{{ 10 ** (10 ** 10) }}", "numbers of more than"),
        ("{{ 'x' | center(1000000000) }}", "pads"),
        ("{{ 'x'.center(1000000000) }}", "pads"),
        ("{{ 'x'.ljust(1000000000) }}{{ 'x'.zfill(1000000000) }}", "pads"),
        ("{{ '%1000000000d' | format(1) }}", "pads"),
        ("{{ '%*d' % (1000000000, 1) }}", "pads"),
        ("{{ '{:1000000000}'.format(1) }}", "pads"),
        ("{{ '{:{}}'.format(1, 1000000000) }}", "pads"),
        ("{{ [1, 2] | batch(1000000000, 0) | list }}", "pads"),
        ("{{ 5 | round(1000000000, 'ceil') }}", "pads"),
        ("{{ strftime_now('%1000000000d') }}", "pads"),
        ("{{ 'a' | indent(1000000000, true) }}", "pads"),
        ("{{ {'a': 1} | tojson(indent=1000000000) }}", "indents"),
        ("{{ namespace(a=1) }}", "prints a namespace"),
        ("{{ range(1000000000) }}", "Range too big"),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "recursion"),
    ],
)
def test_sizes(source, said):
    with pytest.raises(TemplateError, match=said):
        ChatTemplate(source, TOKENIZER).render([])


@pytest.mark.parametrize(
    "source", ["{% macro f(n) %}{{ [n] | list }}{{ f([n]) }}{% endmacro %}{{ f(1) }}", "{{ " + "(" * 5000]
)
def test_no_garbage_is_collected_at_the_end_of_the_stack(source):
    """What is finalized there fails for want of a frame, and is never finalized again."""
    deepest = 0

    def look(phase, info):
        nonlocal deepest
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        deepest = max(deepest, depth)

    before = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(50)  # no depth without one otherwise
    try:
        with pytest.raises(TemplateError):
            ChatTemplate(source, TOKENIZER).render([])
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(look)
    assert deepest < 300  # of a thousand
    assert gc.isenabled()


def test_the_sum_of_all_texts(monkeypatch):
    monkeypatch.setattr(limits, "_MAX_TEXTS", 100_000)
    source = (
        "{% set ns = namespace(all=[]) %}{% for i in range(100) %}{% set ns.all = ns.all + ['x' * 10000] %}{% endfor %}"
    )
    with pytest.raises(TemplateError, match="texts of more than"):
        ChatTemplate(source, TOKENIZER).render([])


def test_what_is_computed_while_compiling_is_limited_too():
    with pytest.raises(TemplateError, match="pads"):
        ChatTemplate("{% set x = 'x' | center(1000000000) %}{{ x }}", TOKENIZER).render([])


def test_a_long_conversation_stays_far_below_the_limits():
    source = "{% for m in messages %}<{{ m.role | trim }}>{{ m.content | trim + '\n' }}{% endfor %}"
    messages = [{"role": "user", "content": "word " * 200}] * 600
    assert len(ChatTemplate(source, TOKENIZER).prompt(messages).text) > 600_000


@pytest.mark.parametrize("name", ["lipsum", "random", "pprint", "urlize", "xmlattr", "attr"])
def test_what_no_template_needs_is_not_there(name):
    with pytest.raises(TemplateError):
        ChatTemplate("{{ " + name + "() }}{{ 'x' | " + name + " }}", TOKENIZER).render([])
