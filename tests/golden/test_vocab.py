"""Other people's vocabularies: llama.cpp's ids for every text, and no special text of any of them gets through."""

from functools import cache

import pytest
from support.vocabularies import recorded_texts, shared_golden, without_golden
from tinyllm_engine.chat_template import ChatTemplate
from tinyllm_engine.gguf import open_gguf
from tinyllm_engine.tokenizer import Tokenizer, TokenType

FOLDER = shared_golden("vocab")
pytestmark = [pytest.mark.golden, pytest.mark.skipif(FOLDER is None, reason=without_golden("vocab"))]

NAMES = ["deepseek-coder", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"]
TEXTS = 46  # in each file
CHATML = """{{ bos_token }}
{%- for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


@cache
def metadata(name):
    with open_gguf(FOLDER / f"ggml-vocab-{name}.gguf") as file:
        return file.metadata


@cache
def tokenizer(name):
    return Tokenizer.from_metadata(metadata(name), name)


def templates(name):
    """One that is fed everything, and the file's own if it has one."""
    own = ChatTemplate.from_metadata(metadata(name), tokenizer(name), name)
    return [ChatTemplate(CHATML, tokenizer(name)), *([own] if own else [])]


def special_texts(name):
    kinds = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
    known = tokenizer(name)
    return [known.token_text(id) for id in range(known.vocab_size) if known.token_type(id) in kinds]


def recorded(name):
    """(text, ids) of every text in the file."""
    texts = recorded_texts(FOLDER / f"ggml-vocab-{name}.gguf")
    assert len(texts) == TEXTS
    return texts


@pytest.mark.parametrize("name", NAMES)
def test_ids(name):
    wrong = {text: ids for text, ids in recorded(name) if tokenizer(name).encode(text, add_bos=False) != ids}
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_texts_come_back(name):
    for text, ids in recorded(name):
        stream = tokenizer(name).stream()
        streamed = "".join(map(stream.feed, ids)) + stream.flush()
        assert streamed == text or streamed == " " + text  # SentencePiece puts a space in front


@pytest.mark.parametrize("name", NAMES)
def test_special_texts_as_content_stay_text(name):
    """Alone, since only alone they cannot hide behind each other; and all together, in one message."""
    known = tokenizer(name)
    texts = special_texts(name)
    assert texts
    for chat in templates(name):
        for content in [*texts, "".join(texts), " ".join(texts), "\n".join(texts)]:
            segments = chat.prompt([{"role": "user", "content": content}]).segments
            content_ids = [id for segment in segments if segment.message_index is not None for id in segment.ids]
            template_ids = [id for segment in segments if segment.message_index is None for id in segment.ids]
            assert content_ids
            assert not any(map(known.is_marker, content_ids)), content
            assert [id for id in template_ids if known.is_marker(id)] == template_markers(chat, known), content


def template_markers(chat, known):
    return [id for id in chat.render([{"role": "user", "content": "x"}]) if known.is_marker(id)]


@pytest.mark.parametrize("name", NAMES)
def test_harmless_content_gives_the_ids_of_joint_tokenization(name):
    known = tokenizer(name)
    special = special_texts(name)
    for chat in templates(name):
        for text, _ in recorded(name):
            if any(part in text for part in special):
                continue
            prompt = chat.prompt([{"role": "user", "content": text}, {"role": "assistant", "content": text}])
            joint = known.encode(str.__str__(prompt.text), parse_special=True, add_bos=False)
            bos = [known.bos_id] if known.add_bos and joint[:1] != [known.bos_id] else []
            assert prompt.ids == bos + joint
