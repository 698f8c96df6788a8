"""DRY: what repeats, how long, and what a repetition does not reach over."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine.sampling import Sampler, SamplingParams
from tinyllm_engine.sampling.dry import find_breakers, penalty_of, repetitions, suffix_lengths


def found(tokens, breakers=None, **params):
    return repetitions(tokens, SamplingParams(**{"dry_penalty_last_n": -1, **params}), breakers or {})


def test_what_would_go_on_is_found_with_its_longest_repetition():
    #         a  b  c  c  b  c  y  a  b  c
    tokens = [1, 2, 3, 3, 2, 3, 9, 1, 2, 3]
    assert suffix_lengths(np.array(tokens), 99).tolist() == [0, 0, 3, 1, 0, 2, 0, 0, 0]
    assert found(tokens) == {3: 3, 9: 2}
    assert found(tokens, dry_allowed_length=1) == {3: 3, 2: 1, 9: 2}
    assert found(tokens, dry_allowed_length=3) == {3: 3}
    assert found(tokens, dry_allowed_length=4) == {}


@pytest.mark.parametrize(("last_n", "expected"), [(10, {3: 3, 9: 2}), (9, {3: 2, 9: 2}), (5, {}), (2, {})])
def test_only_the_last_n_tokens_are_searched(last_n, expected):
    assert found([1, 2, 3, 3, 2, 3, 9, 1, 2, 3], dry_penalty_last_n=last_n) == expected


def test_a_breaker_ends_the_reach_and_is_never_penalized():
    tokens = [1, 2, 3, 4, 1, 2, 3]
    assert found(tokens) == {4: 3}
    assert found(tokens, {1: ((),)}) == {4: 2}
    assert found(tokens, {2: ((),)}) == {}
    assert found(tokens, {4: ((),)}) == {}


def test_a_breaker_of_several_tokens_counts_where_it_is_complete():
    tokens = [1, 2, 3, 4, 1, 2, 3]
    assert found(tokens, {1: ((2,),)}, dry_allowed_length=1) == {4: 1}
    assert found(tokens, {1: ((3,), (7, 8))}, dry_allowed_length=1) == {4: 3}
    assert found(tokens, {3: ((4,),)}, dry_allowed_length=1) == {4: 3}  # 4 has not followed yet
    assert found(tokens, {4: ((1,),)}) == {4: 2}  # as a beginning only it may be penalized


@given(st.lists(st.integers(0, 3), min_size=3, max_size=40), st.integers(1, 50))
def test_lengths_agree_with_their_definition(tokens, limit):
    lengths = suffix_lengths(np.array(tokens), limit)
    for place, length in enumerate(lengths.tolist()):
        seen = tokens[: place + 1]
        expected = max(n for n in range(len(seen) + 1) if n <= limit and seen[len(seen) - n :] == tokens[-n:][:n])
        assert length == expected


def test_the_penalty_grows_with_the_length_and_stays_finite():
    params = SamplingParams(dry_multiplier=0.5, dry_base=2.0, dry_allowed_length=2)
    assert [penalty_of(length, params) for length in (2, 3, 5)] == [0.5, 1.0, 4.0]
    assert np.isfinite(np.float32(penalty_of(100_000, params)))
    flat = SamplingParams(dry_multiplier=0.5, dry_base=1.0)
    assert penalty_of(100_000, flat) == 0.5


def test_a_long_loop_is_quick_and_ends():
    tokens = [7] * 30_000
    assert found(tokens, dry_base=1.75) == {7: 2 + 158}


def vocabulary(*pieces):
    pieces = [piece.encode() for piece in pieces]
    spelled = {piece: id for id, piece in enumerate(pieces)}
    return SimpleNamespace(
        vocab_size=len(pieces),
        piece=lambda id: pieces[id],
        encode=lambda text, add_bos: [spelled[character.encode()] for character in text],
        eog_ids=frozenset(),
    )


def test_breakers_are_found_inside_and_across_tokens():
    tokenizer = vocabulary("a", "b", "c", "xa", "xab", "ab", "abc", "za b", "")
    assert find_breakers(tokenizer, ["b"]) == {1: ((),), 4: ((),), 5: ((),), 6: ((),), 7: ((),)}
    assert find_breakers(tokenizer, ["abc"]) == {0: ((1, 2),), 3: ((1, 2),), 4: ((2,),), 5: ((2,),), 6: ((),)}
    assert find_breakers(tokenizer, ["ab", "b", ""]) == {
        0: ((1,),),
        1: ((),),
        3: ((1,),),
        **dict.fromkeys((4, 5, 6, 7), ((),)),
    }


def test_a_long_breaker_is_cut():
    tokenizer = vocabulary("a", "b")
    tails = find_breakers(tokenizer, ["a" * 30 + "b" * 30])
    assert len(max(tails[0], key=len)) == 20
    assert find_breakers(tokenizer, ["a" * 30 + "b" * 30]) == find_breakers(tokenizer, ["a" * 30 + "b" * 10])


def test_the_sampler_finds_its_breakers_in_the_vocabulary():
    tokenizer = vocabulary("a", "b", "c", ".")
    raw = np.array([0, 0, 1, 0.9], np.float32)
    tokens = [0, 1, 2, 3, 0, 1]
    greedy = {"temperature": 0.0, "dry_multiplier": 1.0}
    assert Sampler(SamplingParams(**greedy)).sample(raw, tokens)[0] == 3
    assert Sampler(SamplingParams(**greedy, dry_sequence_breakers=["b"]), tokenizer).sample(raw, tokens)[0] == 2
    assert Sampler(SamplingParams(**greedy, dry_sequence_breakers=["."]), tokenizer).sample(raw, tokens)[0] == 3
