"""Prompts: what the template is asked, and whose tokens are whose."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.toy_engine import END, PAIR, START, ToyTemplate, ToyTokenizer
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.prompt import PromptBuilder

FIRST = [START, *b"user\nhi", END, 10, START, *b"assistant\n"]


def user(content: str, id: str = "u1") -> PromptMessage:
    return PromptMessage(id, "user", content)


def answered(content: str, ids: Sequence[int], fingerprint: str = "print") -> PromptMessage:
    return PromptMessage("a", "assistant", content, tuple(ids), fingerprint)


def builder(template: Any = None) -> PromptBuilder:
    tokenizer = ToyTokenizer()
    return PromptBuilder(tokenizer, template or ToyTemplate(tokenizer), "print")


def completion() -> PromptBuilder:
    return PromptBuilder(ToyTokenizer(), None, "print")


def test_the_template_sees_the_messages() -> None:
    template = ToyTemplate(ToyTokenizer())
    prompt = builder(template).build([PromptMessage("s", "system", "be brief"), user("hi")])
    assert template.seen == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert prompt.ids == [START, *b"system\nbe brief", END, 10, *FIRST]


def test_the_template_sees_what_was_thought() -> None:
    template = ToyTemplate(ToyTokenizer())
    template.splitter = object()
    thought = PromptMessage("a", "assistant", "hello", reasoning="Hm.")
    prompt = builder(template).build([user("hi"), thought, user("more", "u2")], think=False)
    assert template.seen[1] == {"role": "assistant", "content": "hello", "reasoning_content": "Hm."}
    assert template.think is False
    assert prompt.splitter is template.splitter


def test_tokens_that_a_splitter_has_to_see() -> None:
    template = ToyTemplate(ToyTokenizer())
    assert builder(template).shown_ids == completion().shown_ids == frozenset()
    template.marks = SimpleNamespace(shown=frozenset({END}))
    assert builder(template).shown_ids == {END}


def test_recorded_ids_take_the_place_of_the_text() -> None:
    prompt = builder().build([user("hi"), answered("hello", [PAIR, *b"llo"]), user("more", "u2")])
    rest = [END, 10, START, *b"user\nmore", END, 10, START, *b"assistant\n"]
    assert prompt.ids == [*FIRST, PAIR, *b"llo", *rest]


def test_the_ids_of_another_model_are_not_offered() -> None:
    template = ToyTemplate(ToyTokenizer())
    builder(template).build([user("hi"), answered("hello", [PAIR, *b"llo"], "another"), user("more", "u2")])
    assert template.seen[1] == {"role": "assistant", "content": "hello"}


def test_an_answer_that_ends_inside_a_character_keeps_its_ids() -> None:
    ids = [*b"caf", *"é".encode()[:1]]
    assert builder().build([user("hi"), answered("caf\ufffd", ids)], continue_last=True).ids == [*FIRST, *ids]


def test_continuing_ends_inside_the_last_message() -> None:
    prompt = builder().build([user("hi"), answered("hel", [PAIR, *b"l"])], continue_last=True)
    assert prompt.ids == [*FIRST, PAIR, *b"l"]
    assert (prompt.segments[-1].message_id, prompt.segments[-1].tokens) == ("a", 2)


def test_every_token_belongs_to_a_message() -> None:
    messages = [user("hi"), answered("hello", [PAIR, *b"llo"]), user("more", "u2")]
    prompt = builder().build(messages)
    counts = {message.id: 0 for message in messages}
    for segment in prompt.segments:
        counts[segment.message_id] += segment.tokens
    end, header, answer_header = 2, len(b"user\n") + 1, len(b"assistant\n") + 1
    assert counts == {
        "u1": header + 2 + end + answer_header,
        "a": 4 + end + header,
        "u2": 4 + end + answer_header,
    }
    assert sum(segment.tokens for segment in prompt.segments) == len(prompt.ids)


def test_what_had_to_be_changed_is_told_once() -> None:
    template = ToyTemplate(ToyTokenizer())
    template.notes = ("no system message",)
    prompts = builder(template)
    assert prompts.untold(prompts.build([user("hi")]).notes) == ["no system message"]
    template.notes = ("no system message", "turns were joined")
    assert prompts.untold(prompts.build([user("hi")]).notes) == ["turns were joined"]
    assert prompts.untold(prompts.build([user("hi")]).notes) == []


def test_without_a_template_messages_follow_each_other_as_text() -> None:
    messages = [user("Oh "), answered("hey", [PAIR, *b"y"]), user("more", "u2")]
    prompt = completion().build(messages)
    assert prompt.ids == [*b"Oh ", PAIR, *b"y", *b"\nmore"]
    assert [segment.tokens for segment in prompt.segments] == [3, 2, 5]


@pytest.mark.parametrize("content", ["he", "he\ufffd"])
def test_without_a_template_an_answer_may_end_within_a_character(content: str) -> None:
    ids = [PAIR, "é".encode()[0]]
    assert completion().build([user("Oh "), answered(content, ids)]).ids == [*b"Oh ", *ids]


@pytest.mark.parametrize(
    "answer",
    [
        answered("hello", [PAIR, *b"llo"], "another"),  # another model's
        answered("hello", [PAIR, *b"l"]),  # not what the text says
        answered("hello", [PAIR, *b"llo", 5000]),  # not in the vocabulary
        answered("hello", [-1, *b"ello"]),
        answered("hello", [PAIR, *b"llo", END]),  # hides a control token
        PromptMessage("a", "assistant", "hello"),
    ],
)
def test_without_a_template_ids_that_do_not_fit_are_not_used(answer: PromptMessage) -> None:
    assert completion().build([user("hi"), answer]).ids == list(b"hihello")


def test_a_prompt_that_was_measured_is_not_built_again() -> None:
    template = ToyTemplate(ToyTokenizer())
    prompts = builder(template)
    messages = [PromptMessage("s", "system", "Be brief."), user("hi")]
    # The template's tokens before a message count with the one before; the last has those that ask for the answer.
    assert prompts.measure(messages) == [8 + 9 + 2 + 6, 2 + 2 + 11]
    template.seen = []
    prompt = prompts.build(messages)
    assert sum(prompt.tokens_of(messages)) == len(prompt.ids) == 40
    assert template.seen == []
    prompts.build(messages)
    assert len(template.seen) == 2
    prompts.measure(messages)
    assert len(prompts.build(messages, think=False).ids) == 40
    assert template.think is False
