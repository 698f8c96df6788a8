"""Which tokens may come next: parts of characters, tokens named as such, and where an answer may end."""

import numpy as np
import pytest
from tinyllm_engine.errors import GrammarError
from tinyllm_engine.grammar import Grammar, constraint
from tinyllm_engine.grammar.pieces import trie_of
from tinyllm_engine.sampling import Sampler, SamplingParams


class Vocabulary:
    """A token for each text; those in brackets of < > are control tokens without a piece, the last one ends answers."""

    def __init__(self, *texts):
        self.texts = [*texts, "<end>"]
        self.vocab_size = len(self.texts)
        self.eog_ids = frozenset({self.vocab_size - 1})

    def piece(self, id):
        text = self.texts[id]
        return b"" if str(text).startswith("<") else text if isinstance(text, bytes) else text.encode()

    def encode(self, text, parse_special, add_bos):
        return [self.texts.index(text)] if text in self.texts else [0, 0]

    @property
    def end(self):
        return self.vocab_size - 1


def allowed(at, vocabulary):
    mask = at.mask()
    assert mask.size == vocabulary.vocab_size
    assert mask.tolist() == [at.allows(id) for id in range(vocabulary.vocab_size)]
    return [vocabulary.texts[id] for id in np.flatnonzero(mask)]


def test_tokens_that_the_grammar_can_follow_are_allowed():
    vocabulary = Vocabulary("y", "ye", "yes", "yess", "n", "no", "es", "s", "", "<x>")
    at = Grammar('root ::= "yes" | "no"', vocabulary).constraint()
    assert allowed(at, vocabulary) == ["y", "ye", "yes", "n", "no"]
    at.accept(1)
    assert allowed(at, vocabulary) == ["s"]
    assert not at.is_over
    at.accept(7)
    assert allowed(at, vocabulary) == ["<end>"]
    assert at.is_over


def test_an_answer_ends_only_where_it_is_complete():
    vocabulary = Vocabulary("a", "b")
    at = Grammar('root ::= "ab"+', vocabulary).constraint()
    assert allowed(at, vocabulary) == ["a"]
    at.accept(0)
    at.accept(1)
    assert allowed(at, vocabulary) == ["a", "<end>"]
    assert not at.is_over
    at.accept(vocabulary.end)
    assert at.is_over


def test_a_character_may_be_spread_over_tokens():
    smile = "🙂".encode()
    vocabulary = Vocabulary("a", "🙂a", smile[:2], smile[2:], smile[2:] + b"a", b"\xff", "é", smile[:1], "🙃")
    at = Grammar('root ::= "🙂" "a"', vocabulary).constraint()
    assert allowed(at, vocabulary) == ["🙂a", smile[:2], smile[:1]]
    at.accept(2)
    assert allowed(at, vocabulary) == [smile[2:], smile[2:] + b"a"]
    at.accept(3)
    assert allowed(at, vocabulary) == ["a"]


def test_tokens_can_be_named():
    vocabulary = Vocabulary("a", "<think>", "</think>", "b")
    at = Grammar("root ::= <think> !<[2]>* </think> [a-z]", vocabulary).constraint()
    assert allowed(at, vocabulary) == ["<think>"]
    at.accept(1)
    assert allowed(at, vocabulary) == ["a", "<think>", "</think>", "b"]
    at.accept(0)
    at.accept(2)
    assert allowed(at, vocabulary) == ["a", "b"]


def test_where_no_token_fits_it_is_said():
    at = Grammar('root ::= "x"', Vocabulary("a")).constraint()
    with pytest.raises(GrammarError, match="grammar: no token of the vocabulary can come next"):
        at.mask()


def test_masks_are_kept_and_the_trie_is_built_once(monkeypatch):
    vocabulary = Vocabulary("a", "b")
    grammar = Grammar('root ::= "a"*', vocabulary)
    monkeypatch.setattr(constraint, "trie_of", None)
    assert Grammar('root ::= "b"*', vocabulary).pieces is grammar.pieces
    at = grammar.constraint()
    mask = at.mask()
    at.accept(0)
    assert at.mask() is mask


def test_two_answers_do_not_disturb_each_other():
    vocabulary = Vocabulary("a", "b")
    grammar = Grammar('root ::= "ab"', vocabulary)
    one, other = grammar.constraint(), grammar.constraint()
    one.accept(0)
    assert allowed(other, vocabulary) == ["a"]
    assert allowed(one, vocabulary) == ["b"]


def test_long_answers_keep_memory_bounded(monkeypatch):
    monkeypatch.setattr("tinyllm_engine.grammar.automaton.MOST_CONFIGURATIONS", 10)
    vocabulary = Vocabulary("[", "]", ",")
    at = Grammar('root ::= "[" (root ("," root)*)? "]"', vocabulary).constraint()
    for _ in range(60):
        at.accept(0)
    for _ in range(59):
        assert allowed(at, vocabulary)[-1] in ("]", ",")
        at.accept(1)
    assert allowed(at, vocabulary) == ["]", ","]
    at.accept(1)
    assert at.is_over


def test_a_trie_holds_all_beginnings():
    pieces = [b"", b"ab", b"a", b"b", b"abc", b"ab", b"\xff"]
    trie = trie_of(pieces)
    assert trie.last_byte.size == 6  # the empty one, a, b, \xff, ab, abc
    for id, piece in enumerate(pieces):
        node = 0
        for byte in piece:
            first, count = int(trie.first_child[node]), int(trie.children[node])
            node = first + trie.last_byte[first : first + count].tolist().index(byte)
        assert trie.node[id] == node
    assert trie_of([]).last_byte.size == 1


def test_a_sampler_obeys():
    vocabulary = Vocabulary("a", "b", "1", "2")
    raw = np.array([9, 8, 1, 0.5, 3], np.float32)
    for seed in range(20):
        grammar = Grammar('root ::= "a" [0-9]{1,3}', vocabulary)
        sampler = Sampler(SamplingParams(seed=seed), vocabulary, constraint=grammar.constraint())
        text, id = "", -1
        while id != vocabulary.end:
            id, _ = sampler.sample(raw, [])
            text += vocabulary.texts[id]
            assert len(text) < 20
        assert text[0] == "a"
        assert text[1:-5].isdigit()
