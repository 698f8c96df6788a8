"""generate() over a scripted sequence: what is yielded, kept, held back and counted."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine import generation
from tinyllm_engine.cancel import Cancel
from tinyllm_engine.errors import (
    CancelledError,
    ContextFullError,
    EngineError,
    GrammarError,
    NonFiniteLogitsError,
    SamplingError,
    UnsupportedModelError,
)
from tinyllm_engine.generation import Finished, PrefillProgress, Stats, Token, generate
from tinyllm_engine.sampling import SamplingParams, SharedSampling
from tinyllm_engine.tokenizer.stream import StreamDecoder

GREEDY = SamplingParams(temperature=0.0, seed=5)
PROMPT = [90, 91, 92]
EOG = 99


class Tokenizer:
    """Ids are places in a list of byte strings."""

    eog_ids = frozenset({EOG})

    def __init__(self, pieces):
        self.pieces = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]

    def stream(self, show=()):
        return StreamDecoder(lambda id: self.pieces[id])


def pieces(*texts):
    return Tokenizer([*texts, *[""] * (100 - len(texts))])


class Script:
    """A sequence that answers `answer`, in order, whatever it is asked, and records what was evaluated."""

    def __init__(self, answer, tokenizer=None, context_length=1000, cached=()):
        self.answer = list(answer)
        model = SimpleNamespace(tokenizer=tokenizer or pieces())
        self.runner = SimpleNamespace(context_length=context_length, model=model)
        self.tokens = list(cached)
        self.evaluated = []
        self.kept_at_most = 10**9
        self.before_forward = lambda: None

    def truncate(self, n):
        del self.tokens[min(n, self.kept_at_most) :]
        return len(self.tokens)

    def forward(self, ids, cancel=None):
        self.before_forward()
        if cancel.is_set():
            raise CancelledError("cancelled")
        if len(self.tokens) + len(ids) > self.runner.context_length:
            raise ContextFullError("full")
        self.tokens += ids
        self.evaluated.append(list(ids))
        drawn = sum(len(ids) for ids in self.evaluated) - len(self.evaluated[0])
        logits = np.zeros(100, np.float32)
        logits[self.answer[drawn] if drawn < len(self.answer) else EOG] = 5
        return logits


def run(script, ids=PROMPT, params=GREEDY, **options):
    events = list(generate(script, list(ids), params, **options))
    assert [type(event) for event in events].count(Finished) == 1
    assert isinstance(events[-1], Finished)
    return events


def tokens_of(events):
    return [event.id for event in events if isinstance(event, Token)]


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, Token | Finished))


# --- ends -------------------------------------------------------------------------------------------------------------


def test_the_end_token_ends_and_is_no_event():
    script = Script([1, 2], Tokenizer(["", "Hel", "lo"] + [""] * 97))
    events = run(script)
    assert tokens_of(events) == [1, 2]
    assert text_of(events) == "Hello"
    assert events[-1].reason == "eog"
    assert script.tokens == [*PROMPT, 1, 2]


def test_an_end_that_is_ignored_is_never_drawn():
    script = Script([1, EOG, 2])
    params = SamplingParams(temperature=0.0, ignore_eos=True)
    events = run(script, params=params, max_tokens=3)
    assert tokens_of(events) == [1, 0, 2]
    assert events[-1].reason == "length"


def test_tokens_that_the_file_suppresses_are_never_drawn():
    script = Script([1, 7, 2])
    script.runner.model.metadata = {"tokenizer.ggml.suppress_tokens": np.array([7, -1, 5000], np.int32)}
    assert tokens_of(run(script)) == [1, 0, 2]
    script = Script([7])
    script.runner.model.metadata = {"tokenizer.ggml.suppress_tokens": "seven"}
    assert tokens_of(run(script)) == [7]


class Spelling(Tokenizer):
    """Has what a grammar asks of a tokenizer."""

    @property
    def vocab_size(self):
        return len(self.pieces)

    def piece(self, id):
        return self.pieces[id]

    def encode(self, text, **options):
        return [0, 0]


def test_a_grammar_decides_and_ends_the_answer():
    spelling = Spelling(["", "no", "yes", "y", *[""] * 96])
    script = Script([1, 2, 3], spelling)
    events = run(script, grammar='root ::= "y" "yes"')
    assert tokens_of(events) == [3, 2]
    assert text_of(events) == "yyes"
    assert events[-1].reason == "eog"
    assert script.tokens == [*PROMPT, 3]  # what can only be followed by the end is not evaluated


def test_a_grammar_that_cannot_be_read_is_refused_at_once():
    with pytest.raises(GrammarError, match="line 1, column 10"):
        generate(Script([1], Spelling([""] * 100)), PROMPT, GREEDY, grammar="root ::= b")


def test_max_tokens_ends_without_evaluating_the_last_one():
    script = Script([1, 2, 3, 4])
    events = run(script, max_tokens=2)
    assert tokens_of(events) == [1, 2]
    assert events[-1].reason == "length"
    assert script.tokens == [*PROMPT, 1]


def test_max_tokens_zero_only_reads_the_prompt():
    script = Script([1])
    events = run(script, max_tokens=0)
    assert tokens_of(events) == []
    assert events[-1].reason == "length"
    assert script.tokens == PROMPT


def test_a_full_context_ends_after_the_token_that_found_no_room():
    script = Script([1, 2, 3, 4], context_length=4)
    events = run(script)
    assert tokens_of(events) == [1, 2]
    assert events[-1].reason == "context_full"
    assert script.tokens == [*PROMPT, 1]


def test_an_answer_goes_on_where_room_is_made():
    script = Script(range(1, 9), context_length=4)
    lengths = []

    def make_room():
        lengths.append(len(script.tokens))
        del script.tokens[:2]
        return len(lengths) < 3

    events = run(script, make_room=make_room)
    assert tokens_of(events) == [1, 2, 3, 4, 5, 6]
    assert lengths == [4, 4, 4]
    assert events[-1].reason == "context_full"


def test_a_prompt_that_just_fits_gives_one_token():
    events = run(Script([1, 2], context_length=3))
    assert tokens_of(events) == [1]
    assert events[-1].reason == "context_full"


def test_a_prompt_that_does_not_fit_changes_nothing():
    script = Script([1], context_length=2, cached=[90, 91])
    events = run(script)
    assert events == [Finished("context_full", events[-1].stats)]
    assert script.tokens == [90, 91]
    assert script.evaluated == []


def test_a_prompt_of_several_pieces_is_refused_before_the_first():
    script = Script([1], context_length=500)
    events = run(script, ids=[7] * 501)
    assert [event.reason for event in events] == ["context_full"]
    assert script.evaluated == []


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_cancelled_before_it_began():
    cancel = Cancel()
    cancel.set()
    script = Script([1], cached=[90, 5])
    events = run(script, cancel=cancel)
    assert [event.reason for event in events] == ["cancelled"]
    assert script.tokens == [90, 5]


def test_cancelled_between_two_tokens():
    cancel = Cancel()
    script = Script([1, 2, 3])
    seen = []
    for event in generate(script, PROMPT, GREEDY, cancel=cancel):
        seen.append(event)
        if isinstance(event, Token) and event.id == 2:
            cancel.set()
    assert tokens_of(seen) == [1, 2]
    assert seen[-1].reason == "cancelled"


def test_cancelled_during_an_evaluation():
    cancel = Cancel()
    script = Script([1, 2, 3])
    script.before_forward = lambda: len(script.tokens) == 5 and cancel.set()
    events = run(script, cancel=cancel)
    assert tokens_of(events) == [1, 2, 3]
    assert events[-1].reason == "cancelled"


def test_cancelled_while_the_prompt_is_read():
    cancel = Cancel()
    script = Script([1])
    script.before_forward = lambda: len(script.tokens) > 0 and cancel.set()
    events = run(script, ids=[7] * 600, cancel=cancel)
    assert events[-1].reason == "cancelled"
    assert [event.done for event in events[:-1]] == [0, 128]
    assert len(script.tokens) == 128


# --- the cached prefix ------------------------------------------------------------------------------------------------


def test_the_common_prefix_is_kept():
    script = Script([1], cached=[90, 91, 50, 51])
    events = run(script)
    assert script.evaluated[0] == [92]
    assert events[0] == PrefillProgress(2, 3, 2)
    assert events[-1].stats.reused_tokens == 2
    assert events[-1].stats.prompt_tokens == 3


@pytest.mark.parametrize("cached", [PROMPT, [*PROMPT, 1, 2]], ids=["equal", "longer"])
def test_at_least_one_token_is_evaluated(cached):
    script = Script([1, 2], cached=cached)
    events = run(script)
    assert script.evaluated[0] == [92]
    assert tokens_of(events) == [1, 2]


def test_what_the_sequence_could_not_keep_is_evaluated_again():
    script = Script([1], cached=PROMPT)
    script.kept_at_most = 1
    events = run(script)
    assert script.evaluated[0] == [91, 92]
    assert events[-1].stats.reused_tokens == 1


class GoesBackToTurns(Script):
    """A sequence of a model with recurrent layers, which keeps its state between calls of `forward`."""

    is_recurrent = True


@pytest.mark.parametrize(
    ("cached", "evaluated"), [([], [[90, 91], [92]]), ([90], [[91], [92]]), (PROMPT, [[92]]), ([90, 91, 7], [[92]])]
)
def test_a_recurrent_sequence_reads_the_last_token_of_a_prompt_apart(cached, evaluated):
    """So that another answer to the same prompt, which evaluates that token again, finds the state before it."""
    script = GoesBackToTurns([1], cached=cached)
    events = run(script, max_tokens=0)
    assert script.evaluated == evaluated
    assert [event.done for event in events if isinstance(event, PrefillProgress)][-1] == len(PROMPT)


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_whatever_was_cached_the_sequence_ends_with_the_prompt(cached, ids):
    script = Script([7, 8], cached=cached)
    events = run(script, ids=ids)
    assert script.tokens == [*ids, 7, 8]
    assert tokens_of(events) == [7, 8]
    reused = events[-1].stats.reused_tokens
    assert reused < len(ids)
    assert ids[:reused] == cached[:reused]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(1.0, [10, 138, 266, 394, 522, 650, 778, 906, 1000]), (0.01, [10, 138, 394, 906, 1000])],
    ids=["slow", "quick"],
)
def test_progress_goes_from_what_was_reused_to_all(seconds, expected, monkeypatch):
    """In pieces that grow where the machine is quick."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(generation.time, "perf_counter", lambda: clock.now)
    script = Script([1], cached=[7] * 10)
    script.before_forward = lambda: setattr(clock, "now", clock.now + seconds)
    events = run(script, ids=[7] * 1000, max_tokens=0)
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert [event.done for event in progress] == expected
    assert {(event.total, event.reused) for event in progress} == {(1000, 10)}


