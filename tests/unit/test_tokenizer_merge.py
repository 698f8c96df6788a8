"""The merge loop against the plainest way to say the same, and the words that text is cut into."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from support.tiny_vocabularies import byte_level
from tinyllm_engine.tokenizer import Tokenizer
from tinyllm_engine.tokenizer.merge import merge_pairs
from tinyllm_engine.tokenizer.word_cache import WordCache

LETTERS = "abc"
RANKS = st.dictionaries(
    st.tuples(st.text(LETTERS, min_size=1, max_size=3), st.text(LETTERS, min_size=1, max_size=3)), st.integers(0, 4)
)


def merge_plainly(symbols, rank):
    symbols = list(symbols)
    while True:
        ranks = [rank(left, right) for left, right in pairwise(symbols)]
        known = [(value, at) for at, value in enumerate(ranks) if value is not None]
        if not known:
            return symbols
        at = min(known)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@given(st.text(LETTERS, max_size=30), RANKS)
def test_the_best_pair_joins_first_and_of_equals_the_leftmost(text, ranks):
    def rank(left, right):
        return ranks.get((left, right))

    assert merge_pairs(list(text), rank) == merge_plainly(text, rank)


@given(st.text(LETTERS, max_size=30), st.dictionaries(st.text(LETTERS, min_size=2, max_size=4), st.floats(-3, 3)))
def test_ranks_of_what_is_made(text, costs):
    def rank(left, right):
        return costs.get(left + right)

    assert merge_pairs(list(text), rank) == merge_plainly(text, rank)


def test_a_long_word_takes_no_more_than_n_log_n_steps():
    calls = 0

    def rank(left, right):
        nonlocal calls
        calls += 1
        return len(left) if len(left) == len(right) else None

    assert [len(part) for part in merge_pairs(list("a" * 4096), rank)] == [4096]
    assert calls < 10 * 4096


def test_the_cache_forgets_rather_than_grows(monkeypatch):
    monkeypatch.setattr("tinyllm_engine.tokenizer.word_cache._WORDS", 10)
    encoded = []
    cache = WordCache(lambda word: encoded.append(word) or [len(word)])
    for number in range(25):
        assert cache[str(number)] == [len(str(number))]
        assert len(cache) <= 10
    assert cache["x" * 1000] == [1000]
    assert "x" * 1000 not in cache


def test_what_callers_do_with_ids_does_not_reach_the_cache():
    tokenizer = Tokenizer.from_metadata(byte_level(["a b"]))
    tokenizer.encode("ab").clear()
    assert tokenizer.encode("ab") == [256]
