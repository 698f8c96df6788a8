"""Which template a file is rendered with, and the formats that are known."""

import os

import pytest
from support.tiny_vocabularies import CONTROL, byte_level, sentence_piece
from tinyllm_engine.chat_template import ChatTemplate, choose_template
from tinyllm_engine.chat_template.formats import format_names, format_source
from tinyllm_engine.chat_template.marked_text import message_index
from tinyllm_engine.errors import TemplateError
from tinyllm_engine.tokenizer import Tokenizer

OWN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
TURNS = [("system", "be"), ("user", "one"), ("assistant", "two"), ("user", "three")]


def tokenizer_of(*special, pre="gpt-2"):
    return Tokenizer.from_metadata(byte_level([], dict.fromkeys(("<s>", "</s>", *special), CONTROL), pre=pre, **IDS))


IDS = {"bos_token_id": 256, "eos_token_id": 257}
CHATML = tokenizer_of("<|im_start|>", "<|im_end|>")
NOTHING = tokenizer_of()


def text(template, turns=TURNS):
    return str.__str__(template.prompt([{"role": role, "content": content} for role, content in turns]).text)


def chosen(metadata, tokenizer, wanted="", path=""):
    choice = choose_template(metadata, tokenizer, path, wanted)
    return choice.template and text(choice.template), choice.notes


def test_the_files_own_comes_first():
    assert chosen({"tokenizer.chat_template": OWN}, CHATML) == ("<system>be<user>one<assistant>two<user>three", ())


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (None, "the file has no chat template: chatml is used, which the file's tokens imply"),
        ("", "the file has no chat template"),
        ("{% if %}", r"x.gguf: tokenizer.chat_template, line 1: Expected an expression"),
        ("{{ nothing.at.all }}", "x.gguf: the chat template failed in line 1: 'nothing' is undefined"),
        ("{{ raise_exception('no') }}", "x.gguf: the chat template says: no"),
        (5, "expected a string, found int"),
    ],
)
def test_without_one_or_with_a_broken_one_the_tokens_say(own, said):
    metadata = {} if own is None else {"tokenizer.chat_template": own}
    rendered, notes = chosen(metadata, CHATML, path="x.gguf")
    assert rendered.startswith("<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\none<|im_end|>\n")
    assert len(notes) == 1
    assert said in notes[0]
    assert "chatml is used" in notes[0]


def test_where_nothing_says_text_is_continued():
    rendered, notes = chosen({}, NOTHING)
    assert rendered is None
    assert notes == ("the file has no chat template: the model continues your text instead of answering it",)
    _, notes = chosen({"tokenizer.chat_template": "{% if %}"}, NOTHING)
    assert "the file's chat template is not used: tokenizer.chat_template, line 1" in notes[0]


@pytest.mark.parametrize(
    ("format", "tokens"),
    [
        ("gpt-oss", ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"]),
        ("phi4", ["<|im_start|>", "<|im_sep|>", "<|im_end|>"]),
        ("llama3", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
        ("gemma", ["<start_of_turn>", "<end_of_turn>"]),
        ("command-r", ["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"]),
        ("phi3", ["<|user|>", "<|assistant|>", "<|end|>"]),
        ("zephyr", ["<|user|>", "<|assistant|>"]),
        ("deepseek3", ["<｜User｜>", "<｜Assistant｜>"]),
        ("deepseek", ["<|EOT|>"]),
        ("mistral-v3", ["[INST]", "[/INST]"]),
        ("mistral-v7", ["[INST]", "[/INST]", "[SYSTEM_PROMPT]"]),
        ("granite", ["<|start_of_role|>", "<|end_of_role|>"]),
        ("chatglm4", ["[gMASK]", "<sop>", "<|user|>", "<|assistant|>"]),
        ("exaone3", ["[|assistant|]", "[|endofturn|]"]),
    ],
)
def test_what_tokens_imply(format, tokens):
    known = tokenizer_of(*tokens)
    assert chosen({}, known)[0] == text(ChatTemplate(format_source(format), known))


@pytest.mark.parametrize(
    ("format", "metadata"),
    [
        ("mistral-v3-tekken", {"tokenizer.ggml.pre": "tekken"}),
        ("mistral-v3", {"tokenizer.ggml.pre": "default"}),
    ],
)
def test_the_same_tokens_in_another_vocabulary(format, metadata):
    known = tokenizer_of("[INST]", "[/INST]")
    assert chosen(metadata, known)[0] == text(ChatTemplate(format_source(format), known))


@pytest.mark.parametrize(
    ("format", "metadata", "path"),
    [
        ("deepseek2", {"general.architecture": "deepseek2"}, ""),
        ("llama2", {"general.name": "LLaMA v2"}, "models/llama-2-7b-chat.Q4_K_M.gguf"),
        ("mistral-v1", {"general.name": "mistralai_Mistral-7B-Instruct-v0.1"}, ""),
        ("vicuna", {"general.basename": "Vicuna", "general.name": 7}, "x.gguf"),
        ("zephyr", {"general.name": "tinyllama_tinyllama-1.1b-chat-v1.0"}, ""),
    ],
)
def test_what_architecture_and_name_imply(format, metadata, path):
    assert chosen(metadata, NOTHING, path=path)[0] == text(ChatTemplate(format_source(format), NOTHING))


def test_a_name_in_a_folder_implies_nothing():
    assert chosen({"general.name": "Base"}, NOTHING, path="vicuna/base.gguf")[0] is None


class TestWanted:
    def test_a_format(self):
        rendered, notes = chosen({"tokenizer.chat_template": OWN}, NOTHING, "chatml")
        assert rendered.startswith("<|im_start|>system")
        assert not notes

    def test_another_of_the_file(self):
        metadata = {"tokenizer.chat_template": OWN, "tokenizer.chat_template.loud": "{{ messages[0].content | upper }}"}
        assert chosen(metadata, NOTHING, "loud")[0] == "BE"

    def test_a_file(self, tmp_path):
        path = tmp_path / "my.jinja"
        path.write_text("\ufeff{{ messages[0].content }}!", encoding="utf-8")
        assert chosen({}, NOTHING, str(path))[0] == "be!"

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "my.jinja")
        with pytest.raises(TemplateError, match="expected a file"):
            chosen({}, NOTHING, str(tmp_path / "my.jinja"))

    def test_none(self):
        assert chosen({"tokenizer.chat_template": OWN}, NOTHING, "none") == (None, ())

    @pytest.mark.parametrize("wanted", ["chatmll", "no/such.jinja", "a\0b", "x" * 5000])
    def test_that_does_not_exist(self, wanted):
        with pytest.raises(
            TemplateError, match=r"expected a file or one of none, loud, alpaca, .*zephyr; found"
        ) as error:
            chosen({"tokenizer.chat_template.loud": "x"}, NOTHING, wanted)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b"{{ \xff }}", r"byte 3 is not UTF-8"),
            (b"{% if %}", r"chat template, line 1: Expected an expression"),
            (b"x" * 5_000_000, r"expected at most 1048576 characters"),
        ],
    )
    def test_a_file_that_is_no_template(self, data, said, tmp_path):
        path = tmp_path / "my.jinja"
        path.write_bytes(data)
        with pytest.raises(TemplateError, match=said) as error:
            chosen({}, NOTHING, str(path))
        assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("name", format_names())