# --- text -------------------------------------------------------------------------------------------------------------


def test_a_character_over_several_tokens_appears_once_complete():
    smile = "🙂".encode()
    events = run(Script([0, 1, 2, 3], pieces("a", smile[:1], smile[1:3], smile[3:] + b"b")))
    assert [event.text for event in events if isinstance(event, Token)] == ["a", "", "", "🙂b"]


def test_an_incomplete_character_at_the_end_comes_with_the_last_event():
    events = run(Script([0, 1], pieces("a", "é".encode()[:1])))
    assert text_of(events) == "a\ufffd"
    assert events[-1].text == "\ufffd"


def test_a_stop_string_over_several_tokens_is_cut_off():
    events = run(Script([0, 1, 2, 3, 4], pieces("one ", "EN", "D", " two", "x")), stop=["END"])
    assert text_of(events) == "one "
    assert tokens_of(events) == [0, 1, 2]
    assert events[-1].reason == "stop"


def test_what_only_looked_like_a_stop_string_comes_later():
    events = run(Script([0, 1, 2], pieces("a<|", "x", "<")), stop=["<|end|>"])
    assert [event.text for event in events if isinstance(event, Token)] == ["a", "<|x", ""]
    assert events[-1] == Finished("eog", events[-1].stats, "<")


