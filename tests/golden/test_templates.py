"""Real chat templates: rendered as plain Jinja does, with every character's origin known."""

import datetime
from functools import cache

import pytest
from support.plain_jinja import RefusedByTemplate, render_plainly
from support.tiny_vocabularies import CONTROL, USER_DEFINED, byte_level
from support.vocabularies import shared_golden, without_golden
from tinyllm_engine.chat_template import ChatTemplate, environment
from tinyllm_engine.tokenizer import Tokenizer

FOLDER = shared_golden("templates")
pytestmark = [pytest.mark.golden, pytest.mark.skipif(FOLDER is None, reason=without_golden("templates"))]

NAMES = [
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "HuggingFaceTB-SmolLM3-3B",
    "LFM2.5-Instruct",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "openai-gpt-oss-120b",
]
# What the templates write as control tokens, as far as they are in such brackets, and what is easily taken for one.
SPECIAL = dict.fromkeys(("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "[INST]"), CONTROL)
SPECIAL |= dict.fromkeys(("<|user|>", "<|start|>", "<start_of_turn>", "<think>", "\n\n"), USER_DEFINED)
TOKENIZER = Tokenizer.from_metadata(byte_level(["Ġ Ġ", "t h", "th e"], SPECIAL, bos_token_id=259, eos_token_id=260))
SPECIAL_TEXTS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "", "pad_token": ""}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "①name",
            "description": "②does",
            "parameters": {"type": "object", "properties": {"③key": {"type": "string", "description": "④is"}}},
        },
    }
]
VARIABLES = [
    {},
    {"tools": TOOLS},
    {"enable_thinking": False},
    {"tools": TOOLS, "documents": [{"title": "⑤", "text": "⑥"}]},
]


class FixedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 4)


@pytest.fixture(autouse=True)
def today(monkeypatch):
    monkeypatch.setattr(environment, "datetime", FixedDay)


@cache
def source(name):
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


def content(number, dressing):
    """Characters that no template writes, unlike those of any other message."""
    return dressing.replace("X", "".join(chr(0x2460 + 11 * number + offset) for offset in range(11)))


def conversations(dressing):
    for first in (0, 1):
        for turns in (1, 2, 3, 5):
            roles = ["system", *["user", "assistant"] * 3][1 - first : 1 + turns]
            yield [{"role": role, "content": content(number, dressing)} for number, role in enumerate(roles)]


def is_content(char):
    return "\u2460" <= char <= "\u24ff"


@pytest.mark.parametrize("dressing", ["X", "  X\n", "<think>\n①\n</think>\n\nX"])
@pytest.mark.parametrize("variables", VARIABLES, ids=lambda variables: "".join(variables) or "plain")
@pytest.mark.parametrize("name", NAMES)
def test_text_and_marks(name, variables, dressing):
    chat = ChatTemplate(source(name), TOKENIZER)
    rendered = 0
    for messages in conversations(dressing):
        for add_generation_prompt in (True, False):
            known = {**SPECIAL_TEXTS, **variables, "add_generation_prompt": add_generation_prompt}
            try:
                expected = render_plainly(
                    source(name), messages=messages, strftime_now=FixedDay.now().strftime, **known
                )
            except RefusedByTemplate:
                continue
            prompt = chat.prompt(messages, add_generation_prompt, **variables)
            assert str.__str__(prompt.text) == expected
            assert all(mark != "\0" for char, mark in zip(expected, prompt.text.marks, strict=True) if is_content(char))
            if dressing == "X" and not variables:
                assert [mark != "\0" for mark in prompt.text.marks] == [is_content(char) for char in expected]
            if not prompt.notes:
                own = {message["content"].strip()[-1]: index + 2 for index, message in enumerate(messages)}
                assert all(
                    ord(mark) == own.get(char, ord(mark))
                    for char, mark in zip(expected, prompt.text.marks, strict=True)
                )
            rendered += 1
    assert rendered >= 8


def test_a_template_that_refuses_a_system_message_gets_it_with_the_user_message():
    chat = ChatTemplate(source("google-gemma-2-2b-it"), TOKENIZER)
    system, user = content(0, "X"), content(1, "X")
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    with pytest.raises(RefusedByTemplate):
        render_plainly(source("google-gemma-2-2b-it"), messages=messages, **SPECIAL_TEXTS)
    prompt = chat.prompt(messages)
    assert f"<start_of_turn>user\n{system}\n\n{user}<end_of_turn>\n" in prompt.text
    assert len(prompt.notes) == 1


@pytest.mark.parametrize("name", NAMES)
def test_special_texts_as_content_stay_text(name):
    chat = ChatTemplate(source(name), TOKENIZER)

    def markers(text):
        ids = chat.render([{"role": role, "content": text} for role in ("user", "assistant", "user")])
        return [id for id in ids if TOKENIZER.is_marker(id)]

    for text in [*SPECIAL, "".join(SPECIAL), "\n".join(SPECIAL)]:
        assert markers(text) == markers("x")


@pytest.mark.parametrize("name", NAMES)
def test_harmless_content_gives_the_ids_of_joint_tokenization(name):
    chat = ChatTemplate(source(name), TOKENIZER)
    for text in ("the  end", " the\n\n  the ", "é 🙂\t漢"):
        prompt = chat.prompt([{"role": role, "content": text} for role in ("user", "assistant", "user")])
        assert prompt.ids == TOKENIZER.encode(str.__str__(prompt.text), parse_special=True, add_bos=False)
