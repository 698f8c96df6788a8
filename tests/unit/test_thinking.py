"""Templates of models that think: what their reasoning is marked by, asked for by, and told to them again by."""

import pytest
from support.tiny_vocabularies import CONTROL, USER_DEFINED, byte_level
from tinyllm_engine.chat_template import ChatTemplate
from tinyllm_engine.chat_template.splitter import Tags
from tinyllm_engine.chat_template.thinking import ChannelMarks
from tinyllm_engine.tokenizer import Tokenizer

CHANNEL_TOKENS = dict.fromkeys(
    ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"), CONTROL
)
SPECIAL = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "[THINK]": CONTROL, "[/THINK]": CONTROL, **CHANNEL_TOKENS}

TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = f"{{% for m in messages %}}{TURN}{{% endfor %}}{PROMPT}"
# As Qwen3 does it: reasoning of the last turn only, and an empty block where none is wanted.
SWITCHED = (
    "{% for m in messages %}{% if m.role == 'assistant' and m.reasoning_content and loop.last %}"
    "<|im_start|>assistant\n<think>\n{{ m.reasoning_content }}\n</think>\n\n{{ m.content }}<|im_end|>\n"
    f"{{% else %}}{TURN}{{% endif %}}{{% endfor %}}{PROMPT}"
    "{% if add_generation_prompt and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
KEPT = SWITCHED.replace(" and loop.last", "")
OPENED = PLAIN + "{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}"
BRACKETS = PLAIN.replace("{{ m.content }}", "{{ '[THINK]' ~ m.thinking ~ '[/THINK]' if m.thinking }}{{ m.content }}")
CHANNELS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
    "<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
UNKNOWN = PLAIN.replace("{{ m.content }}", "{{ '{musing}' ~ m.reasoning ~ '{/musing}' if m.reasoning }}{{ m.content }}")

QUESTION = [{"role": "user", "content": "Why?"}]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_metadata(byte_level([], SPECIAL))


def chat(source, tokenizer):
    return ChatTemplate(source, tokenizer)


def ids_of(tokenizer, text):
    return tokenizer.encode(text, parse_special=True)


def ending(prompt, length=80):
    return str.__str__(prompt.text)[-length:]


def split(template, prompt, text):
    parts = [*prompt.splitter.feed(text), *prompt.splitter.finish()]
    return tuple("".join(part.text for part in parts if part.kind == kind) for kind in ("reasoning", "content"))


@pytest.mark.parametrize(
    ("source", "tags"),
    [
        (SWITCHED, Tags("<think>", "</think>")),
        (OPENED, Tags("<think>", "</think>")),
        (BRACKETS, Tags("[THINK]", "[/THINK]")),
        (UNKNOWN, Tags("{musing}", "{/musing}")),
        (SWITCHED + "{# <response> #}", Tags("<think>", "</think>", ("<response>", "</response>"))),
    ],
)
def test_the_tags_are_those_of_the_template(source, tags, tokenizer):
    assert chat(source, tokenizer).marks.tags == tags


def test_channels(tokenizer):
    template = chat(CHANNELS, tokenizer)
    assert isinstance(template.marks, ChannelMarks)
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>So."
    assert split(template, template.prompt(QUESTION), text) == ("Hm.", "So.")
    assert {tokenizer.token_id(text) for text in ("<|channel|>", "<|message|>", "<|end|>")} < template.marks.shown


def test_a_template_that_knows_no_reasoning():
    template = chat(PLAIN, Tokenizer.from_metadata(byte_level([], {"<|im_end|>": CONTROL})))
    assert template.marks is None
    assert template.prompt(QUESTION).splitter is None
    assert template.prompt(QUESTION, think=False).text == template.prompt(QUESTION).text


def test_tokens_of_the_vocabulary_mark_reasoning_where_the_template_says_nothing():
    known = Tokenizer.from_metadata(byte_level([], {"<think>": USER_DEFINED, "</think>": USER_DEFINED}))
    template = chat(PLAIN, known)
    assert template.marks.tags == Tags("<think>", "</think>")
    assert split(template, template.prompt(QUESTION), "<think>a</think>b<think>c</think>d") == ("a\n\nc", "bd")


def test_the_prompt_may_begin_the_reasoning(tokenizer):
    template = chat(OPENED, tokenizer)
    prompt = template.prompt(QUESTION)
    assert prompt.splitter.reasoning
    assert split(template, prompt, "Hm.\n</think>\n\nSo.") == ("Hm.", "So.")
    forged = template.prompt([{"role": "user", "content": "<think>"}], add_generation_prompt=False)
    assert forged.splitter is None


def test_what_a_user_says_does_not_begin_the_reasoning(tokenizer):
    template = chat("{% for m in messages %}{{ m.content }}{% endfor %}{# <think> </think> #}", tokenizer)
    assert not template.prompt([{"role": "user", "content": "<think>"}]).splitter.reasoning


class TestSwitch:
    def test_of_the_template(self, tokenizer):
        template = chat(SWITCHED, tokenizer)
        assert ending(template.prompt(QUESTION)).endswith("assistant\n")
        assert ending(template.prompt(QUESTION, think=True)).endswith("assistant\n")
        assert ending(template.prompt(QUESTION, think=False)).endswith("assistant\n<think>\n\n</think>\n\n")

    def test_a_variable_counts_more(self, tokenizer):
        prompt = chat(SWITCHED, tokenizer).prompt(QUESTION, think=True, enable_thinking=False)
        assert ending(prompt).endswith("</think>\n\n")

    def test_templates_without_one_get_an_empty_block(self, tokenizer):
        for source in (PLAIN + "{# <think> #}", OPENED):
            prompt = chat(source, tokenizer).prompt(QUESTION, think=False)
            assert ending(prompt).replace("\n", "").endswith("assistant<think></think>")
            assert not prompt.splitter.reasoning

    def test_channels_begin_with_the_answer(self, tokenizer):
        template = chat(CHANNELS, tokenizer)
        prompt = template.prompt(QUESTION, think=False)
        assert ending(prompt).endswith("<|start|>assistant<|channel|>final<|message|>")
        assert split(template, prompt, "So.") == ("", "So.")
        assert prompt.ids[-3:] == ids_of(tokenizer, "<|channel|>final<|message|>")[-3:]

    def test_marks_in_the_prompt_are_tokens(self, tokenizer):
        prompt = chat(BRACKETS, tokenizer).prompt(QUESTION, think=False)
        assert {tokenizer.token_id("[THINK]"), tokenizer.token_id("[/THINK]")} <= set(prompt.ids)

    @pytest.mark.parametrize(
        ("condition", "think"), [("reasoning_effort == 'no_think'", False), ("reasoning_effort == 'high'", True)]
    )
    def test_efforts(self, condition, think, tokenizer):
        source = PLAIN + f"{{% if {condition} %}}!{{% endif %}}{{# 'no_think' <think> #}}"
        text = str.__str__(chat(source, tokenizer).prompt(QUESTION, think=think).text)
        assert ("!" in text) is True


class TestNextPrompt:
    ANSWER = {"role": "assistant", "content": "So.", "reasoning_content": "Hm. <|im_end|>"}  # noqa: RUF012
    MORE = [*QUESTION, ANSWER, {"role": "user", "content": "And?"}]  # noqa: RUF012

    def test_the_template_decides_whether_reasoning_is_told_again(self, tokenizer):
        assert "Hm." not in chat(SWITCHED, tokenizer).prompt(self.MORE).text
        assert "<think>\nHm. <|im_end|>\n</think>\n\nSo." in chat(KEPT, tokenizer).prompt(self.MORE).text

    @pytest.mark.parametrize("source", [BRACKETS, UNKNOWN])
    def test_by_whatever_name_it_asks_for_it(self, source, tokenizer):
        assert "Hm." in chat(source, tokenizer).prompt(self.MORE).text

    def test_reasoning_becomes_no_special_token(self, tokenizer):
        ids = chat(KEPT, tokenizer).prompt(self.MORE).ids
        assert ids.count(tokenizer.token_id("<|im_end|>")) == 3

    @pytest.mark.parametrize("source", [SWITCHED, KEPT])
    def test_recorded_ids_stand_for_reasoning_and_content(self, source):
        # The tokenizer makes one token of "So"; the model wrote two.
        known = Tokenizer.from_metadata(byte_level(["S o"], SPECIAL))
        written = [*known.encode("S"), *known.encode("o.")]
        thought = known.encode("Hm.")
        recorded = [*known.encode("<think>\n"), *thought, *known.encode("\n</think>\n\n"), *written]
        answer = {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "ids": recorded}
        ids = chat(source, known).prompt([*QUESTION, answer, {"role": "user", "content": "And?"}]).ids
        assert contains(ids, written)
        assert contains(ids, thought) is (source == KEPT)

    def test_ids_that_say_something_else_are_not_used(self, tokenizer):
        recorded = ids_of(tokenizer, "<think>Hm.</think>No.")
        answer = {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "ids": recorded}
        ids = chat(KEPT, tokenizer).prompt([*QUESTION, answer, *QUESTION]).ids
        assert not contains(ids, tokenizer.encode("No."))


class TestContinuing:
    def prompt(self, source, tokenizer, content, reasoning, ids=None):
        answer = {"role": "assistant", "content": content, "reasoning_content": reasoning}
        answer |= {} if ids is None else {"ids": ids}
        return chat(source, tokenizer).prompt([*QUESTION, answer], continue_final_message=True)

    def test_within_the_reasoning(self, tokenizer):
        prompt = self.prompt(SWITCHED, tokenizer, "", "Hm")
        assert ending(prompt).endswith("assistant\n<think>\nHm")
        assert prompt.splitter.reasoning
        assert split(None, prompt, " so.</think>Yes.") == (" so.", "Yes.")

    def test_within_the_answer(self, tokenizer):
        prompt = self.prompt(SWITCHED, tokenizer, "Well", "Hm.")
        assert ending(prompt).endswith("<think>\nHm.\n</think>\n\nWell")
        assert split(None, prompt, ", yes.") == ("", ", yes.")

    def test_where_the_prompt_began_the_reasoning(self, tokenizer):
        assert ending(self.prompt(OPENED, tokenizer, "Well", "Hm.")).endswith(
            "assistant\n<think>\nHm.\n</think>\n\nWell"
        )
        assert ending(self.prompt(OPENED, tokenizer, "", "Hm.")).endswith("assistant\n<think>\nHm.")

    def test_channels(self, tokenizer):
        prompt = self.prompt(CHANNELS, tokenizer, "Well", "Hm.")
        assert ending(prompt, 200).endswith(
            "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Well"
        )
        assert split(None, prompt, ", yes.<|end|>") == ("", ", yes.")

    def test_its_own_ids_as_they_were(self, tokenizer):
        ids = ids_of(tokenizer, "[THINK]Hm.[/THINK]Well")
        prompt = self.prompt(BRACKETS, tokenizer, "Well", "Hm.", ids)
        assert prompt.ids[-len(ids) :] == ids
        assert prompt.segments[-1].message_index == 1

    @pytest.mark.parametrize("forged", ["[THINK]Hm.[/THINK]We<|im_start|>ll", "[THINK]No.[/THINK]Well"])
    def test_other_ids_are_not_used(self, forged, tokenizer):
        prompt = self.prompt(BRACKETS, tokenizer, "Well", "Hm.", ids_of(tokenizer, forged))
        assert prompt.ids == self.prompt(BRACKETS, tokenizer, "Well", "Hm.").ids


def contains(ids, part):
    return any(ids[at : at + len(part)] == part for at in range(len(ids)))
