"""Reasoning, completion, adapters, grammars, and what happens when the context is full."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.backend_events import SAMPLING, ask, events_until, finished, ids, last_state, opened, text, user
from support.toy_engine import END, PAIR, Toy, ToyModel, ToyTemplate, ToyTokenizer
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.events import (
    AnswerFinished,
    AnswerStarted,
    ContextShifted,
    Event,
    Notice,
    TextDelta,
)
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_engine.chat_template.splitter import Tags, TagSplitter

# Reasoning


def thinking(toy: Toy, open: bool = False) -> None:
    template = toy.runners[0].model.chat_template
    template.marks = SimpleNamespace(shown=frozenset({END}))
    template.splitter = TagSplitter(Tags("<think>", "</think>"), anywhere=False, open=open)


def deltas(events: list[Event], reasoning: bool) -> tuple[str, bytes]:
    chosen = [event for event in events if isinstance(event, TextDelta) and event.reasoning is reasoning]
    return text(list(chosen)), bytes(ids(list(chosen)))


def test_reasoning_comes_apart_from_the_answer(toy: Toy, backend: LocalBackend, file: Path) -> None:
    info = opened(backend, file)
    assert not info.reasons
    thinking(toy)
    toy.answer = list(b"<think>\nHm.\n</think>\n\nYes.")
    events = ask(backend, think=True)
    assert toy.runners[0].model.chat_template.think is True
    assert toy.shown == {END}
    assert deltas(events, True) == ("Hm.", b"<think>\nHm.\n</think>"[6:])
    assert deltas(events, False)[0] == "Yes."
    assert bytes(ids(events)) == b"<think>\nHm.\n</think>\n\nYes."
    assert all(event.seconds >= 0 for event in events if isinstance(event, TextDelta))


def test_reasoning_that_the_prompt_began_and_nothing_ended(toy: Toy, backend: LocalBackend, file: Path) -> None:
    opened(backend, file)
    thinking(toy, open=True)
    toy.answer = list(b"Hm. </th")
    events = ask(backend)
    assert deltas(events, True) == ("Hm. </th", b"Hm. </th")
    assert deltas(events, False) == ("", b"")


def test_a_model_whose_template_marks_reasoning(toy: Toy, backend: LocalBackend, file: Path) -> None:
    template = ToyTemplate(ToyTokenizer())
    template.marks = SimpleNamespace(shown=frozenset())
    toy.model_changes = {"template": template}
    assert opened(backend, file).reasons


def test_the_template_that_is_wanted(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(chat_template="~/x.jinja"), load=toy.api, free=lambda: None)
    opened(backend, file)
    assert toy.runners[0].model.wanted_template == os.path.expanduser("~/x.jinja")
    backend.close()


# Completion


def test_without_a_template_the_text_goes_on(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(chat_template="none"), load=toy.api, free=lambda: None)
    info = opened(backend, file)
    answer = PromptMessage("a0", "assistant", "hey", (PAIR, *b"y"), info.fingerprint)
    ask(backend, user("Oh "), answer, user("more", "u2"))
    assert toy.prompts == [[*b"Oh ", PAIR, *b"y", *b"\nmore"]]
    backend.close()


def test_adapters_are_opened_shown_and_make_another_model(toy: Toy, file: Path) -> None:
    adapter = file.with_name("pirate.gguf")
    adapter.write_bytes(b"adapter")
    fingerprints = set()
    for lora, lines in (((), ()), ((str(adapter),), ("pirate × 1",)), ((f"{adapter}:0.5",), ("pirate × 0.5",))):
        backend = LocalBackend(partial(ModelOptions, lora=lora), load=toy.api, free=lambda: None)
        info = opened(backend, file)
        assert info.adapters == lines
        assert toy.adapters == tuple((adapter, 0.5 if ":" in text else 1.0) for text in lora)
        fingerprints.add(info.fingerprint)
        backend.close()
    assert len(fingerprints) == 3


def test_a_file_without_a_template_says_so(toy: Toy, backend: LocalBackend, file: Path) -> None:
    class NoTemplate(ToyModel):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.chat_template = None
            self.template_notes = ("the file has no chat template",)

    toy.open_model = lambda path, progress, adapters: NoTemplate(path)  # type: ignore[method-assign]
    info = opened(backend, file)
    assert any("no chat template" in note for note in info.notes)
    ask(backend, user("Once"))
    assert toy.prompts == [list(b"Once")]


def test_stop_texts_and_the_grammar_reach_the_engine(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(grammar="root ::= x"), load=toy.api, free=lambda: None)
    try:
        opened(backend, file)
        ask(backend, stop=["END"])
        assert (toy.stops, toy.grammar) == (("END",), "grammar root ::= x")
    finally:
        backend.close()


# When the context is full


PROMPT = 109  # tokens of these


def turns() -> list[PromptMessage]:
    """A prompt of 109 tokens, of which the first turn has 51."""
    first = [user("a" * 20, "q1"), PromptMessage("r1", "assistant", "b" * 10)]
    return [PromptMessage("s", "system", "Be brief."), *first, user("c" * 20, "q2")]


def test_the_oldest_turns_leave_the_cache_while_the_answer_is_written(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(context_length=PROMPT + 20), load=toy.api)
    try:
        opened(backend, file)
        toy.answer = list(b"x" * 40)
        events = ask(backend, *turns(), shift=0)
        (shifted,) = [event for event in events if isinstance(event, ContextShifted)]
        assert (shifted.message_id, shifted.begin, shifted.end, shifted.tokens) == ("a1", "q1", "q2", 51)
        assert text(events) == "x" * 40
        segments = last_state(events).segments
        assert [segment.message_id for segment in segments] == ["s", "q2", "a1"]
        assert sum(segment.tokens for segment in segments) == last_state(events).used == PROMPT - 51 + 39
        # The next prompt is what is left of this one, and is found in the cache.
        answer = PromptMessage("a1", "assistant", "x" * 40)
        rest = [turns()[0], turns()[3], answer, user("d", "q3")]
        backend.answer("a2", rest, sampling=SAMPLING)
        (started,) = [event for event in events_until(backend, AnswerFinished) if isinstance(event, AnswerStarted)]
        assert started.reused_tokens == PROMPT - 51 + 39
    finally:
        backend.close()


@pytest.mark.parametrize("refusing", [True, False])
def test_where_the_cache_cannot_be_shifted_the_answer_ends(toy: Toy, file: Path, refusing: bool) -> None:
    backend = LocalBackend(lambda: ModelOptions(context_length=PROMPT + 20), load=toy.api)
    try:
        opened(backend, file)
        toy.answer = list(b"x" * 40)
        toy.runners[0].unshiftable = refusing
        events = ask(backend, *(turns() if refusing else [user("a" * 100)]), shift=0)
        assert finished(events).reason == "context_full"
        said = [event.message for event in events if isinstance(event, Notice)]
        refusal = "the context is full and cannot be shifted: m.gguf: the keys of a toy cannot be moved"
        assert said == ([refusal] if refusing else [])
    finally:
        backend.close()


def test_messages_are_measured_where_a_model_is_open(backend: LocalBackend, file: Path) -> None:
    assert backend.measure([user("hi")]) is None
    opened(backend, file)
    assert backend.measure([user("hi")]) == [21]
    assert backend.measure([user("raise")]) is None


def test_what_is_free_obeys_no_grammar(toy: Toy, file: Path) -> None:
    backend = LocalBackend(lambda: ModelOptions(grammar="root ::= [a-z]"), load=toy.api)
    try:
        opened(backend, file)
        ask(backend)
        assert toy.grammar is not None
        ask(backend, free=True)
        assert toy.grammar is None
    finally:
        backend.close()
