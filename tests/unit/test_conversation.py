"""The tree of messages and its visible path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyllm_chat.chat.conversation import (
    TITLE_LENGTH,
    UNTITLED,
    Conversation,
    Message,
    MessageState,
    SamplingSpan,
    title_of,
)
from tinyllm_chat.chat.events import AnswerStats
from tinyllm_chat.chat.markdown import file_stem, to_markdown


def chain(*contents: str) -> Conversation:
    """A chat in which user and assistant take turns."""
    conversation = Conversation()
    for index, content in enumerate(contents):
        conversation.new_message("assistant" if index % 2 else "user", content, conversation.head)
    return conversation


def contents(conversation: Conversation) -> list[str]:
    return [message.content for message in conversation.path()]


def test_the_path_runs_from_the_system_prompt_to_the_leaf() -> None:
    conversation = chain("a", "b", "c")
    assert contents(conversation) == ["a", "b", "c"]
    conversation.set_system("be brief")
    assert contents(conversation) == ["be brief", "a", "b", "c"]
    conversation.set_system("be long")
    assert contents(conversation) == ["be long", "a", "b", "c"]


def test_an_empty_conversation() -> None:
    conversation = Conversation()
    assert (conversation.path(), conversation.leaf, conversation.title) == ([], None, UNTITLED)


def test_branches_keep_their_own_continuations() -> None:
    conversation = chain("question", "first", "more", "and more")
    question = next(iter(conversation))
    second = conversation.new_message("assistant", "second", question.id)
    assert contents(conversation) == ["question", "second"]
    first, other = conversation.siblings(second.id)
    assert other == second.id
    conversation.select(first)
    assert contents(conversation) == ["question", "first", "more", "and more"]
    conversation.select(second.id)
    assert contents(conversation) == ["question", "second"]


def test_the_first_message_can_have_alternatives() -> None:
    conversation = chain("one")
    other = conversation.new_message("user", "two", None)
    assert len(conversation.siblings(other.id)) == 2
    assert contents(conversation) == ["two"]


def test_a_message_needs_its_parent_and_a_new_id() -> None:
    conversation = Conversation()
    conversation.add(Message("1", None, "user", "a"))
    with pytest.raises(ValueError, match="there already"):
        conversation.add(Message("1", None, "user", "a"))
    with pytest.raises(ValueError, match="not there"):
        conversation.add(Message("2", "7", "user", "a"))
    with pytest.raises(KeyError):
        conversation.select("7")


def test_an_answer_grows_and_ends() -> None:
    answer = Message("1", None, "assistant", "", fingerprint="m", state=MessageState.WRITING)
    answer.extend("Hel", (1, 2), {"temperature": 0.5})
    answer.extend("lo", (3,))
    answer.extend("!", (4,), {"temperature": 0.9})
    answer.finish("eog", AnswerStats(generated_tokens=4))
    assert (answer.content, answer.ids, answer.state, answer.reason) == (
        "Hello!",
        [1, 2, 3, 4],
        MessageState.COMPLETE,
        "eog",
    )
    assert answer.sampling_spans == [SamplingSpan(0, {"temperature": 0.5}), SamplingSpan(3, {"temperature": 0.9})]
    prompt = answer.for_prompt()
    assert (prompt.ids, prompt.fingerprint) == ((1, 2, 3, 4), "m")


def test_ids_of_two_models_are_not_offered_for_reuse() -> None:
    answer = Message("1", None, "assistant", "Hello", ids=[1], fingerprint="m")
    answer.resume("m")
    assert answer.for_prompt().ids == (1,)
    answer.resume("other")
    assert (answer.for_prompt().ids, answer.for_prompt().fingerprint) == (None, None)
    answer.resume("other")
    assert answer.for_prompt().ids is None


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("What is gravity?", "What is gravity?"),
        ("  two\nlines\tand\x00control\x1b[31m ", "two lines and control [31m"),
        ("", UNTITLED),
        ("\x00\ud800\n", UNTITLED),
        ("x" * 100, "x" * (TITLE_LENGTH - 1) + "…"),
        ("重力とは何ですか", "重力とは何ですか"),
    ],
)
def test_titles(text: str, title: str) -> None:
    assert title_of(text) == title


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_a_title_is_one_short_printable_line(text: str) -> None:
    title = title_of(text)
    assert title.isprintable()
    assert 0 < len(title) <= TITLE_LENGTH


def test_the_title_is_the_first_user_message() -> None:
    conversation = chain("first", "answer", "second")
    conversation.set_system("system")
    assert conversation.title == "first"


def test_markdown_shows_the_visible_path() -> None:
    conversation = chain("Why?", "Because.")
    conversation.set_system("Be brief.")
    answer = conversation.path()[-1]
    answer.model = "Tiny"
    answer.finish("cancelled", None)
    expected = "# Why?\n\n## System\n\nBe brief.\n\n## You\n\nWhy?\n\n## Tiny\n\nBecause.\n\n*(stopped)*\n\n"
    expected += "<!-- tinyllm-chat 1: system@3 user@7 assistant@11 -->\n"
    assert to_markdown(conversation) == expected


def test_markdown_says_how_an_answer_failed() -> None:
    conversation = chain("Why?", "")
    conversation.path()[-1].fail("no memory")
    assert "## Assistant\n\n*(failed: no memory)*\n\n<!--" in to_markdown(conversation)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=())), max_size=4))
def test_markdown_of_any_text_is_utf_8_without_control_characters(texts: list[str]) -> None:
    conversation = chain(*texts)
    document = to_markdown(conversation)
    assert document.encode()
    assert not any(ord(character) < 32 and character not in "\n\t" for character in document)
    assert "/" not in file_stem(conversation)
    assert "\x00" not in file_stem(conversation)


def test_reasoning_is_no_part_of_the_answer() -> None:
    answer = Message("a", None, "assistant", "")
    answer.extend("Hm", (1, 2), reasoning=True, seconds=0.5)
    answer.extend(".", (3,), reasoning=True, seconds=0.25)
    answer.extend("Yes", (4,))
    assert (answer.reasoning, answer.content, answer.ids) == ("Hm.", "Yes", [1, 2, 3, 4])
    assert (answer.thought_tokens, answer.thought_seconds) == (3, 0.75)
    assert answer.for_prompt().reasoning == "Hm."
