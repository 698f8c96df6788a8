"""GBNF: what is read, what is refused, and what texts a grammar allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine.errors import GrammarError
from tinyllm_engine.grammar.automaton import NOWHERE, Automaton
from tinyllm_engine.grammar.gbnf import parse_gbnf
from tinyllm_engine.grammar.rules import complement, normalized
from tinyllm_engine.grammar.utf8 import DEAD, DONE, byte_automaton


def accepts(automaton, text):
    data = text.encode() if isinstance(text, str) else text
    return automaton.is_complete(automaton.after_bytes(automaton.start, data))


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "ye", "yesno", "maybe"]),
        ('root ::= "a"*', ["", "a", "aaa"], ["b", "ab"]),
        ('root ::= "a"+ "b"?', ["a", "aab"], ["", "b", "abb"]),
        ('root ::= "ab"{2}', ["abab"], ["ab", "abb", "ababab"]),
        ('root ::= "x"{2,}', ["xx", "x" * 40], ["", "x"]),
        ('root ::= "x"{2,4} "y"', ["xxy", "xxxxy"], ["xy", "xxxxxy"]),
        ('root ::= "x"{0} "y"', ["y"], ["xy"]),
        ('root ::= ("a" | "b" [0-9]){1,2}', ["a", "ab1", "b1b2"], ["", "b", "aaa"]),
        ('root ::= ("a"*)* "b"', ["b", "aab"], ["a"]),
        ('root ::= ("a"?){2,3} "b"', ["b", "ab", "aaab"], ["aaaab"]),
        ('root ::= "(" root ")" |', ["", "()", "((()))"], ["(", "())"]),
        ("root ::= [^a-c\\]] [-x]", ["d-", "ex", "日x"], ["ax", "]x", "dd", "\0x"]),
        ("root ::= .", ["a", "\n", "é", "🙂"], ["", "ab", "\0"]),
        ('root ::= "\\x41\\u00e9\\U0001F642\\n\\"\\\\"', ['Aé🙂\n"\\'], ["A"]),
        ('root ::= [é-ü] | "日"', ["é", "ü", "日"], ["e", "ý", "本"]),
        (
            "# arithmetic\nroot ::= sum # all\nsum ::= term (op term)*\n"
            'term ::= [0-9]+ |\n  "(" sum ")"\nop ::= [-+*/]\n',
            ["1", "1+22", "(1+2)*3", "((7))"],
            ["", "+", "1+", "(1"],
        ),
        ('root ::= a\na ::= ("x"\n  "y") "z"', ["xyz"], ["xy"]),
        ('\r\nroot ::= a\r\na ::= "x"\r\n', ["x"], ["xx"]),
    ],
)
def test_texts(grammar, right, wrong):
    automaton = Automaton(parse_gbnf(grammar))
    for text in right:
        assert accepts(automaton, text), text
    for text in wrong:
        assert not accepts(automaton, text), text


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "grammar: expected a rule named root, found none"),
        ('a ::= "x"', "grammar: expected a rule named root, found none"),
        ("root ::= b", "grammar: line 1, column 10: there is no rule 'b'"),
        ('root = "a"', "grammar: line 1, column 6: expected ::="),
        ('root ::= "a" )', "grammar: line 1, column 14: expected the end of the line"),
        ('root ::= "a', "line 1, column 12: unexpected end"),
        ('root ::= ("a"', r"line 1, column 14: expected \)"),
        ("root ::= [a", "unexpected end"),
        ("root ::= []", "expected at least one character"),
        ("root ::= [z-a]", "expected a range from a lower to a higher character"),
        ("root ::= *", "expected something to repeat"),
        ('root ::= "a"{3,2}', "expected from a lower to a higher number"),
        ('root ::= "a"{x}', "expected a number"),
        ('root ::= "a"{2000000}', "both at most 1000000"),
        ('root ::= "\\q"', "unknown escape"),
        ('root ::= "\\x4"', "expected 2 hexadecimal digits"),
        ('root ::= "\\uD800"', r"U\+D800 is no character"),
        ("root ::= <foo>", "'<foo>' is not one token of the vocabulary"),
        ("root ::= <foo", "expected >"),
        ('\nroot ::= "a"\n  ]', "line 3, column 3: expected the name of a rule"),
        ('root ::= root "a" | "b"', "grammar: the rule 'root' begins with itself"),
        ('root ::= a\na ::= b? c\nb ::= "x"\nc ::= a "y" | "z"', "begins with itself"),
        ("root ::= root", "begins with itself"),
        ('root ::= ("x"? root)*', "begins with itself"),
        ("root ::= " + "(" * 65 + '"a"' + ")" * 65, "at most 64 parentheses"),
        ("root ::= " + '"a" ' * 100_001, "more than 100000 items"),
        ("#" * (1 << 20) + "#", "expected at most 1048576 characters"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(grammar, message):
    with pytest.raises(GrammarError, match=message) as caught:
        parse_gbnf(grammar)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet='root:=ab "[]()|*+?{}\\<>!^-#\n1,', max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        automaton = Automaton(parse_gbnf(text))
    except GrammarError:
        return
    automaton.after_bytes(automaton.start, b"abab")


def test_a_grammar_with_too_many_meanings_is_refused():
    rules = "root ::= a1 | a1\n" + "".join(f"a{i} ::= a{i + 1} b? a{i + 1}? | a{i + 1} c\n" for i in range(1, 40))
    text = rules + 'a40 ::= "x"\nb ::= "x"\nc ::= "x"\n'

    def read():
        automaton = Automaton(parse_gbnf(text))
        automaton.after_bytes(automaton.start, b"x" * 50)

    with pytest.raises(GrammarError, match="it is too ambiguous"):
        read()


def test_large_counts_take_no_room():
    automaton = Automaton(parse_gbnf('root ::= "[" [a-z]{3,900000} "]"'))
    assert accepts(automaton, "[" + "x" * 3000 + "]")
    assert not accepts(automaton, "[xx]")
    nullable = Automaton(parse_gbnf('root ::= ("a"?){900000} "b"'))
    assert accepts(nullable, "aab")


def test_memory_is_bounded_and_what_was_read_stays():
    automaton = Automaton(parse_gbnf('root ::= "[" (root ("," root)*)? "]"'))
    at = automaton.start
    for _ in range(40):
        at = automaton.after_bytes(at, b"[[],")
        at = automaton.shrink(at)
        assert len(automaton._configuration_list) < 10
    assert not automaton.is_complete(at)
    assert automaton.is_complete(automaton.after_bytes(at, b"[]" + b"]" * 40))


# --- characters as bytes ----------------------------------------------------------------------------------------------

code_points = st.integers(0, 0x10FFFF)


@given(st.lists(st.tuples(code_points, code_points).map(sorted).map(tuple), min_size=1, max_size=4), code_points)
def test_bytes_lead_to_exactly_the_characters_of_a_set(ranges, other):
    ranges = normalized(ranges)
    table = byte_automaton(ranges)
    for code in {other, *(end + step for pair in ranges for end in pair for step in (-1, 0, 1))}:
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            continue
        state = 0
        for byte in chr(code).encode():
            assert state != DONE
            state = int(table[state, byte])
            if state == DEAD:
                break
        assert (state == DONE) == any(low <= code <= high for low, high in ranges)


@given(st.binary(min_size=1, max_size=5))
def test_only_utf_8_is_text(data):
    automaton = Automaton(parse_gbnf("root ::= .*"))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        assert not accepts(automaton, data)
    else:
        assert accepts(automaton, data) == ("\0" not in text)


def test_sets_of_characters():
    assert normalized([(5, 9), (1, 3), (4, 4), (7, 20)]) == ((1, 20),)
    assert normalized([(0xD7FF, 0xE000)]) == ((0xD7FF, 0xD7FF), (0xE000, 0xE000))
    assert complement(((1, 0x10FFFF),)) == ()
    assert complement(((0, 64), (91, 0x10FFFF))) == ((65, 90),)
    assert Automaton(parse_gbnf('root ::= "a"')).after_bytes(NOWHERE, b"a") == NOWHERE
