"""The tree of a conversation as lines."""

from __future__ import annotations

from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.outline import outline


def lines(conversation: Conversation) -> list[str]:
    return [
        f"{'*' if row.visible else ' '}{row.guides}{row.message.content} {row.variant}".rstrip()
        for row in outline(conversation)
    ]


def test_a_chat_without_branches_is_a_plain_list() -> None:
    conversation = Conversation()
    for text in "abc":
        conversation.new_message("user", text, conversation.head)
    assert lines(conversation) == ["*a", "*b", "*c"]


def test_branches_are_indented_and_the_visible_path_is_told() -> None:
    conversation = Conversation()
    a = conversation.new_message("user", "a", None)
    b = conversation.new_message("assistant", "b", a.id)
    conversation.new_message("user", "c", b.id)
    d = conversation.new_message("assistant", "d", a.id)
    e = conversation.new_message("user", "e", d.id)
    conversation.new_message("assistant", "f", e.id)
    conversation.new_message("assistant", "g", e.id)
    conversation.new_message("user", "h", None)
    conversation.select(b.id)
    assert lines(conversation) == [
        "*├ a 1/2",
        "*│ ├ b 1/2",
        "*│ │ c",
        " │ └ d 2/2",
        " │   e",
        " │   ├ f 1/2",
        " │   └ g 2/2",
        " └ h 2/2",
    ]


def test_a_chat_of_any_depth() -> None:
    conversation = Conversation()
    for number in range(5000):
        conversation.new_message("user", str(number), conversation.head)
        conversation.new_message("user", "other", conversation[conversation.head or ""].parent)
    assert len(outline(conversation)) == 10_000
    assert outline(Conversation()) == []
