"""SmolLM2's own template and tokenizer against llama.cpp's answers."""

import json

import pytest
from support.golden import GOLDEN
from support.models import WITHOUT_SMOLLM2, smollm2_path
from tinyllm_engine.chat_template import ChatTemplate
from tinyllm_engine.gguf import open_gguf
from tinyllm_engine.tokenizer import Tokenizer

PATH = smollm2_path()
RECORDED = json.loads((GOLDEN / "smollm2.json").read_text(encoding="utf-8"))
pytestmark = [pytest.mark.golden, pytest.mark.skipif(PATH is None, reason=WITHOUT_SMOLLM2)]


@pytest.fixture(scope="module")
def metadata():
    with open_gguf(PATH) as file:
        return file.metadata


@pytest.fixture(scope="module")
def tokenizer(metadata):
    return Tokenizer.from_metadata(metadata)


@pytest.fixture(scope="module")
def chat(metadata, tokenizer):
    return ChatTemplate.from_metadata(metadata, tokenizer)


def test_the_template_is_the_recorded_one(metadata):
    assert metadata["tokenizer.chat_template"] == RECORDED["template"]


def test_ids_of_a_question(chat):
    prompt = next(prompt for prompt in RECORDED["Q4_1"]["prompts"] if "What is gravity?" in prompt["text"])
    rendered = chat.prompt([{"role": "user", "content": "What is gravity?"}])
    assert rendered.text == prompt["text"]
    assert rendered.ids == prompt["tokens"]


def test_answers_come_back_as_text(tokenizer):
    for prompt in RECORDED["Q4_1"]["prompts"]:
        stream = tokenizer.stream()
        assert "".join(map(stream.feed, prompt["greedy"])) + stream.flush() == prompt["greedy_text"]


def test_an_answer_keeps_its_ids_in_the_next_prompt(chat):
    for prompt in RECORDED["Q4_1"]["prompts"]:
        messages = [{"role": "user", "content": "Go on."}]
        answer = {"role": "assistant", "content": prompt["greedy_text"], "ids": prompt["greedy"]}
        before = chat.render(messages)
        after = chat.render([*messages, answer, *messages])
        assert after[: len(before) + len(prompt["greedy"])] == before + prompt["greedy"]


@pytest.mark.parametrize("case", RECORDED["tokenize"], ids=lambda case: repr(case["text"][:20]))
def test_texts_as_content_are_plain_text(case, chat):
    segments = chat.prompt([{"role": "user", "content": case["text"]}]).segments
    assert [id for segment in segments if segment.message_index == 0 for id in segment.ids] == case["plain"]