def test_the_first_of_several_stop_strings_counts():
    events = run(Script([0], pieces("a, b. c")), stop=[".", ",", "zzz"])
    assert text_of(events) == "a"


def test_a_stop_string_that_repeats_its_beginning():
    events = run(Script([0, 1, 2, 3], pieces("a", "a", "a", "b")), stop=["aab"])
    assert text_of(events) == "a"
    assert events[-1].reason == "stop"


@given(st.lists(st.text("ab", max_size=3), max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_text_is_that_before_the_first_stop_string(parts, stops):
    whole = "".join(parts)
    script = Script(range(len(parts)), pieces(*parts))
    events = run(script, stop=stops)
    # found as early as possible: at the shortest beginning of the text that contains one
    for end in range(len(whole) + 1):
        starts = [at for at in (whole[:end].find(stop) for stop in stops) if at >= 0]
        if starts:
            break
    if stops and starts:
        assert events[-1].reason == "stop"
        assert whole.startswith(text_of(events))
        assert not any(stop in text_of(events) for stop in stops)
    else:
        assert events[-1].reason == "eog"
        assert text_of(events) == whole


def test_without_a_tokenizer_there_are_ids_and_no_text():
    class NoTokenizer:
        @property
        def tokenizer(self):
            raise UnsupportedModelError("tokenizer.ggml.model: unknown")

    script = Script([1, EOG, 2])
    script.runner.model = NoTokenizer()
    events = run(script, max_tokens=3)
    assert tokens_of(events) == [1, EOG, 2]
    assert text_of(events) == ""
    with pytest.raises(SamplingError, match="no usable tokenizer"):
        generate(script, PROMPT, GREEDY, stop=["x"])


# --- arguments, draws, statistics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([], {}, "at least one prompt id"),
        (PROMPT, {"max_tokens": -1}, "max_tokens: expected 0 or more, found -1"),
        (PROMPT, {"stop": [""]}, "stop: expected a list of texts, none empty"),
        (PROMPT, {"stop": "END"}, "stop: expected a list of texts"),
    ],
)
def test_bad_arguments_are_refused_at_once(ids, options, message):
    script = Script([1], pieces())
    with pytest.raises(EngineError, match=message):
        generate(script, ids, GREEDY, **options)
    assert script.evaluated == []


