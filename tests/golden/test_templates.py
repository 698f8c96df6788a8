"""Real chat templates: rendered as plain Jinja does, with every character's origin known."""

from functools import cache

import pytest
from support.plain_jinja import RefusedByTemplate, render_plainly
from support.real_templates import (
    DRESSINGS,
    SPECIAL_TEXTS,
    TOKENIZER,
    VARIABLES,
    content,
    fixed_day,
    special_texts_that_get_through,
    wrong_conversations,
)
from support.vocabularies import shared_golden, without_golden
from tinyllm_engine.chat_template import ChatTemplate

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


@pytest.fixture(autouse=True)
def today():
    with fixed_day():
        yield


@cache
def source(name):
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.mark.parametrize("dressing", DRESSINGS)
@pytest.mark.parametrize("variables", VARIABLES, ids=lambda variables: "".join(variables) or "plain")
@pytest.mark.parametrize("name", NAMES)
def test_text_and_marks(name, variables, dressing):
    rendered, wrong = wrong_conversations(source(name), variables, dressing)
    assert not wrong
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
    assert not special_texts_that_get_through(source(name))


@pytest.mark.parametrize("name", NAMES)
def test_harmless_content_gives_the_ids_of_joint_tokenization(name):
    chat = ChatTemplate(source(name), TOKENIZER)
    for text in ("the  end", " the\n\n  the ", "é 🙂\t漢"):
        prompt = chat.prompt([{"role": role, "content": text} for role in ("user", "assistant", "user")])
        assert prompt.ids == TOKENIZER.encode(str.__str__(prompt.text), parse_special=True, add_bos=False)
