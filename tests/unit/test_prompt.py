"""Prompts: the ids of earlier answers stay as they were generated, wherever that is safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.toy_engine import END, PAIR, START, ToyTemplate, ToyTokenizer
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.prompt import PromptBuilder
from tinyllm_engine.errors import TemplateError


def user(content: str, id: str = "u1") -> PromptMessage:
    return PromptMessage(id, "user", content)


def builder(template: Any = None, **options: Any) -> PromptBuilder:
    tokenizer = ToyTokenizer()
    return PromptBuilder(tokenizer, template or ToyTemplate(tokenizer, **options), "print", TemplateError)


def answered(content: str, ids: Sequence[int], fingerprint: str = "print") -> PromptMessage:
    return PromptMessage("a", "assistant", content, tuple(ids), fingerprint)


def plain_ids(*messages: PromptMessage) -> list[int]:
    contents = [{"role": message.role, "content": message.content} for message in messages]
    return ToyTemplate(ToyTokenizer()).render(contents)


@pytest.mark.parametrize(
    "answer",
    [
        answered("hello", [PAIR, *b"llo"], "another"),  # another model's
        answered("hello", [PAIR, *b"l"]),  # not what the text says
        answered("hello", [PAIR, *b"llo", 5000]),  # not in the vocabulary
        answered("hello", [-1, *b"ello"]),
        PromptMessage("a", "assistant", "hello"),
    ],
)
def test_ids_that_do_not_fit_are_not_used(answer: PromptMessage) -> None:
    messages = [user("hi"), answer, user("more", "u2")]
    assert builder().build(messages).ids == plain_ids(*messages)


def test_a_template_that_trims_keeps_the_ids() -> None:
    prompt = builder(trim=True).build([user("hi"), answered("hello\n", [PAIR, *b"llo\n"]), user("more", "u2")])
    before = plain_ids(user("hi"))
    assert prompt.ids[: len(before)] == before
    assert prompt.ids[len(before) :] == [
        PAIR,
        *b"llo\n",
        END,
        10,
        START,
        *b"user\nmore",
        END,
        10,
        START,
        *b"assistant\n",
    ]


def test_text_after_the_end_of_the_turn_is_not_taken_for_the_answer() -> None:
    """The line break behind <|im_end|> would complete the answer's text."""
    prompt = builder(trim=True).build([user("hi"), answered("he\n", [PAIR, 10]), user("more", "u2")])
    assert prompt.ids.count(END) == 3


def test_a_template_that_forgets_is_left_alone() -> None:
    class Forgetful(ToyTemplate):
        """Shows only the last message."""

        def render(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> list[int]:
            return super().render(messages[-1:], add_generation_prompt)

    messages = [user("hi"), answered("hello", [PAIR, *b"llo"]), user("more", "u2")]
    prompt = builder(Forgetful(ToyTokenizer())).build(messages)
    assert prompt.ids == plain_ids(messages[-1])
    assert sum(segment.tokens for segment in prompt.segments) == len(prompt.ids)


def test_a_long_chat_renders_only_what_is_new() -> None:
    template = ToyTemplate(ToyTokenizer())
    prompts = builder(template)
    messages = [user("0")]
    for number in range(20):
        before = len(template.rendered)
        prompt = prompts.build(messages)
        assert len(template.rendered) - before <= 2
        assert sum(segment.tokens for segment in prompt.segments) == len(prompt.ids)
        answer = PromptMessage(f"a{number}", "assistant", "hey", (PAIR, *b"y"), "print")
        assert prompts.build([*messages, answer], continue_last=True).ids == [*prompt.ids, PAIR, *b"y"]
        messages += [answer, user(str(number), f"u{number}")]
    assert prompts.build(messages).ids.count(PAIR) == 20
    assert builder().build(messages) == prompts.build(messages)  # a chat that was just loaded


def test_an_empty_answer_in_the_path_is_rendered_as_it_is() -> None:
    messages = [user("hi"), PromptMessage("a", "assistant", ""), user("more", "u2")]
    assert builder().build(messages).ids == plain_ids(*messages)