def test_non_finite_logits_end_with_an_error():
    script = Script([1])
    script.forward = lambda ids, cancel=None: np.full(100, np.nan, np.float32)
    with pytest.raises(NonFiniteLogitsError, match="100 of 100"):
        list(generate(script, PROMPT, GREEDY))


def test_a_change_of_sampling_holds_from_the_next_token_on():
    shared = SharedSampling(SamplingParams(temperature=0.0, seed=1))
    script = Script([1] * 60)
    seen = []
    for event in generate(script, PROMPT, shared, max_tokens=60):
        if isinstance(event, Token):
            seen.append(event.id)
            if len(seen) == 20:
                shared.update(temperature=50.0, top_k=0, top_p=1.0, min_p=0.0)
    assert seen[:20] == [1] * 20
    assert len(set(seen[20:])) > 10


def test_penalties_know_the_prompt_and_what_was_written():
    script = Script([1, 1, 1], cached=[])
    params = SamplingParams(temperature=0.0, seed=1, presence_penalty=50.0)
    assert tokens_of(run(script, ids=[0, 2], params=params, max_tokens=3)) == [1, 3, 4]


def test_ten_runs_of_a_seed_write_the_same():
    def write(seed):
        params = SamplingParams(temperature=3.0, seed=seed, top_k=0, top_p=1.0, min_p=0.0)
        return tuple(tokens_of(run(Script([5] * 40), params=params, max_tokens=40)))

    assert len({write(7) for _ in range(10)}) == 1
    assert write(7) != write(8)


def test_statistics(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(generation.time, "perf_counter", lambda: clock.now)
    script = Script([1, 2, 3], pieces("a", "b", "c", "d"))
    script.before_forward = lambda: setattr(clock, "now", clock.now + 2.0)
    events = []
    for event in generate(script, PROMPT, GREEDY):
        events.append(event)
        clock.now += 100.0  # the caller's time
    assert events[-1].stats == Stats(
        prompt_tokens=3,
        reused_tokens=0,
        generated_tokens=3,
        prefill_seconds=2.0,
        decode_seconds=4.0,
        first_token_seconds=2.0,
        seed=5,
    )


def test_the_seed_that_was_drawn_is_reported():
    params = SamplingParams()
    seeds = {run(Script([1]), params=params, max_tokens=1)[-1].stats.seed for _ in range(5)}
    assert len(seeds) == 5
    assert [run(Script([1]), params=SamplingParams(seed=s), max_tokens=1)[-1].stats.seed for s in seeds] == list(seeds)


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ([90, 91, 92], "\ufffdok"),  # nothing to complete: a byte that belongs nowhere
        ([90, 93, 94], "😀ok"),
        ([95, 93, 94], "😀ok"),
        ([90, 93, 92], "\ufffdok"),
    ],
)
def test_a_character_that_the_prompt_leaves_incomplete_is_completed(prompt, text):
    """An answer that is written on may end in the middle of one."""
    own = {1: b"\x80", 2: b"ok", 92: b"a", 93: b"\xf0\x9f", 94: b"\x98", 95: b"\xe2"}
    script = Script([1, 2], Tokenizer([own.get(id, b"") for id in range(100)]))
    assert text_of(run(script, prompt)) == text