def test_formats_say_everything_in_order_and_end_where_an_answer_is_due(name):
    known = Tokenizer.from_metadata(sentence_piece())
    template = ChatTemplate(format_source(name), known)
    prompt = template.prompt([{"role": role, "content": content} for role, content in TURNS])
    assert not prompt.notes
    said = [(message_index(mark), char) for char, mark in zip(prompt.text, prompt.text.marks, strict=True)]
    content = [(index, char) for index, char in said if index is not None]
    assert content == [(index, char) for index, (_, content) in enumerate(TURNS) for char in content]
    assert text(template, TURNS[:3]) != text(template, TURNS)


CHAT = {
    "chatml": "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n"
    "<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n",
    "llama2": "[INST] one [/INST] two </s><s>[INST] three [/INST]",
    "llama3": "<|start_header_id|>user<|end_header_id|>\n\none<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\ntwo<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nthree<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "<start_of_turn>user\none<end_of_turn>\n<start_of_turn>model\ntwo<end_of_turn>\n<start_of_turn>user\n"
    "three<end_of_turn>\n<start_of_turn>model\n",
    "mistral-v1": " [INST] one [/INST] two</s> [INST] three [/INST]",
    "mistral-v3": "[INST] one[/INST] two</s>[INST] three[/INST]",
    "mistral-v7-tekken": "[INST]one[/INST]two</s>[INST]three[/INST]",
    "zephyr": "<|user|>\none</s>\n<|assistant|>\ntwo</s>\n<|user|>\nthree</s>\n<|assistant|>\n",
    "phi3": "<|user|>\none<|end|>\n<|assistant|>\ntwo<|end|>\n<|user|>\nthree<|end|>\n<|assistant|>\n",
    "deepseek3": "<｜User｜>one<｜Assistant｜>two<｜end▁of▁sentence｜><｜User｜>three<｜Assistant｜>",
    "command-r": "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>one<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>two<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>three<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "vicuna": "USER: one\nASSISTANT: two</s>\nUSER: three\nASSISTANT:",
    "exaone4": "[|user|]\none[|endofturn|]\n[|assistant|]\ntwo[|endofturn|]\n"
    "[|user|]\nthree[|endofturn|]\n[|assistant|]\n",
    "gpt-oss": "<|start|>user<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>two<|end|>"
    "<|start|>user<|message|>three<|end|><|start|>assistant",
}
WITH_SYSTEM = {
    "llama2": "[INST] <<SYS>>\nbe\n<</SYS>>\n\none [/INST]",
    "gemma": "<start_of_turn>user\nbe\n\none<end_of_turn>\n<start_of_turn>model\n",
    "mistral-v1": " [INST] be\n\none [/INST]",
    "mistral-v3": "[INST] be\n\none[/INST]",
    "mistral-v7": "[SYSTEM_PROMPT] be[/SYSTEM_PROMPT][INST] one[/INST]",
    "deepseek3": "be\n\n<｜User｜>one<｜Assistant｜>",
}


@pytest.mark.parametrize("name", CHAT)
def test_the_text_of_a_format(name):
    assert text(ChatTemplate(format_source(name), NOTHING), TURNS[1:]) == CHAT[name]


@pytest.mark.parametrize("name", WITH_SYSTEM)
def test_the_text_of_a_format_with_a_system_message(name):
    assert text(ChatTemplate(format_source(name), NOTHING), TURNS[:2]) == WITH_SYSTEM[name]
