"""Reasoning told from the answer, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_engine.chat_template.splitter import ChannelSplitter, Tags, TagSplitter, partial

THINK = Tags("<think>", "</think>")
WRAPPED = Tags("<think>", "</think>", ("<response>", "</response>"))
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"


def said(splitter, *pieces):
    """(reasoning, content) of a text that comes in pieces."""
    parts = [part for piece in pieces for part in splitter.feed(piece)] + splitter.finish()
    return tuple("".join(part.text for part in parts if part.kind == kind) for kind in ("reasoning", "content"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", ("Hm.", "Yes.")),
        ("\n<think>Hm.</think>Yes.\n", ("Hm.", "Yes.\n")),
        ("<think>\n\n</think>\n\nYes.", ("", "Yes.")),
        ("\n\n Yes.\n", ("", "\n\n Yes.\n")),
        ("", ("", "")),
        ("\n ", ("", "\n ")),
        ("<think>Hm. a\n\n b </think", ("Hm. a\n\n b </think", "")),
        ("<think>Hm.\n", ("Hm.", "")),
        ("<think>Hm.</think>\n", ("Hm.", "")),
        ("<thin", ("", "<thin")),
        ("<thin ice", ("", "<thin ice")),
        ("Say <think>x</think>!", ("", "Say <think>x</think>!")),
        ("<think>a</think>\n<think>b</think>c", ("a\n\nb", "c")),
    ],
)
def test_tags(text, expected):
    assert said(TagSplitter(THINK, anywhere=False, open=False), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nHm.</think>\n\nYes.", ("Hm.", "Yes.")),
        ("Hm.", ("Hm.", "")),
        ("</think>Yes.", ("", "Yes.")),
    ],
)
def test_tags_that_the_prompt_opened(text, expected):
    assert said(TagSplitter(THINK, anywhere=False, open=True), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes.<think>Or no?</think> No.", ("Or no?", "Yes.No.")),
        ("<think>a</think>b<think>c</think>d", ("a\n\nc", "bd")),
        ("b</think>d", ("", "bd")),
    ],
)
def test_tags_that_count_anywhere(text, expected):
    assert said(TagSplitter(THINK, anywhere=True, open=False), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think>\n<response>\nb</response>", ("a", "b")),
        ("<response>b</response>", ("", "b")),
        ("<think>a</think>b <response>", ("a", "b <response>")),
        ("<think>a</think><response>", ("a", "")),
        ("<think>a</think> <resp", ("a", "<resp")),
    ],
)
def test_an_answer_in_tags_of_its_own(text, expected):
    assert said(TagSplitter(WRAPPED, anywhere=False, open=False), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ANALYSIS}Hm.<|end|>{FINAL}Yes.", ("Hm.", "Yes.")),
        (f"{ANALYSIS}a<|end|><|start|>assistant{ANALYSIS}b<|end|>{FINAL}c", ("a\n\nb", "c")),
        ("<|channel|>commentary<|message|>I look.<|end|>" + FINAL + "Yes.", ("", "I look.\n\nYes.")),
        ("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}", ("{}", "")),
        ("<|channel|>final<|message|>Yes.\n", ("", "Yes.\n")),
        (f"{ANALYSIS}Hm.", ("Hm.", "")),
        (f"{ANALYSIS}Hm.<|end|><|start|>assi", ("Hm.", "")),
        ("No channels here.", ("", "No channels here.")),
        ("<|channel|>" + "x" * 300, ("", "x" * 300)),
        ("<|channel|>" + "x" * 300 + FINAL + "y", ("", "x" * 300 + "\n\ny")),
        ("<|channel|>final<|message|>a <| b", ("", "a <| b")),
    ],
)
def test_channels(text, expected):
    assert said(ChannelSplitter(), text) == expected


PIECES = st.lists(
    st.sampled_from([*"a \n<", "<think>", "</think>", "</", "<response>", "</response>", ANALYSIS, FINAL, "<|end|>"]),
    max_size=12,
)


@given(PIECES, st.integers(1, 4), st.sampled_from(["tags", "anywhere", "open", "wrapped", "channels"]))
def test_how_a_text_is_cut_makes_no_difference(pieces, length, kind):
    def splitter():
        match kind:
            case "channels":
                return ChannelSplitter()
            case "wrapped":
                return TagSplitter(WRAPPED, anywhere=False, open=False)
        return TagSplitter(THINK, anywhere=kind == "anywhere", open=kind == "open")

    text = "".join(pieces)
    cut = [text[at : at + length] for at in range(0, len(text), length)]
    assert said(splitter(), *cut) == said(splitter(), text)


def test_text_is_given_as_soon_as_it_is_certain():
    splitter = TagSplitter(THINK, anywhere=False, open=False)
    assert splitter.feed("<thi") == []
    assert splitter.feed("nk>\n") == []
    assert splitter.reasoning
    assert splitter.feed("I see <") == [("I see", "reasoning")]
    assert splitter.feed("that") == [(" <that", "reasoning")]
    assert splitter.feed("</think>") == []
    assert splitter.feed("\nYes") == [("Yes", "content")]
    assert not splitter.reasoning


def test_going_on_after_a_known_text():
    splitter = TagSplitter(THINK, anywhere=False, open=False)
    splitter.resume("<think>\nHm. </")
    assert said(splitter, " And.</think>Yes.") == (" And.", "Yes.")


@pytest.mark.parametrize(
    ("text", "mark", "length"), [("a<", "<b>", 1), ("a<b", "<b>", 2), ("a<b>", "<b>", 0), ("", "<b>", 0)]
)
def test_what_may_become_a_mark(text, mark, length):
    assert partial(text, mark) == length
