"""What was encoded before is not encoded again, and nothing else changes by that."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_vocabularies import CONTROL, USER_DEFINED, byte_level, sentence_piece
from tinyllm_engine.chat_template import ChatTemplate
from tinyllm_engine.tokenizer import Tokenizer
from tinyllm_engine.tokenizer.fragment_memory import ENTRY, FragmentMemory

SOURCE = (
    "{% for message in messages %}<s>{{ message.role + '\n' + message.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
SPECIAL = {"<s>": CONTROL, "</s>": CONTROL, "<b>": USER_DEFINED, "\n\n": USER_DEFINED}
VOCABULARIES = {
    "byte-level": byte_level(["a b", "Ġ a", "é é".encode().decode("latin-1")], SPECIAL, pre="smollm"),
    "sentence-piece": sentence_piece(
        {"▁": -1.0, "a": -1.0, "b": -1.0, "▁a": -0.5, "ab": -0.2}, {"<b>": USER_DEFINED, "\n\n": USER_DEFINED}
    ),
}
TEXTS = st.text("ab<s>/é🙂\n ", max_size=12)


def template_of(vocabulary: dict[str, Any], most: int) -> ChatTemplate:
    """A template whose tokenizer remembers so many characters."""
    tokenizer = Tokenizer.from_metadata(vocabulary)
    tokenizer._encode_fragment = FragmentMemory(tokenizer._marked_ids, most)
    return ChatTemplate(SOURCE, tokenizer)


@pytest.fixture(scope="module", params=VOCABULARIES)
def templates(request: pytest.FixtureRequest) -> tuple[ChatTemplate, ChatTemplate, ChatTemplate]:
    """One that remembers nothing, one that remembers a little and has to forget, one that remembers all."""
    first, second, third = (template_of(VOCABULARIES[request.param], most) for most in (0, 8 * ENTRY, 1 << 20))
    return first, second, third


@given(st.lists(st.tuples(st.booleans(), TEXTS), max_size=5), TEXTS)
def test_prompts_are_the_same(templates: Any, earlier: list[tuple[bool, str]], last: str) -> None:
    messages: list[dict[str, Any]] = []
    encode = templates[0]._tokenizer.encode
    for number, (recorded, text) in enumerate(earlier):
        message = {"role": ("user", "assistant")[number % 2], "content": text}
        messages.append(message | {"ids": encode(text, add_bos=False)} if recorded else message)
    messages.append({"role": "user", "content": last})
    fresh, forgetful, full = (template.prompt(messages).segments for template in templates)
    assert fresh == forgetful == full


@given(TEXTS, st.data())
def test_text_of_mixed_origin_is_the_same(templates: Any, text: str, data: st.DataObject) -> None:
    marks = data.draw(st.text("\0\1\2\3", min_size=len(text), max_size=len(text)))
    after = data.draw(st.booleans())
    fresh, forgetful, full = (each._tokenizer.encode_marked(text, marks, after) for each in templates)
    assert fresh == forgetful == full


def test_each_fragment_is_encoded_once_as_long_as_it_is_used() -> None:
    made = []

    def encode(text: str, marks: str) -> tuple[list[int], str]:
        made.append(text)
        return [len(text)], marks

    memory = FragmentMemory(encode, 2 * ENTRY + 2)
    for text in ("a", "b", "a", "c", "a", "b"):  # b goes when c comes: a was used since
        assert memory(text, "\2") == ([1], "\2")
    assert made == ["a", "b", "c", "b"]
    assert memory("a", "\3") == ([1], "\3")  # the same text of another message
    memory("long" * ENTRY, "")
    made.clear()
    memory("a", "\3")
    assert made == ["a"]  # what is longer than all that is remembered pushes everything out
